"""The checkpoints of one run, at most one per batch; and restoring the run's first state.

If a checkpoint and a validation are due after the same batch, the checkpoint is saved first, with
a note that the validation is still due. A run that continues from it first makes this validation,
if the run's own schedule has it, or if a search requested it at a rung. (A training that is
extended beyond its end is treated as if it had had the later end from the beginning.)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.contract.trial.origin import Origin, changed_hparams
from det_jupyter.core import CheckpointContext
from det_jupyter.pytorch.checkpoints.restore import (
    apply_changed,
    read_state,
    restore_generators,
    restore_models,
    restore_training,
)
from det_jupyter.pytorch.checkpoints.saver import Saver
from det_jupyter.pytorch.checkpoints.training_state import ModelStates, Parts
from det_jupyter.pytorch.checkpoints.unsaved import UnsavedWatch
from det_jupyter.pytorch.rng import RngStates
from det_jupyter.pytorch.rules import RunStart
from det_jupyter.storage import reading


class Savepoints:
    """The checkpoints of one run. All ranks call every method after the same batches.

    Args:
        storage, parts, origin: As for a Saver.
        start: The state with which the run begins.
        while_waiting: Returns a context manager, entered while training waits for a checkpoint.
        unsaved: Finds state of the trial that is in no checkpoint; None: no search for such state.
    """

    def __init__(
        self,
        storage: CheckpointContext,
        parts: Parts,
        origin: Origin,
        start: RunStart,
        while_waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        unsaved: UnsavedWatch | None = None,
    ) -> None:
        self._storage = storage
        self._origin = origin
        self._while_waiting = while_waiting
        self._unsaved = unsaved
        latest = start.checkpoint.path if start.checkpoint else ""
        self._saver = Saver(storage, parts, origin, unsaved, latest)
        self._parts = parts
        self._start = start
        self._saved_at = start.steps_completed if start.checkpoint else -1
        self._precedes_validation = False  # the last checkpoint says that a validation is due
        self._state: dict[str, Any] | None = None
        self._uuid = ""

    @property
    def latest(self) -> CheckpointRef | None:
        """The last checkpoint of this run, valid once it is finished; None if there is none."""
        if not self._uuid:
            return None
        path = self._storage.path_of(self._uuid)
        return CheckpointRef(uuid=self._uuid, path=path, steps_completed=self._saved_at)

    def restore(self) -> None:
        """Load the state with which the run begins, except generators. Collective.

        Raises:
            CheckpointError: The state cannot be read, or is of another trial.
        """
        context, ranks = self._parts.context, self._parts.context.distributed
        share = slice(ranks.local_rank, None, ranks.local_size)  # each computer has its own copy
        if checkpoint := self._start.checkpoint:
            where = f"checkpoint {checkpoint.uuid}"
            with reading(checkpoint.path) as folder:
                self._state = state = read_state(folder, checked=share)
                changes = changed_hparams(folder, self._origin.hparams)
            self._parts.callbacks.on_checkpoint_load_start(state)
            restore_models(context, state, where)
            restore_training(self._parts, state, where)
            apply_changed(self._parts, state, changes)
        # Only the weights of another trial's checkpoint are loaded.
        elif source := self._start.warm_start:
            where = f"searcher: checkpoint {source.uuid}"
            with reading(source.path) as folder:
                restore_models(context, read_state(folder, checked=share), where)

    def watch_unsaved(self) -> None:
        """Record the trial's state before the first batch, to compare it later. Not collective."""
        if self._unsaved is not None:
            self._unsaved.begin()

    def restore_generators(self) -> str | None:
        """Set the generators. Call it last, since restoring other state may draw from them.

        Returns:
            The validation that was still due when the state was saved: "scheduled", "rung", or
            None.
        """
        state, self._state = self._state, None
        if state is None:
            return None
        restore_generators(self._parts.context, state, self._start.seed)
        due: str | None = state["validation_due"]
        self._precedes_validation = due is not None
        return due

    def save(
        self,
        steps_completed: int,
        *,
        due: str | None = None,
        again: bool = False,
        anew: bool = False,
        is_still: bool = False,
    ) -> None:
        """Begin a checkpoint, unless this batch has one. Collective.

        Args:
            steps_completed: Batches trained.
            due: The validation that follows: "scheduled", "rung" or None.
            again: Save again if the checkpoint of this batch was saved before its validation.
            anew: Save again in any case.
            is_still: Training waits for the files anyway; see `Saver.begin`.
        """
        is_outdated = anew or (again and self._precedes_validation)
        if self._saved_at == steps_completed and not is_outdated:
            return
        self._saved_at, self._precedes_validation = steps_completed, due is not None
        with self._while_waiting():
            self._uuid = self._saver.begin(
                steps_completed=steps_completed,
                in_window=not self._parts.context.position.is_step,
                validation_due=due,
                is_still=is_still,
            )

    @property
    def is_written(self) -> bool:
        """Whether the files are written, so that `finish` need not wait. On the chief only."""
        return self._saver.is_written

    def finish(self) -> None:
        """Finish the checkpoint that was begun, if there is one. Collective."""
        if self._saver.is_pending:
            with self._while_waiting():
                self._saver.finish()

    def finish_older(self, steps_completed: int) -> None:
        """Finish a checkpoint of another batch whose files are written. Not collective.

        A validation may have found it the best: what is saved later does not replace it.
        """
        if self._saver.is_written and self._saved_at != steps_completed:
            self._saver.close()

    def save_alone(
        self,
        steps_completed: int,
        rng_states: list[RngStates],
        divided: ModelStates | None = None,
    ) -> None:
        """Save without the other ranks, unless this batch has a checkpoint; see `Saver`.

        One that was saved before its validation does not count: the next run would validate again.
        An older checkpoint whose files are not complete is finished only if this fails.
        """
        has_its_own = self._saved_at == steps_completed and not self._precedes_validation
        if has_its_own and self._saver.close():
            return
        try:
            self._saver.save_alone(steps_completed, rng_states, divided)
        except BaseException:  # an interrupt too
            self._saver.close()
            raise

    def drop_pending(self) -> None:
        """Drop the checkpoint that was begun: a later one was saved without it."""
        self._saver.drop()

    def close(self) -> None:
        """Finish the checkpoint without the other ranks, after a failure."""
        self._saver.close()
