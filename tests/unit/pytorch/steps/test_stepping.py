"""Optimizer steps on one rank: windows of batches, clipping, zeroing, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.core.peer_errors import PeerLost
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import (
    PyTorchTrialContext,
)
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.steps.position import Position
from det_jupyter.pytorch.steps.precision import Precision
from det_jupyter.pytorch.steps.stepping import Stepping

CPU = torch.device("cpu")


class Training:
    """A weight of 0, whose gradient in each batch is that batch's value; the rate is 1."""

    def __init__(
        self,
        *,
        window: int = 1,
        end: int = 100,
        averages: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0)
        position = Position(aggregation_frequency=window, end=end)
        self.precision = Precision(CPU, dtype)
        self.stepping = Stepping(position, self.precision, DistributedContext())
        self.stepping.add(self.optimizer, averages=averages)

    def backward(self, batch_idx: int, value: float, weight: Any = None) -> None:
        self.stepping.begin_batch(batch_idx, Share(1, 1))
        self.backward_again(value, weight)

    def backward_again(self, value: float, weight: Any = None) -> None:
        self.stepping.backward((self.weight * value).sum(), None, False, False, weight)

    def step(self, clip: Any = None, *, zeroes: bool = True) -> None:
        self.stepping.step(self.optimizer, clip, zeroes, None)

    def train(self, values: Sequence[float], weights: Sequence[Any] = ()) -> list[float]:
        """Return the weight after each batch; `weights` are those of the batches."""
        found = []
        for batch_idx, value in enumerate(values):
            self.backward(batch_idx, value, weights[batch_idx] if weights else None)
            self.step()
            self.stepping.after_step()
            found.append(self.weight.item())
        return found


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [-2.0, -6.0, -14.0, -16.0]),
        ({"window": 2}, [0.0, -3.0, -3.0, -8.0]),
        ({"window": 2, "averages": False}, [0.0, -6.0, -6.0, -16.0]),
        ({"window": 3, "end": 4}, [0.0, 0.0, -14 / 3, -14 / 3 - 2.0]),  # the last is shorter
    ],
)
def test_gradients_of_a_window_are_summed_or_averaged(
    options: dict[str, Any], weights: list[float]
) -> None:
    assert Training(**options).train([2.0, 4.0, 8.0, 2.0]) == pytest.approx(weights)


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [-2.0, -6.0, -14.0, -16.0]),  # a single rank: each batch is a mean by itself
        ({"window": 2}, [0.0, -3.5, -3.5, -9.5]),  # (1 * 2 + 3 * 4) / 4, (4 * 8 + 2 * 2) / 6
        ({"window": 2, "averages": False}, [0.0, -7.0, -7.0, -19.0]),
        ({"window": 3, "end": 4}, [0.0, 0.0, -46 / 8, -46 / 8 - 2.0]),
    ],
)
@pytest.mark.parametrize("kind", [int, torch.tensor, numpy.int64, numpy.float32, numpy.array])
def test_gradients_of_a_window_are_averaged_by_the_weights_of_its_batches(
    options: dict[str, Any], weights: list[float], kind: Any
) -> None:
    given = [kind(weight) for weight in (1, 3, 4, 2)]
    assert Training(**options).train([2.0, 4.0, 8.0, 2.0], given) == pytest.approx(weights)


@pytest.mark.parametrize(
    ("ranks", "share", "factor"),
    [(1, Share(3, 3), 1.0), (2, Share(2, 4), 1.0), (2, Share(4, 4), 2.0), (2, Share(0, 4), 0.0),
     (3, Share(4, 8), 1.5), (4, Share(1, 8), 0.5)],
)  # fmt: skip
def test_gradients_count_by_the_records_of_a_rank_before_the_mean_over_all_of_them(
    ranks: int, share: Share, factor: float
) -> None:
    distributed, weight = DistributedContext(), torch.nn.Parameter(torch.zeros(2))
    distributed.size = ranks
    stepping = Stepping(
        Position(aggregation_frequency=1, end=9), Precision(CPU, None), distributed
    )
    stepping.begin_batch(0, share)
    stepping.backward(weight.sum(), None, False, False)
    assert weight.grad is not None
    assert weight.grad.tolist() == [factor] * 2
    stepping.backward(weight * 3.0, torch.tensor([1.0, 10.0]), False, False)
    assert weight.grad.tolist() == [4 * factor, 31 * factor]


def test_batches_without_any_weight_do_not_count() -> None:
    assert Training(window=2).train([2.0, 4.0, 8.0, 2.0], [0, 3, 0, 0]) == [0.0, -4.0, -4.0, -4.0]
    assert Training().train([2.0, 4.0], [0, 3]) == [0.0, -4.0]


def test_weights_of_a_window_are_continued_from_a_checkpoint() -> None:
    straight, paused, resumed = (Training(window=3) for _ in range(3))
    straight.train([2.0, 4.0, 8.0], [1, 3, 4])
    paused.train([2.0, 4.0], [1, 3])
    saved = paused.stepping.position.state()
    resumed.stepping.position.restore(saved)
    resumed.weight.grad = paused.weight.grad
    resumed.backward(2, 8.0, 4)
    resumed.step()
    assert resumed.weight.item() == straight.weight.item()


