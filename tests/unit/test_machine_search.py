"""Search methods that make several trials and stop some, by a method made for the test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from det_jupyter.config.experiment import Searcher
from det_jupyter.master import searching
from det_jupyter.master.events import (
    ActivateRequested,
    CancelRequested,
    KillRequested,
    PauseRequested,
)
from det_jupyter.master.machine import Machine
from det_jupyter.master.state import MachineState
from det_jupyter.searcher import Action, Create, ExitReason, SearchMethod, Shutdown, Stop
from det_jupyter.wire import AllocationState, CloseRun, KillGang, SignalGang, State
from tests.unit.machine_world import (
    World,
    ended,
    exited,
    failed,
    registered,
    running,
    submitted,
    validated,
)


class Pair:
    """Two trials; a metric above 1 stops its trial, above 10 both; below 0 it wants no more."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def start(self) -> list[Action]:
        return [Create(0), Create(1)]

    def on_validation(self, index: int, steps_completed: int, metric: float) -> list[Action]:
        if metric < 0:
            return [Shutdown()]
        if metric > 10:
            return [Stop(0), Stop(1)]
        return [Stop(index)] if metric > 1 else []

    def on_trial_exited(self, index: int, reason: ExitReason) -> list[Action]:
        self.seen = [*self.seen, f"{index} {reason}"]
        return [Shutdown()] if len(self.seen) == 2 else []

    def snapshot(self) -> dict[str, Any]:
        return {"seen": self.seen}


