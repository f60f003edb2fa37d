"""What is told of runs that wait for room, and of the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.runs import room_watch
from det_jupyter.agent.runs.room_watch import watch_room
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.disk_space import Room
from det_jupyter.contract.messages import DiskReading, DisksSeen

GB = 10**9


class Runs:
    """Runs that have news at the given looks; it counts the looks and those who were told."""

    def __init__(self, *changes: list[bool]) -> None:
        self.changes = [list(each) for each in changes]
        self.num_looks = 0
        self.num_told = 0
        self.news = SimpleNamespace(set=self._tell)

    def _tell(self) -> None:
        self.num_told += 1

    def runs(self) -> list[Any]:
        self.num_looks += 1
        return [SimpleNamespace(note_room=lambda now, c=c: c.pop(0)) for c in self.changes]


def looks(runs: Runs, num: int, report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the watch look so many times."""
    monkeypatch.setattr(room_watch, "_WAITS_S", 0.0)

    async def act() -> None:
        task = asyncio.create_task(watch_room(runs, report))  # type: ignore[arg-type]
        while runs.num_looks < num:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(act())


def test_each_run_is_looked_at_and_news_of_any_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs([True, False, False, False], [True, False, True, False])
    looks(runs, 4, None, monkeypatch)
    assert [len(left) for left in runs.changes] == [0, 0]
    assert runs.num_told == 2


@pytest.mark.parametrize(("free", "is_full"), [(100 * GB, False), (0, True)])
def test_the_disk_is_told_at_once_and_at_each_tenth_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, is_full: bool
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    read: list[Path] = []

    def room_of(folder: Path) -> Room | None:
        read.append(folder)
        return Room(total_bytes=1000 * GB, free_bytes=free, free_files=10**6)

    monkeypatch.setattr(room_watch, "room_of", room_of)
    told: list[DisksSeen] = []
    looks(Runs(), 12, told.append, monkeypatch)
    folder = paths.data_dir()
    assert read == [folder, folder]
    assert [seen.disks for seen in told] == [
        [
            DiskReading(
                folder=str(folder),
                total_bytes=1000 * GB,
                free_bytes=free,
                free_files=10**6,
                is_full=is_full,
            )
        ]
    ] * 2


def test_nothing_is_told_of_a_disk_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(room_watch, "room_of", lambda folder: None)
    told: list[DisksSeen] = []
    looks(Runs(), 3, told.append, monkeypatch)
    assert told == []
