"""At which step a trial of transformers leaves, and how often its ranks exchange that."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.integrations.leaving import LeaveStep


class Clock:
    """The clock of the module, which goes on with the steps."""

    def __init__(self, step_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step, self.step_s = 0, step_s
        monkeypatch.setattr("det_jupyter.integrations.leaving.time", self)

    def monotonic(self) -> float:
        return self.step * self.step_s


def context_of(*, is_asked: bool, heard: Any = None) -> Any:
    """Return the context of a chief, or of a rank that has `heard` this of it."""
    ranks = SimpleNamespace(is_chief=heard is None, broadcast=lambda found: heard or found)
    asked = SimpleNamespace(was_asked=lambda: is_asked, agree=lambda asked: asked)
    return SimpleNamespace(distributed=ranks, preempt=asked)


def exchange(leaving: Any, clock: Clock, step: int, strategy: str = "no", **state: Any) -> bool:
    clock.step = step
    args = SimpleNamespace(logging_strategy=strategy)
    is_due: bool = leaving.exchange(args, SimpleNamespace(global_step=step, **state))
    return is_due


def test_ranks_exchange_as_often_as_steps_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for step_s, expected in ((1 / 64, [1, 3, 7, 15, 27, 39]), (1.0, [1, 2, 3, 4, 5, 6])):
        clock = Clock(step_s, monkeypatch)
        leaving = LeaveStep(context_of(is_asked=False), 0)
        due = [step for step in range(1, 40) if exchange(leaving, clock, step)]
        assert due[: len(expected)] == expected
        assert leaving.step is None


@pytest.mark.parametrize(
    ("strategy", "step_s", "leaves"),
    [
        ("steps", 1.0, 20),  # the next log, in 5 s
        ("steps", 2.0, 20),  # in 10 s
        ("steps", 2.5, 15),
        ("epoch", 1.0, sys.maxsize),  # with the epoch, whose last log is in 7.5 steps
        ("epoch", 1.25, sys.maxsize),
        ("epoch", 1.5, 15),
        ("no", 1.0, 15),
    ],
)
def test_a_trial_leaves_at_the_next_log_if_that_is_soon(
    monkeypatch: pytest.MonkeyPatch, strategy: str, step_s: float, leaves: int
) -> None:
    clock = Clock(step_s, monkeypatch)
    leaving = LeaveStep(context_of(is_asked=True), 0)
    assert exchange(leaving, clock, 15, strategy, epoch=1.3333333333, logging_steps=10)
    assert leaving.step == leaves
    assert exchange(leaving, clock, 16 + 100, strategy)  # once it is said, it stays so
    assert leaving.step == leaves


def test_a_request_on_another_computer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1.0, monkeypatch)
    context = context_of(is_asked=False)
    context.preempt.agree = lambda asked: True
    leaving = LeaveStep(context, 0)
    assert exchange(leaving, clock, 15, epoch=1.5)
    assert leaving.step == 15


def test_the_chief_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1.0, monkeypatch)
    leaving = LeaveStep(context_of(is_asked=False, heard=(4, 12)), 0)
    assert [exchange(leaving, clock, step) for step in (1, 2, 3)] == [True, False, False]
    assert leaving.step == 12
    assert exchange(leaving, clock, 4)
