"""Holds up the writers of a rank while a disk is full, or while uploads are late.

Nothing that they write is lost:

    before a record        while less than a floor is free (contract/host/disk_space.py), or the
                           write has failed: the rank waits, and so do the others, in their next
                           collective
    before a checkpoint    while less than a floor and its size are free, or the write has failed:
                           its thread waits, and training goes on until the next checkpoint.
                           Files that the user's code writes itself are taken to be as large as
                           those of the checkpoint before; an error of that code is not caught
    before a checkpoint    also while MOST_UNSENT earlier ones are not in their bucket. Each has a
                           file in the run's folder `unsent`, which the agent removes

The wait is noted in the control page, from which the agent reports it. It ends when there is room
again, or when the run was requested to leave or other ranks have ended, so that the last step is
saved now or never: then what is left of the disk is used, and what cannot be written fails.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from det_jupyter.contract.host.disk_space import is_enough_room, is_no_room, room_of
from det_jupyter.contract.run.control_page import ControlPage, OpenDraft, Writing

MOST_UNSENT = 3  # checkpoints of a run that wait for their upload
_CHECK_S = 1.0  # interval in which the room is checked before records
_POLL_S = 0.5  # interval in which it is checked while a writer waits
T = TypeVar("T")


def write_when_room(
    gate: RoomGate | None,
    folder: str,
    needs_bytes: int,
    write: Callable[[], T],
    undo: Callable[[], object] = lambda: None,
) -> T:
    """Return the result of RoomGate.write_checkpoint; without a gate, write at once."""
    return write() if gate is None else gate.write_checkpoint(folder, needs_bytes, write, undo)


class RoomGate:
    """Holds up the writers of one process of a run.

    Args:
        folder: The folder of the records.
        control: The control page of the run.
        clock: Returns monotonic seconds.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        folder: Path,
        control: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._folder = folder
        self._unsent = folder / "unsent"
        self._control = control
        self._clock = clock
        self._sleep = sleep
        self._checked_at = -_CHECK_S

    def await_room_for_record(self) -> None:
        """Wait until there is room for a record, or the run was requested to leave.

        Looks at the disk at most once a second.
        """
        now = self._clock()
        if now - self._checked_at < _CHECK_S:
            return
        self._checked_at = now
        room = room_of(self._folder)
        if room is not None and room.is_short():
            self._await_room("records", self._folder, 0)

    def await_room_after(self, error: OSError) -> None:
        """Wait until there is room, after a record could not be written.

        Raises:
            OSError: `error` is not of a full disk, or the run was requested to leave.
        """
        if not is_no_room(error) or not self._await_room("records", self._folder, 0):
            raise error

    def write_checkpoint(
        self, folder: str, needs_bytes: int, write: Callable[[], T], undo: Callable[[], object]
    ) -> T:
        """Return the result of `write`; again if a disk was full, when there is room.

        While several earlier checkpoints are not uploaded, it waits for that first.

        Args:
            folder: The storage, if it is a folder; of other storages the room is unknown.
            needs_bytes: How much is written, about.
            write: Writes the files.
            undo: Removes the files that were written.

        Raises:
            Exception: That of `write`, if it is not of a full disk, or if the run was requested
                to leave.
        """
        if self._is_behind():
            self._wait("uploads", lambda: not self._is_behind())
        room = room_of(folder) if os.path.isabs(folder) else None
        if room is not None and room.is_short(needs_bytes):
            self._await_room("checkpoint", folder, needs_bytes)
        while True:
            try:
                return write()
            except Exception as error:  # torch reports a full disk by errors of its own
                if not is_no_room(error) or not os.path.isabs(folder):
                    raise
                undo()
                if not self._await_room("checkpoint", folder, needs_bytes):
                    raise

    def note_unsent(self, uuid: str) -> None:
        """Record that a checkpoint is about to be saved, which the agent will upload.

        Does nothing if it is not to go to a bucket.
        """
        with suppress(FileNotFoundError):  # there is no such folder
            (self._unsent / uuid).touch(mode=0o600)

    def is_leaving(self) -> bool:
        """Return whether the run saves its state because it was requested to leave."""
        with suppress(OSError, ValueError), closing(ControlPage(self._control)) as page:
            return page.saving_since() is not None
        return False

    def note_draft(self, *, is_open: bool = True, is_written: bool = False) -> None:
        """Record whether this process writes a checkpoint: the agent does not end it meanwhile."""
        draft = OpenDraft(os.getpid(), is_written) if is_open else None
        with suppress(OSError, ValueError), closing(ControlPage(self._control)) as page:
            page.note_draft(draft)

    def _is_behind(self) -> bool:
        try:
            return len(os.listdir(self._unsent)) >= MOST_UNSENT
        except OSError:
            return False

    def _await_room(
        self, writing: Writing, folder: str | os.PathLike[str], needs_bytes: int
    ) -> bool:
        return self._wait(writing, lambda: is_enough_room(folder, needs_bytes), needs_bytes)

    def _wait(self, writing: Writing, is_over: Callable[[], bool], needs_bytes: int = 0) -> bool:
        """Wait; return False if the run leaves or ends, or its folder is gone."""
        try:
            page = ControlPage(self._control)
        except (OSError, ValueError):  # user code may have removed the folder
            return False
        since = time.time()
        try:
            while not (page.is_raised("preempt") or page.is_killed() or page.is_parted()):
                # In each turn: another rank, whose wait has ended, may have cleared the note.
                page.note_wait(writing, since, needs_bytes)
                self._sleep(_POLL_S)
                if is_over():
                    return True
            return False
        finally:
            page.note_wait(writing, 0.0)
            page.close()
