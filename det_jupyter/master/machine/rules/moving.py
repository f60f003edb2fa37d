"""Checkpoints that are moved to another storage.

The user's program copies the files (client/copying.py). Then one event makes the copies the
checkpoints: `path` is the new one from now on, in all that refers to them, and `former` the old
one, until the files there are deleted. A killed program leaves a copy, which another move uses.
Of a checkpoint that is deleted here, a copy was found (client/imports/adopting.py): it is listed
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from det_jupyter.contract.messages import CheckpointRef, CheckpointView
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.retention import find_uses, former_deletions


def move_checkpoints(
    turn: Turn, uuids: Sequence[str], location: str, *, is_lost: bool = False
) -> None:
    """Record that checkpoints are in another storage; those that are there already are left out.

    Args:
        is_lost: They are not where they were, so nothing is to be deleted there.

    Raises:
        Conflict: One is not known, being changed, or in use; none is moved.
    """
    moved = {
        uuid: f"{location.rstrip('/')}/{uuid}"
        for uuid in uuids
        if not _is_at(turn.state.checkpoints.get(uuid), location)
    }
    problems = [
        problem
        for uuid in moved
        if (problem := _find_problem(turn, uuid, turn.state.checkpoints.get(uuid)))
    ]
    if problems := problems + find_uses(turn, moved.keys()):
        raise Conflict("; ".join(problems))
    for uuid, path in moved.items():
        checkpoint = turn.state.checkpoints[uuid]
        before, checkpoint.path, checkpoint.is_placed = checkpoint.path, path, True
        if checkpoint.state == "DELETED":
            _list_again(turn, checkpoint)
        elif not is_lost:
            checkpoint.former = before
            turn.commands.extend(former_deletions(turn.state, [checkpoint]))
        turn.changes.checkpoints.add(uuid)
    _follow(turn, moved)


def _list_again(turn: Turn, checkpoint: CheckpointView) -> None:
    """Record that a checkpoint of which a copy was found is not deleted."""
    checkpoint.state = "COMPLETED"
    trial, checkpoints = turn.state.trial(checkpoint.trial_id), turn.state.checkpoints
    trial.checkpoints.append(checkpoint.uuid)
    trial.checkpoints.sort(key=lambda uuid: checkpoints[uuid].created_at)
    newest = checkpoints[trial.checkpoints[-1]]
    trial.latest_checkpoint = CheckpointRef.built_from(newest)
    turn.touch(trial)


def record_former_deleted(turn: Turn, uuids: Iterable[str]) -> None:
    """Record that the files of moved checkpoints are deleted where these were before."""
    for uuid in uuids:
        checkpoint = turn.state.checkpoints.get(uuid)
        if checkpoint is not None and checkpoint.former:
            checkpoint.former = ""
            turn.changes.checkpoints.add(uuid)


def _is_at(checkpoint: CheckpointView | None, location: str) -> bool:
    return checkpoint is not None and checkpoint.location == location.rstrip("/")


def _find_problem(turn: Turn, uuid: str, checkpoint: CheckpointView | None) -> str:
    if checkpoint is None:
        return f"there is no checkpoint {uuid}"
    if checkpoint.is_foreign:
        return (
            f"checkpoint {uuid} was imported: its files, {checkpoint.path}, belong to another "
            "tool; copy it instead"
        )
    listed = turn.state.trial(checkpoint.trial_id).checkpoints
    is_deleting = checkpoint.state == "COMPLETED" and uuid not in listed
    if checkpoint.former:
        return (
            f"checkpoint {uuid} was moved, and is still to be deleted at {checkpoint.former}; "
            "wait until it is gone, or let `checkpoint gc` forget it"
        )
    if is_deleting or checkpoint.globs:
        return f"files of checkpoint {uuid} are being deleted; wait until they are gone"
    owner = turn.state.experiment(checkpoint.experiment_id)
    if not owner.state.is_terminal:
        return f"experiment {owner.id} of checkpoint {uuid} is not over; wait until it has ended"
    return ""


def _follow(turn: Turn, paths: dict[str, str]) -> None:
    """Set the new paths in all references."""

    def moved(ref: CheckpointRef | None) -> CheckpointRef | None:
        if ref is None or ref.uuid not in paths:
            return ref
        return ref.model_copy(update={"path": paths[ref.uuid]})

    for trial in turn.state.trials.values():
        refs = moved(trial.latest_checkpoint), moved(trial.warm_start)
        if refs != (trial.latest_checkpoint, trial.warm_start):
            trial.latest_checkpoint, trial.warm_start = refs
            turn.touch(trial)
    for experiment in turn.state.experiments.values():
        start = moved(experiment.warm_start)
        if start != experiment.warm_start:
            experiment.warm_start = start
            turn.touch(experiment)
