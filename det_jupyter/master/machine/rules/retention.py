"""Which checkpoints are kept or deleted when an experiment ends, or when its policy is changed.

That of a change of an elastic trial's slots is deleted at its next change; and one of two that
ranks on several computers have saved of the same last step.

A checkpoint is kept if any of these applies:

    save_experiment_best    it is among the N best checkpoints of the experiment
    save_trial_best         it is among the N best checkpoints of its trial
    save_trial_latest       it is among the N newest checkpoints of its trial
    in use                  a trial that is not over continues from it, or an experiment that is
                            not over started from it; independent of the policy
    registered              it is a version of a model (handlers/models.py); independent of the
                            policy
    placed                  a user has moved, adopted or imported it (moving.py); independent of
                            the policy

Checkpoints are compared by the validation at their step. One without a validation, or whose metric
is not a finite number, is never among the best; of equally good ones the older comes first.

A checkpoint to be deleted is removed from its trial's `checkpoints` at once, so that no run starts
from it. Its files are deleted afterwards (deleting.py); then its state is DELETED, and it stays
listed. So a checkpoint that is COMPLETED but in no trial's list has files that are still to be
deleted; that is how they are found after a restart.

With `globs`, only the files that they match are deleted. Such a checkpoint is also removed from
the list, and is then PARTIALLY_DELETED, or DELETED if only metadata.json is left. While it has
`globs`, files of it are still to be deleted. While it has a `former` path, it was moved from there
(moving.py), and its files there are still to be deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from det_jupyter.config.storages import Storage
from det_jupyter.contract.messages import CheckpointRef, CheckpointView, State
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.json_numbers import to_finite
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.model.commands import DeleteCheckpoints, DeleteExperiment, Deletion
from det_jupyter.master.machine.model.indexes import Indexes
from det_jupyter.master.machine.model.lifecycle import OVER
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.machine.model.turn import Turn

_ALL_FILES = ("**",)


def select_kept(
    checkpoints: Iterable[CheckpointView], storage: Storage, direction: Direction
) -> set[str]:
    """Return the uuids that the policy in `storage` keeps.

    Args:
        checkpoints: The checkpoints; those of one trial are sorted, oldest first.
    """
    by_trial: dict[int, list[CheckpointView]] = defaultdict(list)
    for checkpoint in checkpoints:
        by_trial[checkpoint.trial_id].append(checkpoint)
    by_age = [one for trial_id in sorted(by_trial) for one in by_trial[trial_id]]
    by_age.sort(key=lambda one: one.created_at)
    kept = _select_best(by_age, storage.save_experiment_best, direction)
    for of_trial in by_trial.values():
        kept += _select_best(of_trial, storage.save_trial_best, direction)
        kept += of_trial[max(0, len(of_trial) - storage.save_trial_latest) :]
    return {one.uuid for one in kept}


def _select_best(
    checkpoints: list[CheckpointView], num: int, direction: Direction
) -> list[CheckpointView]:
    measured = [one for one in checkpoints if to_finite(one.searcher_metric) is not None]
    return sorted(measured, key=lambda one: direction.loss(one.searcher_metric))[:num]


def find_unneeded(
    state: MachineState, indexes: Indexes, experiment: Experiment, storage: Storage
) -> list[str]:
    """Return the uuids of an experiment's checkpoints that are not kept, trial by trial.

    A policy leaves alone what a user has moved, adopted or imported.
    """
    trials = state.trials_of(experiment)
    own = [state.checkpoints[uuid] for trial in trials for uuid in trial.checkpoints]
    kept = select_kept(own, storage, experiment.direction)
    if len(kept) < len(own):
        users = {experiment.id, *indexes.dependents_of(experiment.id)} & state.experiments.keys()
        kept.update(*(_used_by(state.experiments[i], indexes) for i in users))
        kept |= state.registered().keys()
    return [one.uuid for one in own if one.uuid not in kept and not one.is_placed]


def find_users(state: MachineState, indexes: Indexes, experiment: Experiment) -> list[int]:
    """Return the other experiments that are not over and use a checkpoint of this one."""
    own = {uuid for uuid, one in state.checkpoints.items() if one.experiment_id == experiment.id}
    others = (state.experiments.get(i) for i in indexes.dependents_of(experiment.id))
    return [each.id for each in others if each and not own.isdisjoint(_used_by(each, indexes))]


def _used_by(experiment: Experiment, indexes: Indexes) -> Iterator[str]:
    """Yield the uuids of checkpoints that an experiment may start a run from.

    Yields nothing if the experiment is over.
    """
    if experiment.state.is_terminal:
        return
    refs = [experiment.warm_start]
    for trial in indexes.unfinished_trials(experiment.id):
        starts_from = trial.allocation.starts_from if trial.allocation is not None else None
        refs += [trial.latest_checkpoint, trial.warm_start, starts_from]
    yield from (ref.uuid for ref in refs if ref is not None)


def finished_sources_of(
    state: MachineState, indexes: Indexes, experiment: Experiment
) -> list[Experiment]:
    """Return the experiments that are over and from whose checkpoints this one started."""
    found = (state.experiments.get(source_id) for source_id in indexes.sources_of(experiment.id))
    return [source for source in found if source is not None and source.state in OVER]


def usable_checkpoint(state: MachineState, ref: CheckpointRef | None) -> CheckpointRef | None:
    """Return `ref` if a trial can start from it; None if it is deleted or being deleted."""
    return ref if ref is not None and _is_usable(state, ref.uuid) else None


def _is_usable(state: MachineState, uuid: str) -> bool:
    found = state.checkpoints.get(uuid)
    if found is None or found.state != "COMPLETED" or not _owner_exists(state, found):
        return False
    trial = state.trials.get(found.trial_id)
    return trial is not None and uuid in trial.checkpoints


def _owner_exists(state: MachineState, checkpoint: CheckpointView) -> bool:
    owner = state.experiments.get(checkpoint.experiment_id)
    return owner is not None and owner.state not in (State.DELETING, State.DELETE_FAILED)


def _find_deletion_problem(state: MachineState, uuid: str) -> str:
    """Return why a checkpoint, or files of it, cannot be deleted; "" if they can be deleted."""
    found = state.checkpoints.get(uuid)
    if found is not None and found.is_foreign:
        return f"checkpoint {uuid} was imported: its files, {found.path}, belong to another tool"
    if found is not None and found.globs and _owner_exists(state, found):
        return f"files of checkpoint {uuid} are being deleted; wait until they are gone"
    is_partial = (
        found is not None and found.state == "PARTIALLY_DELETED" and _owner_exists(state, found)
    )
    if is_partial or _is_usable(state, uuid):
        return ""
    return (
        f"there is no checkpoint {uuid}, or it is deleted already; "
        "`checkpoint list` shows those that are"
    )


def delete_unneeded(turn: Turn, experiment: Experiment) -> None:
    """Command the deletion of the checkpoints that an experiment's policy does not keep."""
    storage = experiment.settings.checkpoint_storage
    if uuids := find_unneeded(turn.state, turn.indexes, experiment, storage):
        _delete(turn, experiment, uuids)


