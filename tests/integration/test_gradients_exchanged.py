"""Whatever way a loss is computed from a wrapped model: all ranks together train what one does.

Two ranks have 3 and 2 records of each batch, so what is exchanged but not weighed shows as well.
All cases run in one pair of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from det_jupyter.config import parse_config
from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import PyTorchTrialContext
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.parallel import model_state
from tests.integration.parallel_ranks import RankRunner
from tests.integration.parallel_samples import CPU, alone, same_bits

BATCHES = 6
SHARES = ((0, 3), (3, 5))  # rows of a batch, by rank


class Net(nn.Module):
    """Two towers, a loss of its own, and a buffer, which ranks share."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 3)
        self.right = nn.Linear(4, 3)
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        outputs: torch.Tensor = self.left(inputs).tanh() * self.right(inputs)
        return outputs

    def loss(self, inputs: torch.Tensor) -> torch.Tensor:
        return loss_of(self(inputs))

    def left_loss(self, inputs: torch.Tensor) -> torch.Tensor:
        return loss_of(self.left(inputs))


def loss_of(outputs: torch.Tensor) -> torch.Tensor:
    return (outputs - 1).square().mean()


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def line_search(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(parameters, max_iter=4, line_search_fn="strong_wolfe")


@dataclass
class Bench:
    """What a trial has, and trains a batch with."""

    context: PyTorchTrialContext
    find_unused: bool = False
    frozen: tuple[str, ...] = ()
    make_optimizer: Callable[[Any], torch.optim.Optimizer] = momentum
    model: Any = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        net = Net().to(torch.float64)
        for name in self.frozen:
            net.get_submodule(name).requires_grad_(False)
        self.model = self.context.wrap_model(net, find_unused_parameters=self.find_unused)
        self.optimizer = self.context.wrap_optimizer(self.make_optimizer(self.model.parameters()))

    @property
    def rank(self) -> int:
        return self.context.distributed.rank

    @property
    def batch_idx(self) -> int:
        return self.context.position.batch_idx

    def learn(self, *losses: torch.Tensor, **options: Any) -> None:
        for loss in losses:
            self.context.backward(loss, **options)
        self.context.step_optimizer(self.optimizer)


Train = Callable[[Bench, torch.Tensor], None]


@dataclass
class Case:
    train: Train
    window: int = 1
    find_unused: bool = False
    frozen: tuple[str, ...] = ()
    make_optimizer: Callable[[Any], torch.optim.Optimizer] = momentum
    optimizations: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""  # on two ranks


CASES: dict[str, Case] = {}


def case(**options: Any) -> Callable[[Train], Train]:
    def add(train: Train) -> Train:
        CASES[train.__name__] = Case(train, **options)
        return train

    return add


def refused(message: str, **options: Any) -> Callable[[Train], Train]:
    return case(refusal=message, **options)


@case()
def forward(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(loss_of(bench.model(inputs)))


@case(optimizations={"sharding": "fsdp"})
def a_method_of_a_sharded_model(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(bench.model.loss(inputs))


@case()
def a_method(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(bench.model.loss(inputs))


@case(window=4)
def a_method_in_windows(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(bench.model.loss(inputs))


@case()
def its_parts(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(loss_of(bench.model.left(inputs) + bench.model.right(inputs)))


@case()
def its_parameters(bench: Bench, inputs: torch.Tensor) -> None:
    left, right = bench.model.left, bench.model.right
    regular = sum(parameter.square().sum() for parameter in bench.model.parameters())
    bench.learn(loss_of(F.linear(inputs, left.weight) + F.linear(inputs, right.weight)) + regular)


@case()
def two_passes_forward_one_back(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(loss_of(bench.model(inputs)) + loss_of(bench.model(-inputs)))


@case()
def two_passes_forward_two_back(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(loss_of(bench.model(inputs)), loss_of(bench.model(-inputs)))


@case(window=3)
def two_passes_back_in_windows(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(loss_of(bench.model(inputs)), bench.model.loss(-inputs))


@case()
def forward_and_a_method(bench: Bench, inputs: torch.Tensor) -> None:
    bench.context.backward(loss_of(bench.model(inputs)))
    bench.learn(bench.model.loss(-inputs))


@case()
def one_graph_twice(bench: Bench, inputs: torch.Tensor) -> None:
    loss = loss_of(bench.model(inputs))
    bench.learn(loss, loss, retain_graph=True)


@case()
def one_tower_after_the_other(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(loss_of(bench.model.left(inputs)), loss_of(bench.model.right(inputs)))


@case(find_unused=True)
def one_tower_only(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(bench.model.left_loss(inputs))


@case(find_unused=True)
def one_tower_besides_both(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(bench.model.left_loss(inputs), loss_of(bench.model(inputs)))


@case()
def another_way_on_each_rank(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(bench.model.loss(inputs) if bench.rank else loss_of(bench.model(inputs)))


@case()
def a_pass_more_on_one_rank(bench: Bench, inputs: torch.Tensor) -> None:
    if bench.rank:
        bench.model(inputs)
    bench.learn(loss_of(bench.model(inputs)))


@case()
def a_tower_that_is_frozen_at_times(bench: Bench, inputs: torch.Tensor) -> None:
    bench.model.left.requires_grad_(bench.batch_idx % 3 != 1)
    bench.learn(loss_of(bench.model(inputs)))


@case(window=3)
def a_tower_that_is_frozen_inside_a_window(bench: Bench, inputs: torch.Tensor) -> None:
    bench.model.left.requires_grad_(bench.batch_idx % 2 == 0)
    bench.learn(loss_of(bench.model(inputs)))


@case()
def one_tower_frozen_then_the_other(bench: Bench, inputs: torch.Tensor) -> None:
    for tower in (bench.model.left, bench.model.right):
        tower.requires_grad_(False)
        bench.learn(loss_of(bench.model(inputs)))
        tower.requires_grad_(True)


@case(make_optimizer=line_search)
def a_search_along_the_loss(bench: Bench, inputs: torch.Tensor) -> None:
    def closure() -> torch.Tensor:
        bench.optimizer.zero_grad()
        loss = loss_of(bench.model(inputs))
        bench.context.backward(loss)
        return loss

    bench.optimizer.step(closure)  # type: ignore[arg-type]  # torch wants a float, and takes this


@case()
def a_penalty_on_gradients(bench: Bench, inputs: torch.Tensor) -> None:
    inputs = inputs.clone().requires_grad_(True)
    outputs = bench.model(inputs)
    (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
    bench.learn(loss_of(outputs) + slope.square().mean())


@case()
def an_average_of_the_weights(bench: Bench, inputs: torch.Tensor) -> None:
    average = deepcopy(bench.model)
    bench.learn(loss_of(bench.model(inputs)))
    for parameter, averaged in zip(bench.model.parameters(), average.parameters(), strict=True):
        parameter.data.lerp_(averaged.data, 0.1)


@case(frozen=("right",))
def a_tower_that_is_trained_later(bench: Bench, inputs: torch.Tensor) -> None:
    if bench.batch_idx == 2:
        bench.model.right.requires_grad_(True)
    bench.learn(bench.model.loss(inputs))


@case()
def an_attack_before(bench: Bench, inputs: torch.Tensor) -> None:
    inputs = inputs.clone().requires_grad_(True)
    loss_of(bench.model(inputs)).backward()
    assert inputs.grad is not None
    inputs = (inputs + 0.1 * inputs.grad.sign()).detach()
    bench.optimizer.zero_grad()
    bench.learn(loss_of(bench.model(inputs)))


@case()
def an_attack_after_which_gradients_are_filled_with_zeros(
    bench: Bench, inputs: torch.Tensor
) -> None:
    loss_of(bench.model(inputs)).backward()
    bench.optimizer.zero_grad(set_to_none=False)
    bench.learn(loss_of(bench.model(inputs)))


@case()
def the_optimizer_by_hand(bench: Bench, inputs: torch.Tensor) -> None:
    bench.context.backward(bench.model.loss(inputs))
    bench.optimizer.step()
    bench.optimizer.zero_grad()


@case()
def two_steps_with_the_same_gradients(bench: Bench, inputs: torch.Tensor) -> None:
    bench.context.backward(bench.model.loss(inputs))
    bench.context.step_optimizer(bench.optimizer, auto_zero_grads=False)
    bench.context.step_optimizer(bench.optimizer)


@refused(
    "train_batch: SGD steps with gradients that context.backward has not computed.*loss.backw"
)
def backward_by_hand(bench: Bench, inputs: torch.Tensor) -> None:
    bench.model.loss(inputs).backward()
    bench.context.step_optimizer(bench.optimizer)


@refused("train_batch: SGD steps with gradients that context.backward has not computed")
def backward_by_hand_besides(bench: Bench, inputs: torch.Tensor) -> None:
    bench.context.backward(loss_of(bench.model(inputs)))
    loss_of(bench.model(-inputs)).backward()
    bench.optimizer.step()


@refused("train_batch: SGD steps with gradients that context.backward has not computed")
def backward_by_hand_before(bench: Bench, inputs: torch.Tensor) -> None:
    loss_of(bench.model(-inputs)).backward()
    bench.learn(loss_of(bench.model(inputs)))


@refused("train_batch: SGD steps with gradients that context.backward has not computed")
def backward_by_hand_of_another_model(bench: Bench, inputs: torch.Tensor) -> None:
    other = Bench(bench.context)
    other.learn(loss_of(other.model(inputs)))
    loss_of(bench.model(inputs)).backward()
    bench.context.step_optimizer(bench.optimizer)


@refused("SGD steps while gradients are computed.*Step after context.backward")
def a_step_in_a_hook(bench: Bench, inputs: torch.Tensor) -> None:
    def step(_: torch.Tensor) -> None:
        bench.optimizer.step()

    bench.model.left.weight.register_post_accumulate_grad_hook(step)
    bench.context.backward(loss_of(bench.model(inputs)))


@refused("create_graph=True. does not work on several ranks.*torch.autograd.grad")
def gradients_with_a_graph(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(loss_of(bench.model(inputs)), create_graph=True)


@refused("weight of this Linear belongs to a model that is wrapped already.*ModuleDict")
def a_part_that_is_wrapped_again(bench: Bench, inputs: torch.Tensor) -> None:
    bench.context.wrap_model(bench.model.left)


@refused("is trained on some ranks only; set requires_grad to the same on all")
def a_tower_frozen_by_rank(bench: Bench, inputs: torch.Tensor) -> None:
    tower = bench.model.right if bench.rank else bench.model.left
    tower.requires_grad_(False)
    bench.learn(loss_of(bench.model(inputs)))


@refused("train_batch: SGD steps with gradients that context.backward has not computed")
def gradients_by_hand(bench: Bench, inputs: torch.Tensor) -> None:
    parameters = list(bench.model.parameters())
    found = torch.autograd.grad(bench.model.loss(inputs), parameters)
    for parameter, gradient in zip(parameters, found, strict=True):
        parameter.grad = gradient
    bench.optimizer.step()


@refused(
    r"SGD.step\(\) was called directly, but optimizations.aggregation_frequency is 2", window=2
)
def a_step_by_hand_in_windows(bench: Bench, inputs: torch.Tensor) -> None:
    bench.context.backward(bench.model.loss(inputs))
    bench.optimizer.step()


@refused(
    r"SGD.step\(\) was called directly, but fp16 scales.*write self.context.step_optimizer",
    optimizations={"mixed_precision": "fp16"},
)
def a_step_by_hand_in_fp16(bench: Bench, inputs: torch.Tensor) -> None:
    bench.context.backward(bench.model.loss(inputs))
    bench.optimizer.step()


@refused(
    "parameters of Net got no gradient in a batch: right.weight and right.bias.*find_unused_param"
)
def half_of_it(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(bench.model.left_loss(inputs))


@refused("two backward passes reached the same parameters.*find_unused_parameters=True")
def half_of_it_and_all(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(bench.model.left_loss(inputs), bench.model.loss(inputs))


@refused("left.weight of Net is trained now.*before context.wrap_model", frozen=("left", "right"))
def trained_only_later(bench: Bench, inputs: torch.Tensor) -> None:
    bench.model.requires_grad_(True)
    bench.learn(bench.model.loss(inputs))


@refused("mixed torch.Tensor and DTensor", optimizations={"sharding": "fsdp"})
def a_part_of_a_sharded_model(bench: Bench, inputs: torch.Tensor) -> None:
    bench.learn(bench.model.left_loss(inputs))


def trained(distributed: DistributedContext, name: str) -> dict[str, torch.Tensor]:
    """Return the weights after some batches of the case."""
    made = CASES[name]
    optimizations = made.optimizations if distributed.size > 1 else {}
    context = context_of(distributed, made.window, **optimizations)
    bench = Bench(context, made.find_unused, made.frozen, made.make_optimizer)
    begin, end = SHARES[distributed.rank] if distributed.size > 1 else (0, 5)
    for batch_idx in range(BATCHES):
        generator = torch.Generator().manual_seed(batch_idx)
        inputs = torch.randn(5, 4, generator=generator, dtype=torch.float64)
        bench.context.stepping.begin_batch(batch_idx, Share(end - begin, 5))
        made.train(bench, inputs[begin:end])
        bench.context.stepping.after_step()
    return {name: value.clone() for name, value in model_state(bench.model).items()}


def context_of(
    distributed: DistributedContext, window: int = 1, **optimizations: Any
) -> PyTorchTrialContext:
    document = {
        "entrypoint": "T",
        "hyperparameters": {"global_batch_size": 5},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": BATCHES}},
        "optimizations": {"aggregation_frequency": window, **optimizations},
    }
    config = parse_config(document, default_seed=1)
    return PyTorchTrialContext(distributed=distributed, device=CPU, config=config)


def all_trained(distributed: DistributedContext) -> dict[str, Any]:
    """Return each case's weights, or what was said on this rank."""
    found: dict[str, Any] = {}
    for name in CASES:
        try:
            found[name] = trained(distributed, name)
        except (ConfigError, RuntimeError) as error:
            found[name] = str(error)
    return found


@pytest.fixture(scope="module")
def by_rank(run: RankRunner) -> list[dict[str, Any]]:
    return run(all_trained, 2)


@pytest.mark.parametrize("name", [name for name, made in CASES.items() if not made.refusal])
def test_two_ranks_train_what_one_does(by_rank: list[dict[str, Any]], name: str) -> None:
    one = trained(alone(), name)
    chief, other = (found[name] for found in by_rank)
    assert isinstance(chief, dict), chief
    for parameter, value in one.items():
        torch.testing.assert_close(chief[parameter], value, rtol=1e-12, atol=1e-12)
    if "sharding" not in CASES[name].optimizations:  # the chief alone puts those together
        assert same_bits(chief, other)


@pytest.mark.parametrize("name", [name for name, made in CASES.items() if made.refusal])
def test_what_cannot_be_exchanged_is_refused(by_rank: list[dict[str, Any]], name: str) -> None:
    for found in by_rank:
        assert isinstance(found[name], str), "it was trained"
        assert re.search(CASES[name].refusal, found[name])
