"""What restored optimizers and schedulers take from a changed configuration."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

from det_jupyter.pytorch import LRScheduler, PyTorchTrialContext
from det_jupyter.pytorch.checkpoints.configured import (
    apply_configured,
    built_otherwise,
    describe_built,
)
from det_jupyter.pytorch.checkpoints.restore import apply_changed

Make = Callable[[Any], Any]  # an optimizer of parameters, or a scheduler of an optimizer


def sgd(**options: Any) -> Make:
    return lambda parameters: torch.optim.SGD(parameters, **{"lr": 0.1, "momentum": 0.9} | options)


def step_lr(**options: Any) -> Make:
    return lambda each: schedulers.StepLR(each, **{"step_size": 2, "gamma": 0.5} | options)


class Trained:
    """A context with an optimizer and a scheduler, and how they were made."""

    def __init__(self, optimizer: Make, scheduler: Make | None = None) -> None:
        self.context = PyTorchTrialContext(device=torch.device("cpu"))
        model = self.context.wrap_model(nn.Linear(2, 1))
        self.optimizer = self.context.wrap_optimizer(optimizer(model.parameters()))
        self.scheduler = scheduler(self.optimizer) if scheduler else None
        if self.scheduler is not None:
            self.context.wrap_lr_scheduler(self.scheduler, LRScheduler.StepMode.MANUAL_STEP)
        self.built = describe_built(self.context)

    def train(self, batches: int) -> list[float]:
        """Return the learning rates of the batches."""
        rates = []
        for _ in range(batches):
            rates.append(self.group["lr"])
            self.optimizer.step()
            if self.scheduler is not None:
                self.scheduler.step()
        return rates

    def continued_with(self, optimizer: Make, scheduler: Make | None = None) -> Trained:
        """Return a later run, made otherwise, that has restored this one."""
        later = Trained(optimizer, scheduler)
        later.optimizer.load_state_dict(self.optimizer.state_dict())
        if later.scheduler is not None and self.scheduler is not None:
            later.scheduler.load_state_dict(self.scheduler.state_dict())
        later.said = apply_configured(later.context, self.built, later.built)
        return later

    said: list[str]

    @property
    def group(self) -> dict[str, Any]:
        group: dict[str, Any] = self.optimizer.param_groups[0]
        return group


def test_values_that_are_made_as_before_stay_as_the_checkpoint_has_them() -> None:
    trained = Trained(sgd(), step_lr())
    trained.train(5)
    later = trained.continued_with(sgd(), step_lr())
    assert later.said == []
    assert later.train(4) == trained.train(4)


def test_a_schedule_goes_on_at_the_new_rate() -> None:
    trained = Trained(sgd(), step_lr())
    assert trained.train(5) == [0.1, 0.1, 0.05, 0.05, 0.025]
    later = trained.continued_with(sgd(lr=0.01), step_lr())
    assert later.said == ["SGD: lr 0.025 → 0.0025"]
    assert later.context.lr_schedulers[0].scheduler.get_last_lr() == [later.group["lr"]]
    assert later.train(4) == pytest.approx([0.0025, 0.00125, 0.00125, 0.000625])


@pytest.mark.parametrize(
    "scheduler",
    [
        step_lr(),
        lambda each: schedulers.LambdaLR(each, lambda step: 1 / (step + 1)),
        lambda each: schedulers.CosineAnnealingLR(each, T_max=20),
        lambda each: schedulers.LinearLR(each, total_iters=8),
        lambda each: schedulers.SequentialLR(
            each,
            [schedulers.LinearLR(each, total_iters=4), schedulers.ExponentialLR(each, 0.9)],
            milestones=[4],
        ),
        lambda each: schedulers.ChainedScheduler(
            [schedulers.ConstantLR(each, total_iters=3), schedulers.ExponentialLR(each, 0.9)]
        ),
    ],
)
def test_rates_are_those_of_a_training_that_began_with_the_new_rate(scheduler: Make) -> None:
    trained, straight = Trained(sgd(), scheduler), Trained(sgd(lr=0.02), scheduler)
    trained.train(6)
    straight.train(6)
    later = trained.continued_with(sgd(lr=0.02), scheduler)
    assert later.train(8) == pytest.approx(straight.train(8))


def test_a_cycle_goes_on_with_the_new_largest_rate() -> None:
    def cycle(rate: float) -> Make:
        return lambda each: schedulers.OneCycleLR(each, max_lr=rate, total_steps=20)

    trained, straight = Trained(sgd(), cycle(0.1)), Trained(sgd(), cycle(0.03))
    trained.train(6)
    straight.train(6)
    later = trained.continued_with(sgd(), cycle(0.03))
    assert later.train(8) == pytest.approx(straight.train(8))


def test_cycles_that_were_given_another_form_go_on_as_if_they_had_had_it() -> None:
    def cyclic(rate: float) -> Make:
        return lambda each: schedulers.CyclicLR(each, 0.01, rate, step_size_up=4)

    def restarts(least: float) -> Make:
        return lambda each: schedulers.CosineAnnealingWarmRestarts(each, T_0=5, eta_min=least)

    changes = [(cyclic(0.1), cyclic(0.03), "max_lrs"), (restarts(0), restarts(0.01), "eta_min")]
    for before, after, named in changes:
        trained, straight = Trained(sgd(), before), Trained(sgd(), after)
        trained.train(6)
        straight.train(6)
        later = trained.continued_with(sgd(), after)
        assert later.train(8) == pytest.approx(straight.train(8))
        assert named in later.said[0]
        assert "lr 0." in later.said[0]


def test_a_rate_without_a_schedule_is_the_configured_one_whatever_a_user_made_of_it() -> None:
    trained = Trained(sgd())
    trained.group["lr"] = 0.05  # a change of the running trial
    assert trained.continued_with(sgd(lr=0.01)).train(1) == [0.01]
    assert trained.continued_with(sgd()).train(1) == [0.05]


def test_other_values_are_the_configured_ones_only_if_they_were_changed() -> None:
    trained = Trained(sgd(), step_lr())
    trained.train(3)
    trained.group["weight_decay"] = 0.3  # by the trial's own code
    later = trained.continued_with(sgd(momentum=0.5), step_lr(gamma=0.1))
    assert later.said == ["SGD: momentum 0.9 → 0.5", "StepLR: gamma 0.5 → 0.1, lr 0.05 → 0.01"]
    assert (later.group["momentum"], later.group["weight_decay"]) == (0.5, 0.3)
    assert later.train(4) == pytest.approx([0.01, 0.001, 0.001, 0.0001])


def test_a_plateau_is_kept_at_the_new_rate() -> None:
    def plateau(each: Any) -> Any:
        return schedulers.ReduceLROnPlateau(each, patience=0, factor=0.1)

    trained = Trained(sgd(), plateau)
    for loss in (1.0, 2.0):
        trained.context.lr_schedulers[0].scheduler.step(loss)
    later = trained.continued_with(sgd(lr=0.5), plateau)
    assert later.group["lr"] == pytest.approx(0.05)
    assert later.context.lr_schedulers[0].scheduler.best == 1.0


def test_a_rate_in_a_tensor_stays_in_its_tensor() -> None:
    def tensor(rate: float) -> Make:
        return lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(rate))

    later = Trained(tensor(0.1)).continued_with(tensor(0.01))
    assert torch.equal(later.group["lr"], torch.tensor(0.01))


def test_what_is_made_otherwise_is_named() -> None:
    one, other = Trained(sgd()).built, Trained(sgd(lr=0.2)).built
    assert built_otherwise(one, other) == ["lr 0.1 → 0.2"]
    assert built_otherwise(one, one) == []


class WithHistory(schedulers.StepLR):
    """A scheduler that keeps what `==` cannot compare."""

    def __init__(self, optimizer: Any) -> None:
        self.table = numpy.ones(3)
        self.parts = [torch.ones(2), {"inner": torch.zeros(2)}]
        super().__init__(optimizer, step_size=2, gamma=0.5)


def test_a_scheduler_that_keeps_arrays_is_restored_at_another_rate() -> None:
    before = Trained(sgd(), WithHistory)
    before.train(3)
    assert isinstance(before.scheduler, WithHistory)
    before.scheduler.table[0] = 7
    later = before.continued_with(sgd(lr=0.01), WithHistory)
    assert isinstance(later.scheduler, WithHistory)
    assert later.scheduler.table[0] == 7, "as it was saved"
    assert later.group["lr"] == pytest.approx(0.005)


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda length: lambda each: schedulers.CosineAnnealingLR(each, T_max=length),
        lambda length: (
            lambda each: schedulers.LinearLR(
                each, start_factor=1.0, end_factor=0.0, total_iters=length
            )
        ),
        lambda length: lambda each: schedulers.PolynomialLR(each, total_iters=length),
        lambda length: lambda each: schedulers.StepLR(each, step_size=length // 2),
    ],
    ids=["cosine", "linear", "polynomial", "step"],
)
@pytest.mark.parametrize("lr", [0.1, 0.05])
def test_a_schedule_that_was_made_longer_goes_on_as_if_it_had_been_so(
    scheduler: Callable[[int], Make], lr: float
) -> None:
    short = Trained(sgd(), scheduler(10))
    short.train(10)
    straight = Trained(sgd(lr=lr), scheduler(20)).train(20)
    later = short.continued_with(sgd(lr=lr), scheduler(20))
    assert later.train(10) == pytest.approx(straight[10:], abs=1e-12)


def test_groups_and_inner_schedulers_without_a_counterpart_stay_as_saved() -> None:
    def chained(number: int) -> Make:
        return lambda each: schedulers.ChainedScheduler(
            [schedulers.ExponentialLR(each, 0.9) for _ in range(number)]
        )

    trained = Trained(sgd(), chained(1))
    trained.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": 0.3})
    now = describe_built(Trained(sgd(lr=0.05), chained(2)).context)
    assert apply_configured(trained.context, trained.built, now) == ["SGD: lr 0.1 → 0.05"]
    assert [group["lr"] for group in trained.optimizer.param_groups] == [0.05, 0.3]


def said_on_going_on(hparams: list[str], then: Any, now: Any, *, is_chief: bool = True) -> str:
    """Return what is written when a training goes on at batch 6."""
    context = SimpleNamespace(
        distributed=SimpleNamespace(is_chief=is_chief), optimizers=[], lr_schedulers=[]
    )
    parts = SimpleNamespace(context=context, built=now)
    written = io.StringIO()
    with contextlib.redirect_stderr(written):
        apply_changed(cast(Any, parts), {"steps_completed": 6, "built": then}, hparams)
    return written.getvalue()


def test_a_training_that_goes_on_says_with_what() -> None:
    changed = ["lr 0.1 → 0.01", "depth 1 → 2"]
    line = said_on_going_on(changed, None, None)
    assert line.startswith(
        "training goes on at batch 6 with other hyperparameters: lr 0.1 → 0.01, depth 1 → 2. "
        "Optimizers and schedulers stay as the checkpoint has them"
    )
    assert line.endswith("does not say how they were made\n")
    assert said_on_going_on([], None, None) == ""
    assert said_on_going_on(changed, None, None, is_chief=False) == ""


class Tabled(schedulers.StepLR):
    """A scheduler made with a table."""

    def __init__(self, optimizer: Any, **table: float) -> None:
        self.table = table
        super().__init__(optimizer, step_size=2, gamma=0.5)


@pytest.mark.parametrize(
    ("made", "expected"),
    [({"a": 1, "b": 2}, {"a": 7}), ({"a": 1, "b": 3}, {"a": 1, "b": 3}), ({"c": 1}, {"c": 1})],
)
def test_a_table_that_is_made_otherwise_is_taken_and_else_stays_as_saved(
    made: dict[str, float], expected: dict[str, float]
) -> None:
    before = Trained(sgd(), lambda each: Tabled(each, a=1, b=2))
    assert isinstance(before.scheduler, Tabled)
    before.scheduler.table = {"a": 7}
    later = before.continued_with(sgd(), lambda each: Tabled(each, **made))
    assert isinstance(later.scheduler, Tabled)
    assert later.scheduler.table == expected


class Stateless(schedulers.StepLR):
    """A scheduler that saves no dict."""

    def state_dict(self) -> Any:
        return None

    def load_state_dict(self, state_dict: Any) -> None:
        pass


def test_a_scheduler_without_a_state_stays_as_it_is() -> None:
    before = Trained(sgd(), lambda each: Stateless(each, step_size=2))
    later = before.continued_with(sgd(), lambda each: Stateless(each, step_size=3))
    assert later.said == []
    then = Trained(sgd(), lambda each: schedulers.StepLR(each, step_size=2))
    assert then.continued_with(sgd(), lambda each: Stateless(each, step_size=3)).said == []
