"""The clock is set by hours while trials run: durations stay what they were."""

from __future__ import annotations

import pytest

from det_jupyter.contract.messages import Estimate, Pause
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.events import ClockStepped
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.views.wait_reasons import WaitReasons
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    first_step,
    registered,
    running,
    saved,
    submitted,
)

HOURS_S = 3600.0
STEPS = pytest.mark.parametrize("by_s", [5 * HOURS_S, -5 * HOURS_S, 3.0])


@pytest.fixture
def world() -> World:
    world = World()
    world.now = 1_000_000.0
    world.tell(registered(), submitted(), *running(), submitted("other"))
    world.tell(first_step(at=world.now), saved(10, uuid="u"))
    return world


def step(world: World, by_s: float) -> None:
    world.now += by_s
    world.tell(ClockStepped(by_s=by_s))


def expected_end(world: World) -> Estimate:
    whys = WaitReasons(world.machine, progress={1: (50, 0.5)}, now=world.now, most=0)
    estimate = whys._facts("default").end_of("1.1.1")
    assert estimate is not None
    return estimate


@STEPS
def test_a_running_trial_ends_when_it_would_have(world: World, by_s: float) -> None:
    world.now += 100
    before = expected_end(world).at - world.now
    step(world, by_s)
    after = expected_end(world).at - world.now
    assert after == pytest.approx(before, abs=2)  # each event is a second later


@STEPS
def test_durations_are_what_they_were(world: World, by_s: float) -> None:
    allocation = world.allocation()
    assert allocation.started_at is not None
    ages = {
        "experiment": world.now - world.experiment().created_at,
        "trial": world.now - world.trial().created_at,
        "queued": world.now - world.allocation(2).queued_at,
        "checkpoint": world.now - world.machine.state.checkpoints["u"].created_at,
        "run": world.now - allocation.started_at,
    }
    step(world, by_s)
    assert {
        "experiment": world.now - 1 - world.experiment().created_at,
        "trial": world.now - 1 - world.trial().created_at,
        "queued": world.now - 1 - world.allocation(2).queued_at,
        "checkpoint": world.now - 1 - world.machine.state.checkpoints["u"].created_at,
        "run": world.now - 1 - allocation.started_at,
    } == ages
    assert world.machine.changes().checkpoints == {"u"}


@STEPS
def test_a_trial_that_was_asked_to_leave_has_the_time_that_it_had(
    world: World, by_s: float
) -> None:
    world.tell(Pause(experiment_id=1))
    facts = WaitReasons(world.machine, progress={}, now=world.now, most=0)._facts("default")
    left_s = (facts.leaves_by("1.1.1") or 0) - world.now
    step(world, by_s)
    facts = WaitReasons(world.machine, progress={}, now=world.now, most=0)._facts("default")
    assert (facts.leaves_by("1.1.1") or 0) - (world.now - 1) == pytest.approx(left_s)


@STEPS
def test_who_runs_for_longest_is_known_still(world: World, by_s: float) -> None:
    before = world.allocation(1).started_at or 0
    step(world, by_s)
    world.tell(submitted("late", slots=0))
    gangs = world.machine.queue.snapshot("default").running
    since = {name: gang.since for name, gang in gangs.items()}
    assert since["1.1.1"] == before + by_s
    assert sorted(since, key=lambda name: since[name]) == ["1.1.1", "2.2.1", "3.3.1"]
    again = Machine(MachineState.model_validate_json(world.machine.dump()))
    assert again.queue.snapshot("default").running == gangs


def test_what_is_over_keeps_its_times(world: World) -> None:
    world.tell(*completed(), exited())
    before = world.experiment().model_dump()
    step(world, HOURS_S)
    assert world.experiment().model_dump() == before
    assert world.machine.changes().experiments == {2}