@pytest.mark.parametrize("passes", [[(0, 1), (0, None)], [(0, None), (0, 1)], [(0, 1), (0, 2)],
                                    [(0, None), (1, 1)], [(0, 1), (1, None)]])  # fmt: skip
def test_passes_that_cannot_be_weighed_together_are_refused(
    passes: list[tuple[int, int | None]],
) -> None:
    def train(window: int) -> None:
        training, last = Training(window=window), -1
        for batch_idx, weight in passes:
            again = training.backward_again if batch_idx == last else None
            last = batch_idx
            again(1.0, weight) if again else training.backward(batch_idx, 1.0, weight)

    train(window=1)
    with pytest.raises(TrialMistake, match="all backward passes of a window need a weight"):
        train(window=2)


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), "3", True, torch.ones(2)])
def test_what_is_no_weight_is_refused(weight: Any) -> None:
    with pytest.raises(TrialMistake, match="expected a number of at least 0"):
        Training().backward(0, 1.0, weight)


def test_clipping_sees_the_gradients_with_which_the_optimizer_steps() -> None:
    training = Training(window=2, dtype=torch.float16)
    seen = []

    def clip(parameters: Any) -> None:
        seen.append(parameters[0].grad.item())
        parameters[0].grad.fill_(0.5)

    for batch_idx, value in enumerate([2.0, 4.0]):
        training.backward(batch_idx, value)
        training.step(clip)
    assert seen == [3.0]  # averaged, and without the scale of fp16
    assert training.weight.item() == -0.5


def test_gradients_are_zeroed_after_a_step_unless_the_trial_keeps_them() -> None:
    training = Training()
    training.backward(0, 1.0)
    training.step(zeroes=False)
    training.backward(1, 1.0)
    training.step()
    assert training.weight.item() == -3.0
    assert training.weight.grad is None


def test_the_scale_of_fp16_is_updated_once_in_a_batch_with_a_step() -> None:
    training = Training(window=2, dtype=torch.float16)
    updates: list[int] = []
    scaler: Any = training.precision.scaler
    update = scaler.update

    def count() -> None:
        updates.append(training.stepping.position.batch_idx)
        update()

    scaler.update = count
    training.train([1.0, 1.0, 1.0, 1.0, 1.0])
    assert updates == [1, 3]


def test_a_step_of_an_optimizer_that_is_not_wrapped_is_refused() -> None:
    training = Training()
    other = torch.optim.SGD([training.weight], lr=1.0)
    with pytest.raises(ConfigError, match="this SGD is not wrapped"):
        training.stepping.step(other, None, True, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 2}, "aggregation_frequency is 2: it would step too often"),
        ({"dtype": torch.float16}, "fp16 scales the loss"),
    ],
)
def test_the_trials_own_step_is_refused_where_it_would_differ(
    options: dict[str, Any], message: str
) -> None:
    training = Training(**options)
    training.backward(0, 1.0)
    with pytest.raises(TrialMistake, match=message):
        training.optimizer.step()


def test_the_trials_own_step_is_allowed_where_it_is_the_same() -> None:
    training = Training()
    training.backward(0, 1.0)
    training.optimizer.step()
    assert training.weight.item() == -1.0


def context(size: int = 1, **changes: Any) -> PyTorchTrialContext:
    arguments: dict[str, Any] = {
        "distributed": DistributedContext(),
        "device": torch.device("cpu"),
        "hparams": {"global_batch_size": 64, "lr": 0.1},
    }
    made = PyTorchTrialContext(**(arguments | changes))
    made.distributed.size = size
    return made


def test_gradients_of_a_window_are_averaged_before_they_are_clipped() -> None:
    made = context()
    position = made.position
    position.aggregation_frequency, position.end = 4, 6
    model = made.wrap_model(nn.Linear(1, 1, bias=False))
    sgd = made.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    seen = []
    for batch_idx in range(6):
        made.stepping.begin_batch(batch_idx, Share(1, 1))
        made.backward(model(torch.full((1, 1), 2.0)).sum())
        made.step_optimizer(sgd, clip_grads=lambda ps: seen.append(ps[0].grad.item()))
    assert seen == [2.0, 2.0]  # four batches, then the two that are left
    with pytest.raises(ConfigError, match="auto_zero_grads=False"):
        made.step_optimizer(sgd, auto_zero_grads=False)


