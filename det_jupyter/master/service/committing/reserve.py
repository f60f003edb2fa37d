"""A file that keeps room on the master's disk, so that the master works when the disk is full.

    there is room        the file has its size (half a floor: contract/host/disk_space.py)
    hardly any is left,  it is removed; a write of the master that has failed is tried again
      or a write fails
    there is room again  it is made again

While it is gone, ranks and agents wait (contract/run/room.py): the room that it gave is for the
database, so that requests can be carried out: pause, kill, delete.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from det_jupyter.contract.host.disk_space import room_of
from det_jupyter.contract.host.ownership import open_own

logger = logging.getLogger(__name__)

NAME = "reserve"
_LITTLE = 8  # this part of a floor is hardly any room
_RETRY_S = 3600.0  # after it could not be made: each attempt may use up a quota for a moment


class Reserve:
    """The reserve in the master's data folder.

    Args:
        folder: The data folder.
        clock: Returns monotonic seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = folder / NAME
        self._clock = clock
        self._made_again_at = float("-inf")  # no attempt before, as the last one failed

    def give_back(self) -> bool:
        """Remove the file; return whether that has freed room."""
        try:
            num_bytes = self.path.stat().st_blocks
            self.path.unlink()
        except OSError:
            return False
        logger.warning("the disk of %s is full: the reserve is given back", self.path.parent)
        return num_bytes > 0

    def keep(self) -> None:
        """Make the file if the disk has room for it; remove it if hardly any is left."""
        room = room_of(self.path)
        if room is None:
            return
        if self.path.exists():
            if room.free_bytes < room.floor_bytes // _LITTLE:
                self.give_back()
            return
        size_bytes = room.floor_bytes // 2
        is_due = self._clock() >= self._made_again_at
        if size_bytes == 0 or not is_due or not room.is_enough(size_bytes):
            return
        try:
            descriptor = open_own(self.path, os.O_RDWR | os.O_CREAT)
            try:
                os.posix_fallocate(descriptor, 0, size_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:  # a quota, or a file system that cannot do it
            logger.warning("the reserve %s cannot be made: %s", self.path, error)
            self._made_again_at = self._clock() + _RETRY_S
            with suppress(OSError):
                self.path.unlink()