def delete_replaced(turn: Turn, experiment: Experiment, uuid: str) -> None:
    """Command the deletion of a checkpoint that was only saved so that its trial could go on.

    Kept if a policy keeps it as things are now, or if it was validated: it may become the best.
    """
    checkpoint = turn.state.checkpoints.get(uuid)
    if checkpoint is None or checkpoint.searcher_metric is not None:
        return
    storage = experiment.settings.checkpoint_storage
    if uuid in find_unneeded(turn.state, turn.indexes, experiment, storage):
        _delete(turn, experiment, [uuid])


def delete_checkpoints(turn: Turn, uuids: Iterable[str], globs: Sequence[str]) -> None:
    """Command the deletion of checkpoints, or only of their files that match `globs`, if given.

    Raises:
        Conflict: A checkpoint does not exist, is deleted, in use or registered; none is deleted.
    """
    checkpoints, selected = turn.state.checkpoints, set(uuids)
    found = (_find_deletion_problem(turn.state, uuid) for uuid in sorted(selected))
    problems = [problem for problem in found if problem]
    versions = turn.state.registered()
    problems += [
        f"checkpoint {uuid} is {versions[uuid]}; delete that version first"
        for uuid in sorted(selected & versions.keys())
    ]
    problems += find_uses(turn, selected)
    if problems:
        raise Conflict("; ".join(problems))
    for owner in sorted({checkpoints[uuid].experiment_id for uuid in selected}):
        own = [uuid for uuid in sorted(selected) if checkpoints[uuid].experiment_id == owner]
        _delete(turn, turn.state.experiments[owner], own, globs)


