"""Experiments that are over are archived, deleted and thinned out; checkpoints are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Archive,
    Cancel,
    Delete,
    DropCheckpoints,
    Kill,
    Pause,
    SetRetention,
    State,
    Unarchive,
)
from det_jupyter.contract.run.journal import CheckpointDeleted
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.commands import DeleteCheckpoints, DeleteExperiment
from det_jupyter.master.machine.model.events import (
    CheckpointsDeleted,
    Event,
    ExperimentDeleted,
    RecordArrived,
)
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.machine.rules.retention import pending_deletions
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    failed,
    registered,
    running,
    saved,
    submitted,
    validated,
)

KEEP_ALL = {"save_experiment_best": 0, "save_trial_best": 9, "save_trial_latest": 9}
FOUR: list[Event] = [
    saved(10), validated(10, 0.1), saved(20), validated(20, 0.2),
    saved(30), validated(30, 0.3), saved(40), validated(40, 0.4),
]  # fmt: skip


def world_with(*events: Event, **changes: Any) -> World:
    """Return a machine with a running trial, and handle these events."""
    world = World()
    world.tell(registered(), submitted(**changes), *running(), *events)
    return world


def world_after(*events: Event, **changes: Any) -> World:
    """Return a machine whose only experiment had these events, and completed."""
    return world_with(*events, *completed(), exited(), **changes)


def retained(
    experiment_best: int, trial_best: int, trial_latest: int, experiment_id: int = 1
) -> SetRetention:
    return SetRetention(
        experiment_id=experiment_id,
        save_experiment_best=experiment_best,
        save_trial_best=trial_best,
        save_trial_latest=trial_latest,
    )


def removal(
    world: World, *steps: int, location: str | None = None, globs: Sequence[str] = ()
) -> DeleteCheckpoints:
    return DeleteCheckpoints(
        experiment_id=1,
        location=location,
        paths={f"ckpt{step}": f"/checkpoints/ckpt{step}" for step in steps},
        globs=tuple(globs),
        cause=world.machine.state.seq,
    )


def restarted(world: World) -> World:
    """Return a world whose machine was restored from its dump."""
    again = World()
    again.machine = Machine(MachineState.model_validate_json(world.machine.dump()))
    again.now = world.now
    return again


# Checkpoints that are deleted on request


def deleted_by_rank(uuid: str) -> RecordArrived:
    record = CheckpointDeleted(at=60.0, uuid=uuid)
    return RecordArrived(allocation_id="1.1.1", rank=0, record=record)


def test_a_trial_does_not_begin_with_a_checkpoint_that_its_own_code_has_deleted() -> None:
    world = world_with(*FOUR, deleted_by_rank("ckpt40"), deleted_by_rank("ckpt10"))
    assert world.trial().checkpoints == ["ckpt20", "ckpt30"]
    latest = world.trial().latest_checkpoint
    assert latest is not None
    assert latest.uuid == "ckpt30"
    assert world.machine.state.checkpoints["ckpt40"].state == "DELETED"
    world.tell(deleted_by_rank("of another program"))  # and is none of ours


@pytest.mark.parametrize(
    ("is_remote", "location"), [(True, None), (True, "/shared"), (False, None)]
)
def test_checkpoint_whose_copy_elsewhere_was_deleted_is_deleted_here_too(
    is_remote: bool, location: str | None
) -> None:
    storage: dict[str, Any] = (
        {} if location is None else {"checkpoint_storage": {"host_path": location}}
    )
    world = World()
    agent = registered().model_copy(update={"is_remote": is_remote})
    world.tell(agent, submitted(**storage), *running(), *FOUR)
    commands = world.tell(deleted_by_rank("ckpt10"))
    assert commands == ([removal(world, 10)] if is_remote and location is None else [])
    assert world.machine.state.checkpoints["ckpt10"].state == "DELETED"


def test_checkpoint_whose_copy_a_rank_has_deleted_is_deleted_in_its_bucket() -> None:
    world = World()
    storage = {"type": "s3", "bucket": "models"}
    world.tell(registered(), submitted(checkpoint_storage=storage), *running(), *FOUR)
    (deletion,) = world.tell(deleted_by_rank("ckpt10"))
    assert isinstance(deletion, DeleteCheckpoints)
    assert (deletion.location, list(deletion.paths)) == ("s3://models", ["ckpt10"])


def test_unwanted_checkpoints_go_at_once_and_their_files_afterwards() -> None:
    world = world_after(*FOUR, checkpoint_storage=KEEP_ALL)
    assert world.tell(DropCheckpoints(uuids=["ckpt40", "ckpt20"])) == [removal(world, 20, 40)]
    assert world.trial().checkpoints == ["ckpt10", "ckpt30"]
    with pytest.raises(Conflict, match="no checkpoint ckpt20, or it is deleted already"):
        world.tell(DropCheckpoints(uuids=["ckpt20", "ckpt10"]))
    assert world.trial().checkpoints == ["ckpt10", "ckpt30"]


def test_of_unwanted_files_the_checkpoint_stays_and_no_trial_begins_with_it() -> None:
    world = world_after(*FOUR, checkpoint_storage=KEEP_ALL)
    unwanted = DropCheckpoints(uuids=["ckpt40"], globs=["*.pt"])
    assert world.tell(unwanted) == [removal(world, 40, globs=["*.pt"])]
    assert world.trial().checkpoints == ["ckpt10", "ckpt20", "ckpt30"]
    again = pending_deletions(restarted(world).machine.state)
    assert again == [removal(world, 40, globs=["*.pt"])]
    with pytest.raises(Conflict, match="files of checkpoint ckpt40 are being deleted; wait until"):
        world.tell(DropCheckpoints(uuids=["ckpt40"]))
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=[], left_bytes={"ckpt40": 7, "other": 1}))
    checkpoint = world.machine.state.checkpoints["ckpt40"]
    assert (checkpoint.state, checkpoint.size_bytes) == ("PARTIALLY_DELETED", 7)
    assert world.machine.changes().checkpoints == {"ckpt40"}
    assert pending_deletions(restarted(world).machine.state) == []
    other = submitted()
    other.config["searcher"]["source_checkpoint_uuid"] = "ckpt40"
    with pytest.raises(ConfigError, match="there is no checkpoint 'ckpt40'"):
        world.tell(other)
    assert world.tell(retained(1, 1, 1))[-1] == removal(world, 20)  # no policy counts it


def test_what_is_left_of_a_checkpoint_can_be_deleted_too() -> None:
    world = world_after(*FOUR, checkpoint_storage=KEEP_ALL)
    world.tell(DropCheckpoints(uuids=["ckpt40"], globs=["*.pt"]))
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=[], left_bytes={"ckpt40": 7}))
    commands = world.tell(DropCheckpoints(uuids=["ckpt40", "ckpt10"]))
    assert commands == [removal(world, 10), removal(world, 40, globs=["**"])]
    assert pending_deletions(restarted(world).machine.state) == commands
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=["ckpt40", "ckpt10"]))
    assert world.machine.state.checkpoints["ckpt40"].state == "DELETED"
    assert pending_deletions(world.machine.state) == []
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=[], left_bytes={"ckpt40": 7}))
    assert world.machine.state.checkpoints["ckpt40"].state == "DELETED"


def test_a_checkpoint_in_use_is_not_deleted() -> None:
    world = world_with(*FOUR)
    with pytest.raises(Conflict, match=r"ckpt40 is in use: experiment 1, which is not over"):
        world.tell(DropCheckpoints(uuids=["ckpt10", "ckpt40"]))
    assert len(world.trial().checkpoints) == 4


# Archive


def test_what_is_over_can_be_put_away_and_taken_out_again() -> None:
    world = world_after()
    assert world.tell(Archive(experiment_id=1)) == []
    assert world.experiment().is_archived
    world.tell(Unarchive(experiment_id=1))
    assert not world.experiment().is_archived


@pytest.mark.parametrize(
    ("is_archived", "message"),
    [(True, "experiment 1 is already archived"), (False, "experiment 1 is not archived")],
)
def test_what_is_put_away_already_cannot_be_again(is_archived: bool, message: str) -> None:
    world = world_after()
    if is_archived:
        world.tell(Archive(experiment_id=1))
    with pytest.raises(Conflict) as caught:
        world.tell((Archive if is_archived else Unarchive)(experiment_id=1))
    assert str(caught.value) == message


def test_what_is_not_over_cannot_be_put_away() -> None:
    with pytest.raises(Conflict, match="has not ended: it is active"):
        world_with().tell(Archive(experiment_id=1))


def test_an_archived_experiment_cannot_be_forked() -> None:
    world = world_after()
    fork = submitted().model_copy(update={"parent_id": 1})
    world.tell(fork)
    assert world.experiment(2).parent_id == 1
    world.tell(Archive(experiment_id=1))
    with pytest.raises(Conflict, match="experiment 1 is archived and cannot be forked"):
        world.tell(fork)


# Delete


def test_an_experiment_that_is_deleted_is_forgotten_when_its_files_are_gone() -> None:
    world = world_after(saved(10), saved(20))
    commands = world.tell(Delete(experiment_id=1))
    assert world.experiment().state is State.DELETING
    assert commands == [
        DeleteExperiment(
            experiment_id=1,
            trial_ids=(1,),
            location=None,
            paths={f"ckpt{step}": f"/checkpoints/ckpt{step}" for step in (10, 20)},
            cause=world.machine.state.seq,
        )
    ]
    world.tell(ExperimentDeleted(experiment_id=1))
    state = world.machine.state
    assert (state.experiments, state.trials, state.checkpoints) == ({}, {}, {})
    with pytest.raises(NotFound):
        world.tell(Delete(experiment_id=1))
    world.tell(submitted())
    assert set(state.experiments) == {2}  # numbers are never reused


def test_to_delete_twice_is_to_delete_once() -> None:
    world = world_after()
    world.tell(Delete(experiment_id=1))
    assert world.tell(Delete(experiment_id=1)) == []


def test_a_deletion_that_failed_says_why_and_can_be_tried_again() -> None:
    world = world_after(saved(10))
    first = world.tell(Delete(experiment_id=1))
    world.tell(ExperimentDeleted(experiment_id=1, error="cannot remove /x: Read-only"))
    assert world.experiment().state is State.DELETE_FAILED
    assert world.experiment().message == "cannot remove /x: Read-only"
    (again,) = world.tell(Delete(experiment_id=1))
    assert world.experiment().state is State.DELETING
    assert world.experiment().message == ""
    assert isinstance(again, DeleteExperiment)
    assert isinstance(first[0], DeleteExperiment)
    assert again.paths == first[0].paths


@pytest.mark.parametrize("state", ["ACTIVE", "PAUSING"])
def test_what_is_not_over_cannot_be_deleted(state: str) -> None:
    world = world_with(*([Pause(experiment_id=1)] if state == "PAUSING" else []))
    refusal = f"experiment 1 is {state.lower()} and cannot be deleted; cancel"
    with pytest.raises(Conflict, match=refusal):
        world.tell(Delete(experiment_id=1))


@pytest.mark.parametrize("how", ["source_trial_id", "source_checkpoint_uuid", "continues"])
def test_what_another_experiment_started_from_cannot_be_deleted_until_that_is_over(
    how: str,
) -> None:
    world = world_after(saved(10))
    other = submitted()
    if how == "continues":
        other = other.model_copy(update={"continues": 1})
    else:
        other.config["searcher"][how] = {"source_trial_id": 1}.get(how, "ckpt10")
    world.tell(other)
    with pytest.raises(Conflict, match="cannot delete experiment 1: experiment 2 started from"):
        world.tell(Delete(experiment_id=1))
    world.tell(Kill(experiment_id=2), exited("2.2.1"))
    world.tell(Delete(experiment_id=1))
    assert world.experiment().state is State.DELETING


def test_a_submission_is_found_again_by_its_key_until_its_experiment_is_deleted() -> None:
    world = world_after(saved(10))
    world.tell(*(submitted().model_copy(update={"key": key}) for key in ("a", "", "b")))
    for machine in (world.machine, restarted(world).machine):
        assert [machine.indexes.find_submitted(key) for key in ("a", "b", "c", "")] == [
            2,
            4,
            None,
            None,
        ]
    world.tell(Cancel(experiment_id=4), Delete(experiment_id=4))
    world.tell(ExperimentDeleted(experiment_id=4))
    assert world.machine.indexes.find_submitted("b") is None


def test_a_fork_that_needs_no_checkpoint_does_not_keep_its_parent() -> None:
    world = world_after(saved(10))
    world.tell(submitted().model_copy(update={"parent_id": 1}))
    world.tell(Delete(experiment_id=1), ExperimentDeleted(experiment_id=1))
    assert set(world.machine.state.experiments) == {2}


def test_a_deletion_goes_on_after_a_restart() -> None:
    world = world_after(saved(10))
    (command,) = world.tell(Delete(experiment_id=1))
    assert pending_deletions(restarted(world).machine.state) == [command]
    world.tell(ExperimentDeleted(experiment_id=1))
    assert pending_deletions(world.machine.state) == []


def test_late_news_of_a_deletion_changes_nothing() -> None:
    world = world_after()
    assert world.tell(ExperimentDeleted(experiment_id=1)) == []
    assert world.tell(ExperimentDeleted(experiment_id=9)) == []
    assert world.experiment().state is State.COMPLETED


# Checkpoints


def test_when_an_experiment_ends_its_policy_decides_what_is_kept() -> None:
    world = world_with(*FOUR, *completed())
    commands = world.tell(exited())
    assert commands[-1] == removal(world, 20, 30)
    assert world.trial().checkpoints == ["ckpt10", "ckpt40"]
    checkpoints = world.machine.state.checkpoints
    assert [c.state for c in checkpoints.values()] == ["COMPLETED"] * 4  # files are still there
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=["ckpt20", "ckpt30"]))
    assert world.machine.changes().checkpoints == {"ckpt20", "ckpt30"}
    states = {uuid: c.state for uuid, c in checkpoints.items()}
    assert states == {
        "ckpt10": "COMPLETED", "ckpt20": "DELETED", "ckpt30": "DELETED", "ckpt40": "COMPLETED",
    }  # fmt: skip


@pytest.mark.parametrize("end", [Cancel, Kill])
def test_the_policy_decides_however_the_experiment_ended(end: Any) -> None:
    world = world_with(*FOUR, end(experiment_id=1))
    assert world.tell(exited())[-1] == removal(world, 20, 30)


def test_while_an_experiment_runs_everything_is_kept() -> None:
    world = world_with(*FOUR)
    assert world.trial().checkpoints == ["ckpt10", "ckpt20", "ckpt30", "ckpt40"]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [((0, 0, 0), (10, 20, 30, 40)), ((0, 0, 1), (10, 20, 30)), ((1, 0, 1), (20, 30))],
)
def test_an_edited_policy_is_carried_out_with_its_new_numbers(
    policy: tuple[int, int, int], gone: tuple[int, ...]
) -> None:
    world = world_after(*FOUR, checkpoint_storage=KEEP_ALL)
    assert world.tell(retained(*policy)) == [removal(world, *gone)]
    storage = world.experiment().config["checkpoint_storage"]
    assert storage["save_trial_latest"] == policy[2]
    assert world.experiment().origins["checkpoint_storage.save_trial_latest"] == "you"
    left = [step for step in (10, 20, 30, 40) if step not in gone]
    assert world.trial().checkpoints == [f"ckpt{step}" for step in left]
    latest = world.trial().latest_checkpoint
    assert (latest.uuid if latest else None) == (f"ckpt{left[-1]}" if left else None)


def test_where_a_trial_that_is_not_over_goes_on_from_is_kept() -> None:
    world = world_with(*FOUR)
    assert world.tell(retained(0, 0, 0)) == [removal(world, 10, 20, 30)]
    assert world.trial().checkpoints == ["ckpt40"]


def test_where_the_present_run_began_is_kept() -> None:
    world = world_with(saved(10), failed(), exited(codes={0: 1, 1: -9}, first_failed=0))
    world.tell(*running("1.1.2"), saved(20, allocation_id="1.1.2"))
    world.tell(saved(30, allocation_id="1.1.2"))
    assert world.tell(retained(0, 0, 0)) == [removal(world, 20)]


def test_what_another_experiment_began_with_is_kept_until_that_is_over() -> None:
    world = world_after(*FOUR, checkpoint_storage=KEEP_ALL)
    other = submitted()
    other.config["searcher"]["source_checkpoint_uuid"] = "ckpt20"
    world.tell(other)
    assert world.tell(retained(0, 0, 0)) == [removal(world, 10, 30, 40)]
    world.tell(Kill(experiment_id=2))
    commands = world.tell(exited("2.2.1"))
    assert removal(world, 20) in commands


@pytest.mark.parametrize("state", [State.CANCELED, State.ERROR])
def test_a_checkpoint_is_let_go_after_its_use_however_its_own_experiment_ended(
    state: State,
) -> None:
    world = world_with(saved(10), saved(20), checkpoint_storage=KEEP_ALL)
    if state is State.ERROR:
        world.tell(failed(final=True), exited(codes={0: 1, 1: -9}, first_failed=0))
    else:
        world.tell(Kill(experiment_id=1), exited())
    assert world.experiment().state is state
    other = submitted()
    other.config["searcher"]["source_checkpoint_uuid"] = "ckpt10"
    world.tell(other)
    world.tell(retained(0, 0, 0))
    assert world.trial().checkpoints == ["ckpt10"]  # in use
    world.tell(Kill(experiment_id=2))
    commands = world.tell(exited("2.2.1"))
    assert removal(world, 10) in commands


def test_nothing_begins_with_a_checkpoint_that_is_being_deleted() -> None:
    world = world_after(*FOUR)
    other = submitted()
    other.config["searcher"]["source_checkpoint_uuid"] = "ckpt20"
    with pytest.raises(ConfigError, match="there is no checkpoint 'ckpt20'"):
        world.tell(other)


def test_checkpoints_are_deleted_after_a_restart_if_the_command_was_lost() -> None:
    world = world_after(*FOUR)
    found = pending_deletions(restarted(world).machine.state)
    assert found == [removal(world, 20, 30)]
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=["ckpt20"]))
    assert pending_deletions(world.machine.state) == [removal(world, 30)]
    world.tell(CheckpointsDeleted(experiment_id=1, uuids=["ckpt30", "nothing"]))
    assert pending_deletions(world.machine.state) == []


def test_the_command_names_the_folder_that_the_checkpoints_are_in() -> None:
    storage = {"type": "shared_fs", "host_path": "/data", "storage_path": "runs"}
    world = world_with(*FOUR, *completed(), checkpoint_storage=storage)
    assert world.tell(exited())[-1] == removal(world, 20, 30, location="/data/runs")


def test_a_policy_cannot_be_edited_while_everything_is_deleted() -> None:
    world = world_after(saved(10))
    world.tell(Delete(experiment_id=1))
    with pytest.raises(Conflict, match="experiment 1 is being deleted"):
        world.tell(retained(1, 1, 1))


@pytest.mark.parametrize(
    ("others", "named", "end"),
    [(1, "experiment 2", "it has"), (2, "experiments 2, 3", "they have")],
)
def test_those_that_need_an_experiment_are_named(others: int, named: str, end: str) -> None:
    world = World()
    world.tell(registered(), submitted(), *running(), saved(10))
    world.tell(*completed(), exited(codes={0: 0, 1: 0}))
    for _ in range(others):
        other = submitted()
        other.config["searcher"]["source_trial_id"] = 1
        world.tell(other)
    said = f"{named} started from a checkpoint of it and may need it again; wait until {end} ended"
    with pytest.raises(Conflict, match=said):
        world.tell(Delete(experiment_id=1))


def test_a_checkpoint_that_is_unknown_is_not_dropped() -> None:
    world = World()
    world.tell(registered(), submitted(), *running(), saved(10))
    with pytest.raises(Conflict) as caught:
        world.tell(DropCheckpoints(uuids=["nope", "ckpt10"]))
    assert "there is no checkpoint nope, or it is deleted already" in str(caught.value)
    assert "checkpoint ckpt10 is in use: experiment 1, which is not over" in str(caught.value)