def make_pair(searcher: Searcher, snapshot: Mapping[str, Any]) -> SearchMethod:
    return Pair(snapshot.get("seen", []))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a machine with 2 slots and an experiment of two trials of one slot, both running."""
    monkeypatch.setattr(searching, "make_search_method", make_pair)
    world = World()
    world.tell(registered(slots=2), submitted(slots=1))
    world.tell(*running("1.1.1", ranks=1), *running("1.2.1", ranks=1))
    yield world
    world.machine.check()


PREEMPT = SignalGang(allocation_id="1.1.1", signal="preempt", timeout_s=3600.0)


def test_each_trial_has_a_seed_of_its_own(world: World) -> None:
    assert world.trial(1).seed != world.trial(2).seed


def test_a_trial_that_the_searcher_stops_leaves_and_is_completed(world: World) -> None:
    assert world.tell(validated(10, 2.0)) == [world.order(PREEMPT)]
    assert world.trial(1).state is State.STOPPING_COMPLETED
    world.tell(ended("preempted", 10))
    assert world.tell(exited(codes={0: 0})) == [world.order(CloseRun(allocation_id="1.1.1"))]
    assert world.trial(1).state is State.COMPLETED
    assert world.experiment().state is State.ACTIVE
    assert world.experiment().searcher == {"seen": ["0 completed"]}


def test_the_experiment_ends_with_its_last_trial(world: World) -> None:
    world.tell(ended("stopped"), exited(codes={0: 0}))
    assert world.experiment().state is State.ACTIVE
    world.tell(ended("completed", allocation_id="1.2.1"), exited("1.2.1", codes={0: 0}))
    assert world.experiment().searcher == {"seen": ["0 stopped", "1 completed"]}
    assert world.experiment().state is State.COMPLETED


def test_one_failed_trial_does_not_fail_the_experiment(world: World) -> None:
    world.tell(failed(final=True), exited(codes={0: 1}, first_failed=0))
    world.tell(ended("completed", allocation_id="1.2.1"), exited("1.2.1", codes={0: 0}))
    assert world.trial(1).state is State.ERROR
    assert world.experiment().state is State.COMPLETED
    assert world.experiment().message == "ValueError: no"


def test_an_experiment_fails_when_all_its_trials_have(world: World) -> None:
    for id in ("1.1.1", "1.2.1"):
        world.tell(failed(f"ValueError: {id}", final=True, allocation_id=id))
        world.tell(exited(id, codes={0: 1}, first_failed=0))
    assert world.experiment().state is State.ERROR
    assert world.experiment().message == "trial 1: ValueError: 1.1.1"


@pytest.mark.parametrize("has_left", [False, True])
def test_a_stopped_trial_is_stopped_once(world: World, has_left: bool) -> None:
    world.tell(validated(10, 2.0))
    if has_left:
        world.tell(exited(codes={0: 0}))
    assert world.tell(validated(20, 20.0, "1.2.1")) == [
        world.order(PREEMPT.model_copy(update={"allocation_id": "1.2.1"}))
    ]


def test_a_validation_on_the_way_out_is_noted_and_not_judged(world: World) -> None:
    world.tell(validated(10, 2.0))
    assert world.tell(validated(20, 20.0)) == []
    assert world.trial(1).latest_metric == 20.0
    assert world.trial(2).state is State.ACTIVE


def test_after_the_search_has_shut_down_its_trials_go_on_to_their_end(world: World) -> None:
    world.tell(validated(10, -1.0))
    assert world.experiment().state is State.STOPPING_COMPLETED
    world.tell(ended("completed"), exited(codes={0: 0}))
    assert world.experiment().state is State.STOPPING_COMPLETED
    world.tell(ended("completed", allocation_id="1.2.1"), exited("1.2.1", codes={0: 0}))
    assert world.experiment().state is State.COMPLETED


def test_a_waiting_trial_that_is_stopped_ends_at_once(world: World) -> None:
    world.tell(registered(slots=1, runs={"1.1.1": True}))
    assert world.allocation_state(2) is AllocationState.QUEUED
    assert world.tell(validated(20, 20.0)) == [world.order(PREEMPT)]
    assert world.trial(2).state is State.COMPLETED
    assert world.allocation_state(2) is AllocationState.ENDED
    world.tell(exited(codes={0: 0}))
    assert world.experiment().state is State.COMPLETED


def test_pausing_leaves_a_stopped_trial_to_its_end(world: World) -> None:
    world.tell(validated(10, 2.0))
    (order,) = world.tell(PauseRequested(experiment_id=1))
    assert order == world.order(PREEMPT.model_copy(update={"allocation_id": "1.2.1"}))
    assert world.trial(1).state is State.STOPPING_COMPLETED
    world.tell(exited(codes={0: 0}), ActivateRequested(experiment_id=1))
    assert world.trial(1).state is State.COMPLETED
    assert world.trial(2).state is State.ACTIVE


def test_a_paused_trial_s_last_validation_still_counts(world: World) -> None:
    world.tell(PauseRequested(experiment_id=1), validated(10, 2.0))
    assert world.trial(1).state is State.STOPPING_COMPLETED


def test_a_trial_that_stops_can_still_be_killed(world: World) -> None:
    world.tell(validated(10, 2.0))
    assert world.tell(KillRequested(experiment_id=1)) == [
        world.order(KillGang(allocation_id="1.1.1")),
        world.order(KillGang(allocation_id="1.2.1")),
    ]
    world.tell(exited(codes={0: -9}, killed=True))
    assert world.experiment().state is State.STOPPING_KILLED
    world.tell(exited("1.2.1", codes={0: -9}, killed=True))
    assert world.experiment().state is State.CANCELED
    assert world.experiment().searcher == {"seen": []}  # nobody asks it any more


def test_a_canceled_experiment_of_failed_trials_is_canceled(world: World) -> None:
    world.tell(failed(final=True), exited(codes={0: 1}, first_failed=0))
    world.tell(CancelRequested(experiment_id=1), exited("1.2.1", codes={0: 1}, first_failed=0))
    assert world.trial(1).state is State.ERROR
    assert world.trial(2).state is State.CANCELED
    assert world.experiment().state is State.CANCELED


def test_a_search_goes_on_after_a_restart_of_the_master(world: World) -> None:
    world.tell(ended("completed"), exited(codes={0: 0}))
    text = world.machine.state.model_dump_json()
    world.machine = Machine(MachineState.model_validate_json(text))
    world.tell(ended("completed", allocation_id="1.2.1"), exited("1.2.1", codes={0: 0}))
    assert world.experiment().state is State.COMPLETED
