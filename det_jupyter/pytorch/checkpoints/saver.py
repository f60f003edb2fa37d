"""Checkpoints that are written while training continues.

    begin     all ranks   gather, callbacks, copy to CPU memory          training waits
                          (or write, with few copies, if it waits for the files as well)
    (write)   a thread of the chief: write, read back, fsync             training continues
    finish    all ranks   callbacks, rename, record                      training waits, shortly

The thread runs no user code and writes no record, since the journal has no lock. Until the rename
there is no checkpoint, only a scratch folder that the next writer removes; so the older checkpoint
stays whole even if the chief is killed. All ranks must begin and finish at the same batch: the
chief detects that the files are written (`is_written`), and the next exchange informs the others.
If one rank fails, at the state or at the files, all ranks raise.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from det_jupyter.contract.trial.origin import Origin
from det_jupyter.core import CheckpointContext
from det_jupyter.core.drafts import CheckpointDraft
from det_jupyter.core.together import run_on_chief, settle
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.checkpoints.state_snapshot import SnapshotMemory
from det_jupyter.pytorch.checkpoints.training_state import (
    ModelStates,
    Parts,
    collect_state,
    size_of,
    snapshot_state,
    state_for_all,
    write_state,
)
from det_jupyter.pytorch.checkpoints.unsaved import UnsavedWatch
from det_jupyter.pytorch.rng import RngStates


class _Write:
    """Writes the files of a checkpoint in a thread."""

    def __init__(
        self, draft: CheckpointDraft, state: dict[str, object], origin: Origin, before: str
    ) -> None:
        self.draft = draft
        self._state = state
        self._origin = origin
        self._before = before
        self._path: Path | None = None
        self._error: BaseException | None = None
        # No daemon thread: a script that ends with an exception waits for it.
        self._thread = threading.Thread(target=self._run, name="det-checkpoint")
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait for the thread."""
        self._thread.join()

    def result(self) -> Path:
        """Wait for the thread, and return the folder.

        Raises:
            CheckpointError: The files could not be written.
        """
        self.wait()
        if self._error is not None or self._path is None:
            raise CheckpointError(
                f"checkpoint {self.draft.uuid} could not be written: {self._error}"
            ) from self._error
        return self._path

    def _run(self) -> None:
        try:
            self._path = self.draft.write(self._fill, size_of(self._state))
        except BaseException as error:  # raised by `result`
            self._error = error
        finally:
            self._state = {}

    def _fill(self, path: Path) -> None:
        write_state(path, self._state, self._before)
        self._origin.write(path)