class Slow(torch.optim.Optimizer):
    """Wraps another optimizer in the way that many do, without `Optimizer.__init__`."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.param_groups = inner.param_groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch has overloads
        self.inner.step()


def test_an_optimizer_may_wrap_another_one() -> None:
    made = context()
    model = nn.Linear(1, 1, bias=False)
    made.wrap_model(model)
    optimizer = made.wrap_optimizer(Slow(torch.optim.SGD(model.parameters(), lr=1.0)))
    before = model.weight.item()
    made.stepping.begin_batch(0, Share(1, 1))
    made.backward(model(torch.ones(1, 1)).sum())
    made.step_optimizer(optimizer)
    assert model.weight.item() == pytest.approx(before - 1)
    assert model.weight.grad is None


class Counting(torch.optim.SGD):
    """Has a `zero_grad` of its own."""

    zeroed = 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.zeroed += 1
        super().zero_grad(set_to_none)


def test_an_own_zero_grad_of_an_optimizer_is_called() -> None:
    made = context()
    model = made.wrap_model(nn.Linear(1, 1))
    optimizer = made.wrap_optimizer(Counting(model.parameters(), lr=1.0))
    made.stepping.begin_batch(0, Share(1, 1))
    for _ in range(2):
        made.backward(model(torch.ones(1, 1)).sum())
        made.step_optimizer(optimizer)
        assert [parameter.grad for parameter in model.parameters()] == [None, None]
    assert optimizer.zeroed == 2
    replaced: list[None] = []
    vars(optimizer)["zero_grad"] = lambda: replaced.append(None)
    made.step_optimizer(optimizer)
    assert replaced == [None]


@pytest.mark.parametrize(
    ("share", "gradient"), [(Share(2, 8), 0.5), (Share(4, 8), 1.0), (Share(0, 8), 0.0)]
)
def test_a_rank_counts_by_its_records(share: Share, gradient: float) -> None:
    made = context()
    model = nn.Linear(1, 1, bias=False)
    made.wrap_model(model)
    made.distributed.size = 2
    made.stepping.begin_batch(0, share)
    made.backward(model(torch.ones(1, 1)).sum())
    made.backward(model(torch.ones(1, 1)), gradient=torch.tensor([[3.0]]))
    assert model.weight.grad is not None
    assert model.weight.grad.item() == 4 * gradient


def test_what_clips_may_return_nothing_but_has_to_be_a_function() -> None:
    made = context()
    model = nn.Linear(1, 1, bias=False)
    made.wrap_model(model)
    sgd = made.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    made.stepping.begin_batch(0, Share(1, 1))
    before = model.weight.item()
    made.backward(model(torch.full((1, 1), 8.0)).sum())

    def clip(parameters: list[torch.Tensor]) -> None:
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.clamp_(-0.5, 0.5)

    made.step_optimizer(sgd, clip_grads=clip)
    assert model.weight.item() == before - 0.5
    with pytest.raises(ConfigError, match="got a Tensor as clip_grads, expected a function"):
        made.step_optimizer(sgd, clip_grads=torch.ones(1))  # type: ignore[arg-type]  # the mistake


def test_scaled_gradients_are_clipped_at_their_own_size_and_the_scale_is_kept() -> None:
    made = context()
    made.experimental.use_amp()
    model = nn.Linear(1, 1, bias=False)
    made.wrap_model(model)
    first, second = (
        made.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.0)) for _ in range(2)
    )
    seen: list[float] = []
    made.stepping.begin_batch(0, Share(1, 1))
    made.backward(model(torch.full((1, 1), 0.5)).sum() / 2)
    made.step_optimizer(first, lambda ps: seen.append(ps[0].grad.item()), auto_zero_grads=False)
    made.step_optimizer(second)
    made.stepping.after_step()
    assert seen == [0.25]
    assert made.scaler.state_dict()["_growth_tracker"] == 1  # updated once, not for each
    with pytest.raises(ConfigError, match="call it before wrap_model"):
        made.experimental.use_amp()


def test_an_optimizer_without_hooks_steps_unseen() -> None:
    class Bare(torch.optim.SGD):
        def __init__(self, parameters: Any) -> None:
            pass  # as some do that wrap another optimizer

        param_groups: Any = ()

        def register_step_pre_hook(self, hook: Any) -> Any:
            raise AttributeError

    training = Training()
    assert training.stepping.sees_steps
    training.stepping.add(Bare([]), averages=True)
    assert not training.stepping.sees_steps


def test_a_device_is_waited_for_before_each_step_and_in_a_batch_without_one() -> None:
    training, weights = Training(), list[float]()
    training.stepping.distributed.size = 2  # the gradients of this one count twice
    training.stepping.await_exchange = lambda: weights.append(training.weight.item())
    training.train([1.0, 2.0])
    assert weights == [0.0, -2.0]
    training.backward(2, 4.0)
    training.stepping.after_step()
    assert weights == [0.0, -2.0, -6.0]


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_an_aborted_exchange_is_not_stepped_with(dtype: torch.dtype | None) -> None:
    training = Training(dtype=dtype)
    training.stepping.distributed.size = 2

    def abort() -> None:
        raise PeerLost("aborted")

    training.stepping.await_exchange = abort
    training.backward(0, float("inf"))  # with a scaler the step would be left out
    with pytest.raises(PeerLost):
        training.step()
    assert training.weight.item() == 0
    with pytest.raises(PeerLost):
        training.stepping.after_step()
    assert not training.stepping.has_stepped(0)
