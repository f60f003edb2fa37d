"""A file that reserves space on the disk, so that the master works when the disk is full.

    there is space       the file exists, with half a floor (contract/host/disk_space.py)
    hardly any is left,  it is removed; a failed write of the master is repeated
      or a write fails
    there is more again  it is created again

While it does not exist, ranks and agents wait (contract/run/room.py). Its space is for the
database, so that requests such as pause, kill and delete can be carried out.
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
_LITTLE = 8  # less than this fraction (1/8) of a floor counts as hardly any space
# Pause after a failed attempt to create it, which may use up a quota for a moment.
_RETRY_S = 3600.0


class Reserve:
    """The reserve in the master's data folder.

    Args:
        folder: The data folder.
        clock: Returns monotonic seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = folder / NAME
        self._clock = clock
        self._made_again_at = float("-inf")  # earliest time of the next attempt after a failed one

    def give_back(self) -> bool:
        """Remove the file; return whether that has freed space."""
        try:
            num_bytes = self.path.stat().st_blocks
            self.path.unlink()
        except OSError:
            return False
        logger.warning("the disk of %s is full: the reserve is given back", self.path.parent)
        return num_bytes > 0

    def keep(self) -> None:
        """Create the file if the disk has space for it; remove it if hardly any is left."""
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
