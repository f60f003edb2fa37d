"""Waiting for the end of an experiment: what is returned, and what is raised instead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Experiment, Follower, follow
from det_jupyter.client.follow import fetch, follow_until
from det_jupyter.contract.messages import (
    ClusterView,
    ExperimentView,
    FeedItem,
    HangReport,
    RankStall,
    State,
)
from det_jupyter.errors import Conflict, MasterUnreachable, NotFound, RankFailed, WaitTimeout
from det_jupyter.view.live import LiveExperiment
from tests.unit.view.view_samples import allocation, checkpoint, curve, experiment, failure, trial


class Master:
    """Has one experiment, which may change while it is followed."""

    def __init__(self, *views: ExperimentView, unreachable: int = 0) -> None:
        self.views = list(views)
        self.unreachable = unreachable
        self.max_points: list[int] = []
        self.is_silent = threading.Event()

    def experiment(self, number: int) -> ExperimentView:
        if self.unreachable:
            self.unreachable -= 1
            raise MasterUnreachable("it restarts")
        return self.views[0]

    def curves(self, number: int, *, max_points: int) -> list[Any]:
        self.max_points.append(max_points)
        return [curve("validation", "error", [0.5])]

    def checkpoints(self, number: int) -> list[Any]:
        return [checkpoint(10, 0.5)]

    def cluster(self, **asked: Any) -> ClusterView:
        return ClusterView(pools=[], queue=[], num_waiting=0, at=1.0)

    def feed(self, number: int, *, after: int) -> Generator[FeedItem | None, None, None]:
        while len(self.views) > 1:
            del self.views[0]
            data = self.views[0].model_dump(mode="json")
            yield FeedItem(seq=after + 1, at=1.0, kind="experiment", experiment_id=7, data=data)
        while not self.is_silent.wait(0.001):
            yield None


def over(state: State = State.COMPLETED, **changes: Any) -> ExperimentView:
    return experiment(trial(state=state, allocation=None), state=state, ended_at=2e9, **changes)


class Gone(Master):
    """Has no experiment."""

    def experiment(self, number: int) -> ExperimentView:
        raise NotFound("there is no experiment 7")


def handle_on(master: Master) -> Experiment:
    return Experiment(cast(Client, master), 7)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_AGAIN_S", 0.0)
    monkeypatch.setattr(follow, "_TICK_S", 0.005)


@pytest.mark.parametrize("state", [State.COMPLETED, State.CANCELED])
@pytest.mark.parametrize("before", [[], [experiment(trial())]])
def test_the_state_at_the_end_is_returned(state: State, before: list[ExperimentView]) -> None:
    master = Master(*before, over(state), unreachable=2)
    assert handle_on(master).wait() is state


def test_a_copy_has_the_curves_and_checkpoints_of_the_moment() -> None:
    master = Master(experiment(trial(), last_seq=40))
    live = fetch(cast(Client, master), 7)
    assert live.seq == 40
    assert [each.values for each in live.curves.values()] == [[0.5]]
    assert list(live.checkpoints) == ["uuid-10"]
    assert master.max_points == [4000], "half of what a copy of one trial may hold"


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


def test_a_time_that_is_over_ends_the_wait_and_the_thread() -> None:
    master = Master(experiment(trial()))
    seen: list[LiveExperiment] = []
    follow_until(cast(Client, master), 7, 0.02, on_tick=seen.append)
    assert seen
    for thread in threading.enumerate():
        if thread.name == "det-follow-7":
            thread.join()


def test_it_is_waited_only_until_it_is_enough() -> None:
    master = Master(experiment(trial()))
    follow_until(cast(Client, master), 7, is_enough=lambda view: view.state is State.ACTIVE)


def test_an_experiment_that_is_gone_is_told_to_who_waits() -> None:
    with pytest.raises(NotFound, match="there is no experiment 7"):
        handle_on(Gone()).wait()


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_follower_that_ends_too_early_says_so(is_gone: bool) -> None:
    told: list[Exception | None] = []
    master = Gone() if is_gone else Master(experiment(trial()), over())
    follower = Follower(
        cast(Client, master), 7, lambda live: None, on_error=lambda: told.append(follower.error)
    )
    follower.start().thread.join()
    assert [str(error) for error in told] == ["there is no experiment 7"] * is_gone


def test_a_follower_that_is_stopped_ends_at_the_next_sign_of_life() -> None:
    follower = Follower(cast(Client, Master(experiment(trial()))), 7, lambda live: stopped.set())
    stopped = threading.Event()
    follower.start()
    stopped.wait()
    follower.stop()
    follower.stop()
    follower.thread.join()
    assert follower.error is None


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

    with caplog.at_level(logging.ERROR, "det_jupyter.client.follow"):
        assert len(called_at_end(Master(over()), fail)) == 1
    assert "the callback at the end of experiment 7" in caplog.text
    assert "the callback is wrong" in caplog.text


def test_of_an_experiment_that_is_gone_there_is_no_call(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "det_jupyter.client.follow"):
        assert called_at_end(Gone(), lambda ended: None) == []
    assert "experiment 7 is not followed: there is no experiment 7" in caplog.text
