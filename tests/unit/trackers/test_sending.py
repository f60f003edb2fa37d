"""The order in which a process sends, and what one experiment's problem means for the others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.contract.messages import TrackerWork
from det_jupyter.errors import NotFound
from det_jupyter.trackers import __main__ as program
from det_jupyter.trackers.service import Refused, Source, Unreachable


class Works(Source):
    """A master with these experiments behind, which then replaces the process."""

    def __init__(self, *numbers: int) -> None:
        self.left = [list(numbers)]
        self.problems: dict[int, str] = {}
        self.failures: list[str] = []

    def work(self, group: str) -> list[TrackerWork]:
        if not self.left:
            raise NotFound("replaced")
        return [
            TrackerWork(id=number, experiment_id=number, key="k", seq=0, runs={})
            for number in self.left.pop()
        ]

    def report(self, work: TrackerWork, problem: str) -> None:
        self.problems[work.id] = problem

    def fail(self, group: str, problem: str) -> None:
        self.failures.append(problem)


class Tracker:
    """A tracker that has a problem with the first experiment."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem
        self.sent: list[int] = []

    def send(self, work: TrackerWork) -> None:
        if work.id == 1:
            raise self.problem
        self.sent.append(work.id)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_PERIOD_S", 0.0)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Refused("team has failed"), "team has failed"),
        (KeyError("x"), "it could not be sent (KeyError)"),
        (NotFound("there is no trial 3"), "there is no trial 3"),
    ],
)
def test_one_experiment_that_cannot_be_sent_stops_no_other(problem: Any, text: str) -> None:
    tracker, master = Tracker(problem), Works(1, 2, 3)
    with pytest.raises(NotFound):
        program.send_all(tracker, master, "group")
    assert (tracker.sent, master.problems) == ([2, 3], {1: text})


def test_a_tracker_that_cannot_be_reached_is_reported_once_and_is_not_asked_again() -> None:
    tracker, master = Tracker(Unreachable("down")), Works(1, 2)
    program.send_all(tracker, master, "group")
    assert (tracker.sent, master.problems, master.failures) == ([], {}, ["down"])


def test_an_experiment_whose_code_is_not_stored_any_more_is_sent_without_it() -> None:
    class Master:
        def code(self, experiment_id: int) -> dict[str, str]:
            raise NotFound("it is not stored")

    assert Source(cast("Any", Master()), "here").code(7) == {}
