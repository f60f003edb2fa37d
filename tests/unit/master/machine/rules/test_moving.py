"""Checkpoints that are moved to another storage, and copies that are found again."""

from __future__ import annotations

import pytest

from det_jupyter.contract.messages import (
    Delete,
    DropCheckpoints,
    MoveCheckpoints,
    Pause,
    SetRetention,
)
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.model.commands import DeleteCheckpoints, DeleteExperiment
from det_jupyter.master.machine.model.events import CheckpointsDeleted, Event
from det_jupyter.master.machine.rules.retention import pending_deletions
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    registered,
    running,
    saved,
    submitted,
)

BUCKET = "s3://models/team"
KEEP_ALL = {"save_trial_best": 9, "save_trial_latest": 9}


def world_after(*events: Event) -> World:
    """Return a machine whose experiment has completed with checkpoints at batches 10 and 20."""
    world = World()
    world.tell(registered(), submitted(checkpoint_storage=KEEP_ALL), *running())
    world.tell(saved(10), saved(20), *completed(), exited(), *events)
    return world


def move(*uuids: str) -> MoveCheckpoints:
    return MoveCheckpoints(uuids=list(uuids), location=BUCKET)


def test_a_moved_checkpoint_is_used_where_it_is_now_and_deleted_where_it_was() -> None:
    world = world_after()
    commands = world.tell(move("ckpt20"))
    moved = world.machine.state.checkpoints["ckpt20"]
    assert (moved.path, moved.state) == (f"{BUCKET}/ckpt20", "COMPLETED")
    latest = world.trial().latest_checkpoint
    assert latest is not None
    assert latest.path == moved.path
    deletion = DeleteCheckpoints(
        experiment_id=1,
        location="/checkpoints",
        paths={"ckpt20": "/checkpoints/ckpt20"},
        is_former=True,
        copies={"ckpt20": f"{BUCKET}/ckpt20"},
        cause=world.machine.state.seq,
    )
    assert commands == [deletion]
    assert pending_deletions(world.machine.state) == [deletion]  # as after a restart
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=[], former=["ckpt20"]))
    assert pending_deletions(world.machine.state) == []
    assert moved.state == "COMPLETED"
    assert world.tell(move("ckpt20")) == []  # it is there already


def test_it_is_deleted_in_its_present_storage() -> None:
    world = world_after(move("ckpt20"))
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=[], former=["ckpt20"]))
    commands = world.tell(DropCheckpoints(uuids=["ckpt10", "ckpt20"]))
    found = {each.location: each.paths for each in commands if isinstance(each, DeleteCheckpoints)}
    assert found == {
        None: {"ckpt10": "/checkpoints/ckpt10"},
        BUCKET: {"ckpt20": f"{BUCKET}/ckpt20"},
    }


def test_it_is_deleted_there_with_its_experiment() -> None:
    world = world_after(move("ckpt20"))
    (command,) = world.tell(Delete(experiment_id=1))
    assert isinstance(command, DeleteExperiment)
    assert command.paths["ckpt20"] == f"{BUCKET}/ckpt20"
    assert command.elsewhere == {"ckpt20": BUCKET}


def test_none_is_moved_if_one_may_be_read_or_is_not_there() -> None:
    world = World()
    world.tell(registered(), submitted(), *running(), saved(10), Pause(experiment_id=1))
    with pytest.raises(Conflict) as caught:
        world.tell(move("ckpt10", "nothing"))
    assert str(caught.value) == (
        "experiment 1 of checkpoint ckpt10 is not over; wait until it has ended; there is no "
        "checkpoint nothing; checkpoint ckpt10 is in use: experiment 1, which is not over, goes "
        "on from it"
    )
    world = world_after(move("ckpt10"))
    elsewhere = MoveCheckpoints(uuids=["ckpt10"], location="/other")
    with pytest.raises(Conflict, match="ckpt10 was moved, and is still to be deleted at"):
        world.tell(elsewhere)


def test_a_deleted_checkpoint_of_which_a_copy_was_found_is_listed_again() -> None:
    world = world_after(
        DropCheckpoints(uuids=["ckpt20"]), CheckpointsDeleted(experiment_id=1, uuids=["ckpt20"])
    )
    assert world.trial().checkpoints == ["ckpt10"]
    assert world.tell(move("ckpt20")) == []
    found = world.machine.state.checkpoints["ckpt20"]
    assert (found.state, found.path, found.former) == ("COMPLETED", f"{BUCKET}/ckpt20", "")
    assert world.trial().checkpoints == ["ckpt10", "ckpt20"]
    latest = world.trial().latest_checkpoint
    assert latest is not None
    assert latest.path == f"{BUCKET}/ckpt20"


def test_what_was_lost_is_not_deleted_where_it_is_found_again() -> None:
    world = world_after()
    lost = MoveCheckpoints(uuids=["ckpt20"], location=BUCKET, is_lost=True)
    assert world.tell(lost) == []
    found = world.machine.state.checkpoints["ckpt20"]
    assert (found.path, found.former) == (f"{BUCKET}/ckpt20", "")
    assert pending_deletions(world.machine.state) == []


def test_one_that_is_being_deleted_is_not_moved() -> None:
    world = world_after(DropCheckpoints(uuids=["ckpt20"]))
    with pytest.raises(Conflict, match="files of checkpoint ckpt20 are being deleted"):
        world.tell(move("ckpt20"))


def test_one_that_was_moved_and_deleted_needs_no_copy_to_be_deleted_where_it_was() -> None:
    world = world_after(move("ckpt20"), DropCheckpoints(uuids=["ckpt20"]))
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=["ckpt20"]))
    (left,) = pending_deletions(world.machine.state)
    assert isinstance(left, DeleteCheckpoints)
    assert (left.paths, left.copies) == ({"ckpt20": "/checkpoints/ckpt20"}, {})


def test_no_policy_deletes_what_a_user_has_moved() -> None:
    world = world_after(move("ckpt10"))
    none = SetRetention(
        experiment_id=1, save_experiment_best=0, save_trial_best=0, save_trial_latest=0
    )
    commands = world.tell(none)
    assert [each.paths for each in commands if isinstance(each, DeleteCheckpoints)] == [
        {"ckpt20": "/checkpoints/ckpt20"}
    ]