@dataclass(slots=True)
class Saver:
    """Saves the state of all ranks, written by the chief.

    Args:
        storage: The storage of checkpoints.
        parts: The objects whose state is saved.
        origin: The data from which the trial can be built again.
        unsaved: Checks the first state that is saved.
        latest: The path of the last checkpoint that is finished; "": there is none.
    """

    storage: CheckpointContext
    parts: Parts
    origin: Origin
    unsaved: UnsavedWatch | None = None
    latest: str = ""
    _memory: SnapshotMemory = field(default_factory=SnapshotMemory)
    _uuid: str = ""  # uuid of the checkpoint that is being written
    _is_settled: bool = True  # what was begun or finished last, all ranks have
    _write: _Write | None = None  # on the chief: the thread that writes this checkpoint

    @property
    def is_pending(self) -> bool:
        """Whether a checkpoint is begun and not finished; the same on all ranks."""
        return self._uuid != ""

    @property
    def is_written(self) -> bool:
        """Whether the files are written. On the chief only; not collective."""
        return self._write is not None and self._write.is_done

    def begin(
        self,
        *,
        steps_completed: int,
        in_window: bool = False,
        validation_due: str | None = None,
        is_still: bool = False,
    ) -> str:
        """Begin a checkpoint of the present state and return its uuid. Collective.

        An earlier one that is begun is finished first.

        Args:
            steps_completed: Batches trained.
            in_window: Whether this is within an aggregation window: gradients are saved too.
            validation_due: The validation that is still due after these batches; None: none.
            is_still: Training waits for the files anyway, so they are written when this returns,
                and models and optimizers on the CPU are not copied.

        Raises:
            ConfigError: On the chief: the state has a value that cannot be saved.
            PeerFailed: This, or an error of a hook, happened on another rank.
        """
        self.finish()
        self._is_settled = False
        distributed = self.parts.context.distributed
        collected = collect_state(self.parts, steps_completed=steps_completed, in_window=in_window)

        def start() -> str:
            state = collected()
            if distributed.is_chief:
                state["validation_due"] = validation_due
                if self.unsaved is not None:
                    self.unsaved.check(state["callbacks"])
            self.parts.callbacks.on_checkpoint_save_start(state)
            return self._start_writing(state, is_still) if distributed.is_chief else ""

        self._uuid = settle(distributed, start, lambda uuids: uuids[0], on_chief=False)
        self._is_settled = True
        return self._uuid

    def _start_writing(self, state: dict[str, Any], is_still: bool) -> str:
        is_here = is_still and self.parts.context.device.type == "cpu"
        copied = snapshot_state(state, self._memory, self.parts, is_still=is_here)
        draft = self.storage.begin({"steps_completed": state["steps_completed"]})
        self._uuid = draft.uuid
        self._write = _Write(draft, copied, self.origin, self.latest)
        if is_still:
            self._write.wait()
        return draft.uuid

    def finish(self) -> None:
        """Finish the checkpoint that is begun, if there is one. Collective.

        Raises:
            CheckpointError: On the chief: it could not be written.
            PeerFailed: This, or an error of a hook, happened on the chief.
        """
        uuid, self._uuid = self._uuid, ""
        if uuid:
            self._is_settled = False
            run_on_chief(self.parts.context.distributed, self._complete)  # the others wait for it
            self._is_settled = True
            self.latest = self.storage.path_of(uuid)
            self.parts.callbacks.on_checkpoint_upload_end(uuid)

    def save_alone(
        self,
        steps_completed: int,
        rng_states: list[RngStates],
        divided: ModelStates | None = None,
    ) -> None:
        """Save a checkpoint of all ranks without the others, which have ended. Not collective.

        Args:
            steps_completed: Batches trained.
            rng_states: The states of all ranks' generators after them.
            divided: The states of models that are divided among the ranks.

        Raises:
            CheckpointError: It could not be written.
            ConfigError: The state has a value that cannot be saved.
        """
        state = state_for_all(
            self.parts, steps_completed=steps_completed, rng_states=rng_states, divided=divided
        )
        copied = snapshot_state(state, SnapshotMemory(), self.parts, is_still=True)
        metadata = {"steps_completed": steps_completed}
        draft = self.storage.begin(metadata, self.origin, instead_of_chief=True)
        try:
            draft.write(lambda path: write_state(path, copied, self.latest), size_of(copied))
            draft.commit()
        except BaseException:  # an interrupt too: no draft may be left
            draft.discard()
            raise

    def close(self) -> bool:
        """Finish the checkpoint that is begun, without the other ranks, after a failure.

        For any rank, at any time; idempotent. Never raises: further errors are written to stderr.
        `on_checkpoint_upload_end` is not called, since not all ranks would call it.

        Returns:
            Whether the last checkpoint that was begun is finished, as far as this rank knows: the
            chief may have ended before it has written or finished it.
        """
        uuid, self._uuid = self._uuid, ""
        is_here = self._write is not None or (self._is_settled and not uuid)
        try:
            self._complete()
        except Exception as error:  # the failure that led to this call is raised
            sys.stderr.write(f"{error}\n")
            return False
        return is_here

    def drop(self) -> None:
        """Discard the checkpoint that is begun, if there is one. Never raises."""
        write, self._write, self._uuid = self._write, None, ""
        if write is not None:
            with suppress(Exception):  # an error of the write does not matter any more
                write.result()
            with suppress(Exception):  # the next writer removes the draft
                write.draft.discard()

    def _complete(self) -> None:
        write, self._write = self._write, None
        if write is None:
            return
        try:
            path = write.result()
            write.draft.note()  # the callback may take long
            self.parts.callbacks.on_checkpoint_write_end(path)
            write.draft.commit()
        except BaseException:  # an interrupt too: no draft may be left
            write.draft.discard()
            raise
        finally:
            self._memory.release()
