"""Waiting for the end of an experiment: what is returned, and what is raised instead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from det_jupyter.client import Experiment
from det_jupyter.client.following import follow
from det_jupyter.client.following.follow import follow_until
from det_jupyter.contract.messages import ExperimentView, HangReport, RankStall, State
from det_jupyter.errors import (
    Conflict,
    MasterStopped,
    MasterUnreachable,
    NotFound,
    RankFailed,
    WaitTimeout,
)
from det_jupyter.view import ViewState
from tests.unit.client.documents_fake import FakeDocuments, state_of
from tests.unit.view.view_samples import allocation, curve, experiment, failure, trial


class Master(FakeDocuments):
    """Has one experiment, which changes while it is followed: `views`, one after the other."""

    def __init__(self, *views: ExperimentView) -> None:
        curves = {"curves": [curve("validation", "error", [0.5]).model_dump()]}
        super().__init__(experiment=[state_of(view) for view in views], curves=[curves])
        self.views = views

    def experiment(self, number: int) -> ExperimentView:
        """Return the last view."""
        return self.views[-1]


def over(state: State = State.COMPLETED, **changes: Any) -> ExperimentView:
    """Return the view of an experiment that has ended."""
    return experiment(trial(state=state, allocation=None), state=state, ended_at=2e9, **changes)


class Gone(Master):
    """Has no experiment."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = {"experiment": [NotFound("there is no experiment 7")]}


def handle_on(master: Master) -> Experiment:
    return Experiment(master.client, 7)


@pytest.mark.parametrize("state", [State.COMPLETED, State.CANCELED])
@pytest.mark.parametrize("before", [[], [experiment(trial())]])
def test_the_state_at_the_end_is_returned(state: State, before: list[ExperimentView]) -> None:
    master = Master(*before, over(state))
    assert handle_on(master).wait() is state
    assert [document.args for document in master.documents] == [[{"experiment_id": 7}]]


@pytest.mark.parametrize(
    ("own", "place", "rank"),
    [
        (failure(), "", 1),
        (failure(traceback=""), " (at Cell In[5], line 12, in train_batch)", 1),
        (failure(traceback="", where=""), "", 1),
        (None, "", None),
    ],
)
def test_an_error_is_raised_with_the_place_and_the_traceback_of_the_first_failure(
    own: Any, place: str, rank: int | None
) -> None:
    trials = [trial(id=1), trial(id=2, failure=own), trial(id=3, failure=own and failure(rank=9))]
    view = experiment(*trials, state=State.ERROR, message="trial 2 failed", ended_at=2e9)
    with pytest.raises(RankFailed) as caught:
        handle_on(Master(view)).wait()
    error = caught.value
    assert error.reason == f"trial 2 failed{place}"
    assert (error.rank, error.exit_code) == (rank, None if own is None else 1)
    assert error.remote_traceback == ("" if own is None else own.traceback)
    assert "experiment 7" in str(error)


def test_a_paused_experiment_is_not_waited_for() -> None:
    master = Master(experiment(trial()), experiment(state=State.PAUSED))
    with pytest.raises(Conflict, match=r"experiment 7 is paused; activate\(\) lets it go on"):
        handle_on(master).wait()


STALL = RankStall(rank=1, kind="still", call="time.sleep")
HANG = HangReport(since=100.0, at=106.0, ranks=[STALL])
HANGING = trial(allocation=allocation().model_copy(update={"hang": HANG}))


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (trial(), "experiment 7 is running after 0 s and goes on"),
        (HANGING, r"experiment 7 is .* after 0 s and hangs: trial 1: rank 1 has been in `time\.s"),
    ],
)
def test_what_takes_too_long_goes_on_or_hangs(own: Any, words: str) -> None:
    with pytest.raises(WaitTimeout, match=words):
        handle_on(Master(experiment(own))).wait(timeout=0.0)


def test_a_time_that_is_over_ends_the_wait() -> None:
    seen: list[ViewState] = []
    follow_until(Master(experiment(trial())).client, 7, 0.02, on_tick=seen.append)
    assert [each["id"] for each in seen[:2]] == [7, 7], "also without a change"


@pytest.mark.parametrize("before", [over(), experiment(state=State.PAUSED)])
def test_a_view_of_before_it_went_on_ends_no_wait(before: ExperimentView) -> None:
    class GoesOn(Master):
        num_asked = 0

        def experiment(self, number: int) -> ExperimentView:
            self.num_asked += 1
            return experiment(trial()) if self.num_asked == 1 else super().experiment(number)

    master = GoesOn(before, experiment(trial()), over())
    assert handle_on(master).wait() is State.COMPLETED
    assert master.num_asked == 3, "only when it seems to be over, and for the answer"
    assert len(called_at_end(GoesOn(before, over()), lambda ended: None)) == 1


def test_waiting_for_an_experiment_that_is_gone_raises() -> None:
    with pytest.raises(NotFound, match="there is no experiment 7"):
        handle_on(Gone()).wait()


def called_at_end(master: Master, callback: Callable[[Experiment], object]) -> list[Experiment]:
    """Return what the callback was called with, when all threads have ended."""
    calls: list[Experiment] = []

    def call(ended: Experiment) -> None:
        calls.append(ended)
        callback(ended)

    handle = handle_on(master)
    before = set(threading.enumerate())
    handle.on_end(call)
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert all(each is handle for each in calls)
    return calls


@pytest.mark.parametrize("master", [Master(over()), Master(experiment(trial()), over())])
def test_a_callback_is_called_once_at_the_end(master: Master) -> None:
    assert len(called_at_end(master, lambda ended: None)) == 1


def test_an_error_of_a_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(ended: Experiment) -> None:
        raise ValueError("the callback is wrong")

    with caplog.at_level(logging.ERROR, "det_jupyter.client.following.follow"):
        assert len(called_at_end(Master(over()), fail)) == 1
    assert "the callback at the end of experiment 7" in caplog.text
    assert "the callback is wrong" in caplog.text


def test_of_an_experiment_that_is_gone_there_is_no_call(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "det_jupyter.client.following.follow"):
        assert called_at_end(Gone(), lambda ended: None) == []
    assert "experiment 7 is not followed: there is no experiment 7" in caplog.text


class Stopped(Master):
    """Its master was stopped, and is started again after some questions."""

    num_asked = 0

    def experiment(self, number: int) -> ExperimentView:
        self.num_asked += 1
        if self.num_asked < 10:
            raise MasterStopped("no master runs; `x` starts one")
        return super().experiment(number)


def test_where_the_master_was_stopped_waiting_ends_and_a_callback_is_still_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "_SILENT_S", 0.001)
    master = Stopped(over())
    with pytest.raises(MasterStopped, match="`x` starts one"):
        handle_on(master).wait()
    assert 1 < master.num_asked < 9
    assert len(called_at_end(master, lambda ended: None)) == 1


@pytest.mark.parametrize("is_gone", [False, True])
def test_the_end_is_noticed_without_a_reader(
    monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    class WithoutReader(Master):
        num_asked = 0

        def experiment(self, number: int) -> ExperimentView:
            self.num_asked += 1
            if is_gone and self.num_asked == 1:
                raise MasterUnreachable("it is restarted")
            return super().experiment(number)

    monkeypatch.setattr(follow, "_SILENT_S", 0.01)
    master = WithoutReader(over())
    master.versions = {"experiment": [state_of(experiment(trial()))]}
    assert handle_on(master).wait() is State.COMPLETED
