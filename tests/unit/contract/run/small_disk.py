"""A disk of 1600 bytes, whose floor is 100: a test sets what is free."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from det_jupyter.contract.host import disk_space
from det_jupyter.contract.host.disk_space import Room
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run import room as room_module
from det_jupyter.contract.run.control_page import ControlPage, WaitForRoom, create_page
from det_jupyter.contract.run.journal import Record, parse_line
from det_jupyter.contract.run.room import RoomGate

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Disk:
    """The disk, and a rank's gate to it.

    Attributes:
        seen: What the control page says at each look of a writer that waits.
        during_wait: Called at each such look.
    """

    def __init__(self, folder: RunDir) -> None:
        self.free = 1600
        self.files: int | None = None
        self.folder = folder
        self.seen: list[WaitForRoom | None] = []
        self.during_wait: Callable[[], None] = lambda: None
        self.now = 10.0
        folder.path.mkdir()
        create_page(folder.control)
        self.page = ControlPage(folder.control)
        self.gate = RoomGate(
            folder.path, folder.control, clock=lambda: self.now, sleep=self._sleep
        )

    def room(self, folder: object) -> Room:
        return Room(total_bytes=1600, free_bytes=self.free, free_files=self.files)

    def _sleep(self, seconds: float) -> None:
        assert len(self.seen) < 20, "it waits for ever"
        self.seen.append(self.page.wait_for_room())
        self.during_wait()

    def records(self) -> list[Record]:
        return [parse_line(line) for line in self.folder.journal(0).read_bytes().splitlines()]


def small_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Return the disk; every folder is on it while the patch lasts."""
    disk = Disk(RunDir(folder / "run"))
    monkeypatch.setattr(room_module, "room_of", disk.room)
    monkeypatch.setattr(disk_space, "room_of", disk.room)
    monkeypatch.setattr(disk_space, "why_no_room", lambda folder: "")
    return disk


def gives(disk: Disk, *free: int) -> Callable[[], None]:
    left = list(free)

    def look() -> None:
        disk.free = left.pop(0)

    return look
