"""Learning rates that are changed while a schedule runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adam, lr_scheduler

from det_jupyter.contract.messages import Change
from det_jupyter.contract.values.lengths import Length
from det_jupyter.pytorch.steps.learning_rates import change_rates, find_rate_problem

STEPS, CHANGED_AT = 30, 8
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: lr_scheduler.StepLR(o, 5, 0.5),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "linear": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=15),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 40),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 12),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.4, total_steps=STEPS + 1),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=4),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.ConstantLR(o, 0.1, 5), lr_scheduler.CosineAnnealingLR(o, 12)],
        [10],
    ),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(o, 0.95), lr_scheduler.StepLR(o, 6)], o
    ),
}


def optimizer(*rates: float, kind: Any = SGD) -> Any:
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate} for rate in rates]
    more = {"momentum": 0.9} if kind is SGD else {}
    return kind(groups, lr=0.1, **more)


def rates_of(optimizer: Any) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def scheduled(make: Callable[[Any], Any], change: Change | None = None) -> list[list[float]]:
    """Return the rates after each step; the change comes between two of them."""
    trained = optimizer(0.2, 0.05)
    scheduler = make(trained)
    rates = []
    for step in range(STEPS):
        if step == CHANGED_AT and change is not None:
            change_rates([trained], [scheduler], change)
            assert scheduler.get_last_lr() == [group["lr"] for group in trained.param_groups]
        trained.step()
        scheduler.step()
        rates.append(rates_of(trained))
    return rates


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_rest_of_a_schedule_is_scaled_and_keeps_its_form(name: str) -> None:
    plain = scheduled(SCHEDULERS[name])
    changed = scheduled(SCHEDULERS[name], Change(lr_factor=0.25))
    assert changed[:CHANGED_AT] == plain[:CHANGED_AT]
    for before, after in zip(plain[CHANGED_AT:], changed[CHANGED_AT:], strict=True):
        assert after == pytest.approx([0.25 * rate for rate in before])


def test_a_rate_is_set_exactly_and_told_with_the_one_before() -> None:
    one, other = optimizer(0.1, 0.1), optimizer(0.3)
    assert change_rates([one, other], [], Change(lr=0.03, optimizer=0)) == "lr 0.1 → 0.03"
    assert (rates_of(one), rates_of(other)) == ([0.03, 0.03], [0.3])
    assert change_rates([one, other], [], Change(lr_factor=2)) == "lr 0.03 → 0.06, 0.3 → 0.6"
    assert change_rates([one], [], Change(min_validation_period=Length("batches", 5))) == ""


def test_a_rate_that_is_a_tensor_stays_that_tensor() -> None:
    trained = Adam([torch.nn.Parameter(torch.ones(1))], lr=torch.tensor(0.1), foreach=False)
    known = trained.param_groups[0]["lr"]
    change_rates([trained], [], Change(lr=0.5))
    assert trained.param_groups[0]["lr"] is known
    assert float(known) == 0.5


@pytest.mark.parametrize(
    ("rates", "change", "problem"),
    [
        ([], {"lr": 1.0}, "wrapped no optimizer"),
        ([[0.1]], {"lr": 1.0, "optimizer": 1}, "got 1, expected a number from 0 to 0"),
        ([[0.1], [0.1]], {"lr": 1.0}, "has 2 optimizers; give the optimizer's"),
        ([[0.1, 0.2]], {"lr": 1.0}, "different learning rates (0.1, 0.2)"),
        ([[0.0]], {"lr": 1.0}, "learning rate is 0 now"),
        ([[0.1, 0.2], [0.0]], {"lr_factor": 2.0}, ""),
        ([], {"min_validation_period": 7}, ""),
    ],
)
def test_what_is_ambiguous_or_impossible_is_refused(
    rates: list[list[float]], change: Any, problem: str
) -> None:
    found = find_rate_problem([optimizer(*each) for each in rates], Change(**change))
    assert problem in found if problem else not found
