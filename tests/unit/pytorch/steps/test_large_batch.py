"""Linear scaling and warm-up: the factor of a batch, and what a step is taken with."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from det_jupyter.config.sections import LargeBatch
from det_jupyter.contract.values.lengths import Length, TrainingUnits
from det_jupyter.pytorch.steps.learning_rates import LargeBatchRates
from det_jupyter.pytorch.steps.position import Position

UNITS = TrainingUnits(global_batch_size=256, batches_per_epoch=4)


def rules(warmup: Length, base: int = 64) -> LargeBatch:
    return LargeBatch(base_batch_size=base, warmup=warmup)


def sgd(lr: float | torch.Tensor = 0.5) -> torch.optim.SGD:
    """Return an optimizer over one zero, whose gradient is one: a step is minus the rate."""
    weight = nn.Parameter(torch.zeros(()))
    weight.grad = torch.ones(())
    return torch.optim.SGD([weight], lr=lr)


def step(optimizer: torch.optim.Optimizer) -> list[float]:
    """Return how far the first weight of each group moves in a step."""
    weights = [group["params"][0] for group in optimizer.param_groups]
    before = [weight.item() for weight in weights]
    optimizer.step()
    return [was - weight.item() for was, weight in zip(before, weights, strict=True)]


@pytest.mark.parametrize(
    ("warmup", "factors"),
    [
        (Length("batches", 6), [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.0]),
        (Length("epochs", 1), [1.0, 1.75, 2.5, 3.25, 4.0, 4.0, 4.0, 4.0]),
        (Length("records", 512), [1.0, 2.5, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]),
        (Length("batches", 0), [4.0] * 8),
    ],
)
def test_the_factor_grows_linearly_over_the_warmup_and_stays(
    warmup: Length, factors: list[float]
) -> None:
    large = LargeBatchRates(rules(warmup), 256)
    assert [large.factor(batch, UNITS) for batch in range(8)] == factors


def test_a_smaller_batch_is_scaled_down() -> None:
    large = LargeBatchRates(rules(Length("batches", 2)), 16)
    assert [large.factor(batch, UNITS) for batch in range(4)] == [1.0, 0.625, 0.25, 0.25]


@given(
    base=st.integers(1, 4096),
    batch_size=st.integers(1, 65536),
    warmup=st.integers(0, 50),
    batch=st.integers(0, 100),
)
@settings(max_examples=100)
def test_the_factor_lies_between_one_and_the_scale(
    base: int, batch_size: int, warmup: int, batch: int
) -> None:
    large = LargeBatchRates(rules(Length("batches", warmup), base), batch_size)
    scale = batch_size / base
    factor = large.factor(batch, UNITS)
    assert min(1.0, scale) - 1e-9 <= factor <= max(1.0, scale) * (1 + 1e-12)
    if batch >= warmup:
        assert factor == scale


def test_a_step_is_taken_with_the_scaled_rate_and_the_trials_own_comes_back() -> None:
    large = LargeBatchRates(rules(Length("batches", 2)), 256)
    position = Position(units=UNITS)
    optimizer = sgd(0.5)
    large.attach(optimizer, position)
    moved = []
    for position.batch_idx in range(4):
        moved += step(optimizer)
        assert optimizer.param_groups[0]["lr"] == 0.5
    assert moved == [0.5, 1.25, 2.0, 2.0]


def test_every_param_group_is_scaled_by_its_own_rate() -> None:
    first, second = (nn.Parameter(torch.zeros(())) for _ in range(2))
    first.grad = second.grad = torch.ones(())
    groups: list[dict[str, Any]] = [{"params": [first], "lr": 0.25}, {"params": [second]}]
    optimizer = torch.optim.SGD(groups, lr=0.5)
    LargeBatchRates(rules(Length("batches", 0)), 128).attach(optimizer, Position(units=UNITS))
    assert step(optimizer) == [0.5, 1.0]
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.5]


def test_a_rate_that_is_a_tensor_stays_the_same_tensor() -> None:
    lr = torch.tensor(0.5)
    optimizer = sgd(lr)
    LargeBatchRates(rules(Length("batches", 0)), 128).attach(optimizer, Position(units=UNITS))
    assert step(optimizer) == [1.0]
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == 0.5


def test_a_scheduler_sees_and_sets_the_trials_own_rate() -> None:
    optimizer = sgd(1.0)
    LargeBatchRates(rules(Length("batches", 0)), 128).attach(optimizer, Position(units=UNITS))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    moved = []
    for _ in range(3):
        moved += step(optimizer)
        scheduler.step()
    assert moved == [2.0, 1.0, 0.5]
    assert scheduler.get_last_lr() == [0.125]


def test_batches_that_are_averaged_into_one_step_make_it_larger() -> None:
    position = Position(4, units=UNITS)
    averaged, summed = sgd(0.5), sgd(0.5)
    large = LargeBatchRates(rules(Length("batches", 0)), 64)
    large.attach(averaged, position)
    large.attach(summed, position, averages=False)
    assert (step(averaged), step(summed)) == ([2.0], [0.5])


def test_before_the_training_nothing_is_scaled() -> None:
    optimizer = sgd(0.5)
    LargeBatchRates(rules(Length("batches", 0)), 256).attach(optimizer, Position())
    assert step(optimizer) == [0.5]


def test_a_step_that_a_scaler_leaves_out_leaves_the_rate_alone() -> None:
    optimizer = sgd(0.5)
    LargeBatchRates(rules(Length("batches", 0)), 256).attach(optimizer, Position(units=UNITS))
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    scaler.scale(torch.ones(()))
    optimizer.param_groups[0]["params"][0].grad = torch.tensor(float("inf"))
    scaler.step(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["params"][0].item() == 0.0


def library(name: str) -> Callable[..., torch.optim.Optimizer]:
    made: Callable[..., torch.optim.Optimizer]
    if name == "RAdam":
        made = torch.optim.RAdam
    else:
        made = getattr(pytest.importorskip("pytorch_optimizer"), name)
    return made


@pytest.mark.parametrize("name", ["RAdam", "LARS", "Lamb"])
def test_the_libraries_optimizers_scale_and_resume_to_the_same_bits(name: str) -> None:
    make = library(name)

    def begin() -> tuple[nn.Linear, torch.optim.Optimizer, Position]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        position = Position(units=UNITS)
        optimizer = make(model.parameters(), lr=0.01)
        LargeBatchRates(rules(Length("batches", 5)), 256).attach(optimizer, position)
        return model, optimizer, position

    def train(model: nn.Linear, optimizer: torch.optim.Optimizer, position: Position) -> None:
        optimizer.zero_grad()
        model(torch.arange(6.0).reshape(2, 3)).square().mean().backward()
        optimizer.step()
        position.batch_idx += 1

    straight = begin()
    for _ in range(8):
        train(*straight)
    model, optimizer, position = begin()
    for _ in range(3):
        train(model, optimizer, position)
    file = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict()), file)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    resumed = begin()
    resumed[0].load_state_dict(weights)
    resumed[1].load_state_dict(state)
    resumed[2].batch_idx = position.batch_idx
    for _ in range(5):
        train(*resumed)
    assert torch.equal(straight[0].weight, resumed[0].weight)
    assert torch.equal(straight[0].bias, resumed[0].bias)