def find_uses(turn: Turn, uuids: Set[str]) -> list[str]:
    """Return a sentence for each of these checkpoints that an experiment may start from."""
    checkpoints = turn.state.checkpoints
    owners = {checkpoints[uuid].experiment_id for uuid in uuids & checkpoints.keys()}
    users = {i for owner in owners for i in (owner, *turn.indexes.dependents_of(owner))}
    return [
        f"checkpoint {uuid} is in use: experiment {experiment_id}, which is not over, goes on "
        "from it"
        for experiment_id in sorted(users & turn.state.experiments.keys())
        for uuid in sorted(
            uuids & {*_used_by(turn.state.experiments[experiment_id], turn.indexes)}
        )
    ]


def _delete(
    turn: Turn, experiment: Experiment, uuids: list[str], globs: Sequence[str] = ()
) -> None:
    for trial_id in sorted({turn.state.checkpoints[uuid].trial_id for uuid in uuids}):
        _unlist(turn, turn.state.trials[trial_id], set(uuids))
    for checkpoint in (turn.state.checkpoints[uuid] for uuid in uuids):
        is_partial = checkpoint.state == "PARTIALLY_DELETED"
        checkpoint.globs = list(globs or _ALL_FILES * is_partial)
        if checkpoint.globs:
            turn.changes.checkpoints.add(checkpoint.uuid)
    turn.commands.extend(_deletions(turn.state, experiment, uuids))


def record_deleted(turn: Turn, uuids: Iterable[str]) -> None:
    """Record that checkpoints were deleted: no run starts from them any more."""
    for uuid in uuids:
        checkpoint = turn.state.checkpoints.get(uuid)
        if checkpoint is None or checkpoint.state == "DELETED":
            continue
        checkpoint.state, checkpoint.globs = "DELETED", []
        turn.changes.checkpoints.add(uuid)
        trial = turn.state.trials.get(checkpoint.trial_id)
        if trial is not None and uuid in trial.checkpoints:  # the trial's own code has deleted it
            _unlist(turn, trial, {uuid})


def delete_uploaded(turn: Turn, trial: Trial, uuid: str) -> None:
    """Record that a rank has deleted its computer's copy of a checkpoint.

    If the checkpoint is in the master's own folder or in a bucket, it is deleted there, so it must
    be one that the trial may read. With several computers, the master may have made it of their
    shares.
    """
    checkpoint = turn.state.checkpoints.get(uuid)
    if checkpoint is None or checkpoint.is_foreign:
        return
    experiment = turn.state.experiments.get(checkpoint.experiment_id)
    # Any other storage is one folder for all computers: the rank has deleted the files.
    is_reachable = experiment is not None and (experiment.location is None or experiment.bucket)
    if experiment is not None and (is_reachable or checkpoint.is_placed):
        if not may_read(turn.state, trial, uuid):
            return
        if _owner_exists(turn.state, checkpoint):
            turn.commands.extend(_deletions(turn.state, experiment, [uuid]))
    record_deleted(turn, [uuid])


def may_read(state: MachineState, trial: Trial, uuid: str) -> bool:
    """Return whether a trial's code on another computer may read and delete a checkpoint."""
    checkpoint = state.checkpoints.get(uuid)
    is_own = checkpoint is not None and checkpoint.experiment_id == trial.experiment_id
    return is_own or uuid in start_checkpoints(trial)


