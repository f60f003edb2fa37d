"""Trials wait for room on a full disk, with and without slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from det_jupyter.contract.messages import (
    Activate,
    AllocationState,
    Kill,
    Pause,
    RoomReported,
    RoomWait,
    State,
)
from det_jupyter.master.machine.model.events import RoomFound
from det_jupyter.master.machine.rules.full_disks import waits_without_slots
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import (
    World,
    exited,
    failed,
    reasons_of,
    registered,
    running,
    saved,
    submitted,
)

FULL = failed("no room on a disk", no_room=True, full_folder="/data")
ENDED = exited(codes={0: 1, 1: -9}, first_failed=0)
WAITS = "waits for room on /data and goes on when there is some"


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.tell(registered(), submitted(), *running())
    yield world
    check_machine(world.machine)


def report(wait: RoomWait | None) -> RoomReported:
    return RoomReported(allocation_id="1.1.1", at=5.0, wait=wait)


def test_ranks_that_wait_for_room_keep_their_slots_and_say_what_they_wait_for(
    world: World,
) -> None:
    world.tell(report(RoomWait(folder="/data", needs_bytes=3 * 10**8, since=4.0)))
    reason = reasons_of(world.machine).of(world.trial())
    waits = "waits for room on /data (needs about 300 MB) and goes on when there is some"
    assert (reason.cause, reason.sentence) == ("room", waits)
    assert world.waiting_for() == waits
    assert world.trial().holds_slots
    world.tell(report(None))
    assert world.waiting_for() is None


def test_run_that_a_full_disk_has_ended_is_queued_again_when_there_is_room(world: World) -> None:
    world.tell(FULL, ENDED)
    trial = world.trial()
    assert (trial.state, world.experiment().state) == (State.ACTIVE, State.ACTIVE)
    assert not trial.holds_slots
    assert reasons_of(world.machine).of(trial).sentence == WAITS
    assert waits_without_slots(trial)
    world.tell(RoomFound(trial_id=1))
    assert world.allocation().state is AllocationState.STARTING
    assert trial.room is None
    assert trial.restarts == 0
    world.tell(RoomFound(trial_id=1))  # repeated: it runs already
    assert world.allocation().run == 2
    world.tell(exited("1.1.2"))


def test_pause_between_runs_doubles_until_one_saves_a_checkpoint(world: World) -> None:
    pauses = []
    for run in range(1, 5):
        if run > 1:
            world.tell(*running(f"1.1.{run}"))
        if run == 4:
            world.tell(saved(20, allocation_id="1.1.4"))
        world.tell(
            failed("full", no_room=True, full_folder="/data", allocation_id=f"1.1.{run}"),
            exited(f"1.1.{run}", codes={0: 1, 1: -9}, first_failed=0),
        )
        room = world.trial().room
        assert room is not None
        pauses.append(room.try_at - room.since)
        world.tell(RoomFound(trial_id=1))
    assert pauses == [4.0, 8.0, 16.0, 4.0]
    world.tell(exited("1.1.5"))


def test_trial_that_a_user_has_paused_waits_for_the_user_and_not_for_room(world: World) -> None:
    world.tell(FULL, ENDED, Pause(experiment_id=1))
    assert not waits_without_slots(world.trial())
    world.tell(RoomFound(trial_id=1))
    assert world.trial().state is State.PAUSED
    assert not world.trial().holds_slots
    world.tell(Activate(experiment_id=1))
    assert world.allocation().state is AllocationState.STARTING
    world.tell(exited("1.1.2"))


def test_gang_that_cannot_save_when_it_is_paused_frees_its_slots(world: World) -> None:
    world.tell(report(RoomWait(folder="/data", since=4.0)), Pause(experiment_id=1), FULL, ENDED)
    trial = world.trial()
    assert (trial.state, trial.holds_slots, trial.room) == (State.PAUSED, False, None)
    world.tell(Activate(experiment_id=1))
    assert trial.restarts == 0
    world.tell(exited("1.1.2"))


def test_trial_that_waits_for_room_can_be_killed(world: World) -> None:
    world.tell(FULL, ENDED, Kill(experiment_id=1))
    assert world.trial().state is State.CANCELED
    assert world.trial().room is None


def test_full_disk_of_another_computer_is_named_with_its_agent() -> None:
    world = World()
    world.tell(registered(port=1), submitted(), *running(), FULL, ENDED)
    failure = world.trial().failure
    assert failure is not None
    assert failure.error == "on agent box: no room on a disk"
    assert world.waiting_for() == (
        "waits for room on /data of agent box and goes on when there is some"
    )
    world.tell(RoomFound(trial_id=1), exited("1.1.2"))
