"""Requests about experiments that are over, and about checkpoints.

archive, unarchive    an experiment that is over is hidden from lists, or shown again
delete                it is DELETING; its files are deleted (deleting.py); then it is removed from
                      the state. If files remain, it is DELETE_FAILED, and can be deleted again
continue              it continues under its number, with the trials that were not completed
retention             another number of checkpoints is kept from now on (retention.py)
drop checkpoints      chosen checkpoints, or files of them, are deleted
move checkpoints      their copies in another storage are used from now on (moving.py)
"""

from __future__ import annotations

from det_jupyter.contract.messages import (
    Archive,
    Delete,
    DropCheckpoints,
    MoveCheckpoints,
    SetRetention,
    State,
    Unarchive,
)
from det_jupyter.contract.messages.status import in_words
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.handlers.experiment_changes import check_pool
from det_jupyter.master.machine.model.events import (
    CheckpointsDeleted,
    ContinueRequested,
    ExperimentDeleted,
)
from det_jupyter.master.machine.model.lifecycle import TRANSITIONS, move
from det_jupyter.master.machine.model.state import Experiment, why_one_computer
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.continuing import reopen
from det_jupyter.master.machine.rules.moving import move_checkpoints, record_former_deleted
from det_jupyter.master.machine.rules.retention import (
    delete_checkpoints,
    delete_unneeded,
    experiment_deletion,
    find_users,
    record_deleted,
    record_partly_deleted,
)
from det_jupyter.master.machine.rules.searching import start_search


def on_archive(turn: Turn, event: Archive | Unarchive) -> None:
    """Archive or unarchive an experiment."""
    experiment = turn.state.experiment(event.experiment_id)
    name = f"experiment {experiment.id}"
    if not experiment.state.is_terminal:
        how = "end its program" if experiment.is_unmanaged else "cancel it"
        raise Conflict(
            f"{name} has not ended: it is {in_words(experiment.state)}; "
            f"{how}, or wait until it has ended"
        )
    is_archived = isinstance(event, Archive)
    if experiment.is_archived is is_archived:
        raise Conflict(f"{name} is {'already' if is_archived else 'not'} archived")
    experiment.is_archived = is_archived
    turn.touch(experiment)


def on_delete(turn: Turn, event: Delete) -> None:
    """Command the deletion of an experiment with all of its files. Idempotent."""
    experiment = turn.state.experiment(event.experiment_id)
    if experiment.state is State.DELETING:
        return
    if State.DELETING not in TRANSITIONS[experiment.state]:
        raise Conflict(
            f"experiment {experiment.id} is {in_words(experiment.state)} and cannot be deleted; "
            "cancel or kill it, and wait until it has ended"
        )
    _check_unused(turn, experiment)
    move(experiment, State.DELETING)
    experiment.message = ""
    turn.touch(experiment)
    turn.commands.append(experiment_deletion(turn.state, experiment))


def _check_unused(turn: Turn, experiment: Experiment) -> None:
    users = find_users(turn.state, turn.indexes, experiment)
    if users:
        which = ", ".join(str(user) for user in users)
        raise Conflict(
            f"cannot delete experiment {experiment.id}: experiment{'s' * (len(users) > 1)} "
            f"{which} started from a checkpoint of it and may need it again; "
            f"wait until {'they have' if len(users) > 1 else 'it has'} ended"
        )
    for uuid, version in turn.state.registered().items():
        if turn.state.checkpoints[uuid].experiment_id == experiment.id:
            raise Conflict(
                f"cannot delete experiment {experiment.id}: its checkpoint {uuid} is {version}; "
                "delete that version first, or archive the experiment instead"
            )


def on_experiment_deleted(turn: Turn, event: ExperimentDeleted) -> None:
    """Remove an experiment whose files were deleted; or store why some could not be."""
    experiment = turn.state.experiments.get(event.experiment_id)
    if experiment is None or experiment.state is not State.DELETING:
        return
    if event.error:
        move(experiment, State.DELETE_FAILED)
        experiment.message = event.error
        turn.touch(experiment)
        return
    turn.searches.discard(experiment)
    state = turn.state
    own = [uuid for uuid, c in state.checkpoints.items() if c.experiment_id == experiment.id]
    for uuid in own:
        del state.checkpoints[uuid]
    for trial_id in experiment.trial_ids:
        del state.trials[trial_id]
    del state.experiments[experiment.id]
    turn.changes.experiments.add(experiment.id)  # so that programs that follow the feed remove it


def on_continue_requested(turn: Turn, event: ContinueRequested) -> None:
    """Continue an experiment that is over."""
    experiment = turn.state.experiment(event.experiment_id)
    check_pool(
        turn.state,
        experiment.pool,
        event.settings.resources,
        why_one_computer=why_one_computer(event.settings.entrypoint),
    )
    reopen(turn, experiment, event)
    start_search(turn, experiment)


def on_set_retention(turn: Turn, event: SetRetention) -> None:
    """Change how many checkpoints are kept, and delete the excess ones."""
    experiment = turn.state.experiment(event.experiment_id)
    if experiment.state in (State.DELETING, State.DELETE_FAILED):
        raise Conflict(f"experiment {experiment.id} is being deleted, with all its checkpoints")
    numbers = event.model_dump(exclude={"kind", "experiment_id", "dry_run"})
    turn.change_section(experiment, "checkpoint_storage", numbers)
    turn.touch(experiment)
    delete_unneeded(turn, experiment)


def on_checkpoints_deleted(turn: Turn, event: CheckpointsDeleted) -> None:
    """Record which files were deleted; the checkpoints stay listed."""
    record_deleted(turn, event.uuids)
    record_partly_deleted(turn, event.left_bytes)
    record_former_deleted(turn, event.former)


def on_drop_checkpoints(turn: Turn, event: DropCheckpoints) -> None:
    """Delete checkpoints or files of them; if one is missing or in use, none is deleted."""
    delete_checkpoints(turn, event.uuids, event.globs)


def on_move_checkpoints(turn: Turn, event: MoveCheckpoints) -> None:
    """Use copies of checkpoints in another storage; if one is missing or in use, none is moved."""
    move_checkpoints(turn, event.uuids, event.location, is_lost=event.is_lost)
