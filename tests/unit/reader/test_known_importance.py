"""When a live view asks for the importance of hyperparameters."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.messages import ExperimentView, ImportanceView, SearchView, State
from det_jupyter.errors import MasterUnreachable
from det_jupyter.reader import known_importance
from det_jupyter.reader.known_importance import KnownImportance
from tests.unit.view.view_samples import experiment, trial


class Master:
    """Answers when it is let, and counts the questions."""

    def __init__(self) -> None:
        self.num_asked = 0
        self.may_answer = threading.Event()
        self.is_there = True

    def importance(self, number: int) -> ImportanceView:
        self.num_asked += 1
        if not self.is_there:
            raise MasterUnreachable("it has ended")
        may_answer = self.may_answer
        assert may_answer.wait(600)
        return ImportanceView(metric="error", num_trials=self.num_asked)


def live(*states: State, state: State = State.ACTIVE, **changes: Any) -> ExperimentView:
    trials = [trial(id=i, state=each) for i, each in enumerate(states, start=1)]
    search = SearchView(name="random", max_trials=len(states))
    return experiment(*trials, state=state, search=search, **changes)


def known(master: Master) -> KnownImportance:
    return KnownImportance(lambda: master.importance(7), lambda: None)


def joined(importance: KnownImportance) -> None:
    if importance._fetching is not None:
        importance._fetching.join()


def test_a_running_search_is_drawn_while_the_master_has_not_answered() -> None:
    master = Master()
    importance = known(master)
    importance.refresh(live(State.COMPLETED, State.ACTIVE))
    assert importance.latest is None
    importance.refresh(live(State.COMPLETED, State.COMPLETED, State.ACTIVE))  # too soon
    master.may_answer.set()
    assert importance._fetching is not None
    importance._fetching.join()
    assert importance.latest is not None
    assert master.num_asked == 1


def test_a_running_search_is_asked_for_every_few_seconds_one_question_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(known_importance, "time", SimpleNamespace(monotonic=lambda: now[0]))
    master = Master()
    importance = known(master)
    ended, runs = State.COMPLETED, State.ACTIVE
    importance.refresh(live(ended, runs, runs))
    now[0] += 60
    importance.refresh(live(ended, ended, runs))
    master.may_answer.set()
    assert importance._fetching is not None
    importance._fetching.join()
    assert master.num_asked == 1, "the first was not answered yet"
    for seconds, num_asked in ((0.0, 2), (4.9, 2), (0.2, 3)):
        now[0] += seconds
        importance.refresh(live(*[ended] * num_asked, runs))
        importance._fetching.join()
        assert master.num_asked == num_asked
    now[0] += 60
    importance.refresh(live(*[ended] * 3, runs))
    assert master.num_asked == 3, "no more have ended"


def test_of_an_ended_search_it_is_asked_for_once() -> None:
    master = Master()
    master.may_answer.set()
    importance = known(master)
    for _ in range(2):
        importance.refresh(live(State.COMPLETED, State.COMPLETED, state=State.COMPLETED))
        joined(importance)
    assert importance.latest is not None
    assert master.num_asked == 1


def test_a_new_answer_is_announced_and_not_waited_for() -> None:
    master = Master()
    told = threading.Event()
    importance = KnownImportance(lambda: master.importance(7), told.set)
    importance.refresh(live(State.COMPLETED, State.COMPLETED, state=State.COMPLETED))
    assert importance.latest is None
    assert not told.is_set()
    master.may_answer.set()
    assert told.wait(600)
    assert importance.latest is not None


def test_an_ended_search_gets_the_answer_about_all_trials_however_soon_it_has_ended() -> None:
    master = Master()
    master.may_answer.set()
    ended, is_whole = State.COMPLETED, threading.Event()

    def refresh() -> None:  # a document is made again when it is told, and at no other time
        importance.refresh(live(ended, ended, ended, state=ended))
        if importance.latest is not None and importance.latest.num_trials > 1:
            is_whole.set()

    importance = KnownImportance(lambda: master.importance(7), refresh)
    importance.refresh(live(ended, State.ACTIVE, State.ACTIVE))
    assert is_whole.wait(600)
    assert importance._fetching is not None
    importance._fetching.join()
    assert master.num_asked == 2


def test_a_search_that_was_continued_is_asked_for_again() -> None:
    master = Master()
    master.may_answer.set()
    importance = known(master)
    ended = State.COMPLETED
    for view in (
        live(ended, ended, state=ended),
        live(ended, State.ACTIVE),
        live(ended, ended, state=ended),
    ):
        importance.refresh(view)
        joined(importance)
    assert importance.latest is not None
    assert importance.latest.num_trials > 1


def test_a_view_goes_on_without_an_answer() -> None:
    master = Master()
    master.is_there = False
    importance = known(master)
    importance.refresh(live(State.COMPLETED, State.COMPLETED, state=State.COMPLETED))
    joined(importance)
    assert importance.latest is None


def test_an_experiment_of_one_trial_has_no_importance() -> None:
    master = Master()
    importance = known(master)
    importance.refresh(experiment(trial()))
    importance.refresh(live(State.COMPLETED, state=State.COMPLETED))
    assert master.num_asked == 0