def start_checkpoints(trial: Trial) -> set[str]:
    """Return the uuids of the checkpoints that the trial's present run may start from."""
    starts_from = trial.allocation.starts_from if trial.allocation is not None else None
    refs: list[CheckpointRef | None] = [starts_from, trial.warm_start]
    return {ref.uuid for ref in refs if ref is not None}


def record_partly_deleted(turn: Turn, left_bytes: Mapping[str, int]) -> None:
    """Record that files of checkpoints were deleted, and the size of the remaining files."""
    for uuid, size_bytes in left_bytes.items():
        checkpoint = turn.state.checkpoints.get(uuid)
        if checkpoint is not None and checkpoint.state != "DELETED":
            checkpoint.state, checkpoint.globs = "PARTIALLY_DELETED", []
            checkpoint.size_bytes = size_bytes
            turn.changes.checkpoints.add(uuid)


def _unlist(turn: Turn, trial: Trial, uuids: set[str]) -> None:
    trial.checkpoints = [uuid for uuid in trial.checkpoints if uuid not in uuids]
    latest = trial.latest_checkpoint
    if latest is not None and latest.uuid in uuids:
        newest = [turn.state.checkpoints[uuid] for uuid in trial.checkpoints[-1:]]
        trial.latest_checkpoint = CheckpointRef.built_from(newest[0]) if newest else None
    turn.touch(trial)


def _deletions(
    state: MachineState, experiment: Experiment, uuids: Iterable[str]
) -> list[DeleteCheckpoints]:
    paths: dict[tuple[str | None, tuple[str, ...]], dict[str, str]] = defaultdict(dict)
    for uuid in uuids:
        checkpoint = state.checkpoints[uuid]
        location = checkpoint.location if checkpoint.is_placed else experiment.location
        paths[location, tuple(checkpoint.globs)][uuid] = checkpoint.path
    return [
        DeleteCheckpoints(
            experiment_id=experiment.id,
            location=location,
            paths=some,
            globs=globs,
            cause=state.seq,
        )
        for (location, globs), some in paths.items()
    ]


def former_deletions(
    state: MachineState, moved: Iterable[CheckpointView]
) -> list[DeleteCheckpoints]:
    """Return the commands that delete checkpoints where they were moved from.

    Those that were deleted since have no copy.
    """
    return [
        DeleteCheckpoints(
            experiment_id=one.experiment_id,
            location=one.former.rpartition("/")[0] or "/",
            paths={one.uuid: one.former},
            is_former=True,
            copies={one.uuid: one.path} if one.state != "DELETED" else {},
            cause=state.seq,
        )
        for one in moved
    ]


def experiment_deletion(state: MachineState, experiment: Experiment) -> DeleteExperiment:
    """Return the command that deletes an experiment with all of its files."""
    own = [c for c in state.checkpoints.values() if c.experiment_id == experiment.id]
    return DeleteExperiment(
        experiment_id=experiment.id,
        trial_ids=tuple(experiment.trial_ids),
        location=experiment.location,
        paths={one.uuid: one.path for one in own if one.state != "DELETED" and not one.is_foreign},
        elsewhere={one.uuid: one.location for one in own if one.is_placed},
        cause=state.seq,
    )


def pending_deletions(state: MachineState) -> list[Deletion]:
    """Return the deletions that a former master process had not completed."""
    commands: list[Deletion] = [
        experiment_deletion(state, experiment)
        for experiment in state.experiments.values()
        if experiment.state is State.DELETING
    ]
    listed = {uuid for trial in state.trials.values() for uuid in trial.checkpoints}
    remaining: dict[int, list[str]] = defaultdict(list)
    for one in state.checkpoints.values():
        has_files_to_delete = one.state == "COMPLETED" or one.globs
        if has_files_to_delete and one.uuid not in listed:
            remaining[one.experiment_id].append(one.uuid)
        if one.former:
            commands += former_deletions(state, [one])
    for experiment_id, uuids in remaining.items():
        experiment = state.experiments[experiment_id]
        if experiment.state is not State.DELETING:
            commands += _deletions(state, experiment, uuids)
    return commands
