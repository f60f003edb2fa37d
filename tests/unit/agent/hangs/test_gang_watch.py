"""The watch of a gang lasts as long as the gang, so that what it reports is taken back."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.hangs import gang_watch, keeping
from det_jupyter.contract.host import paths
from tests.processes import wait_until


def test_a_gang_that_waits_for_room_is_not_judged_and_its_watch_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = SimpleNamespace(id="1.1.1", waits_for_room=False)
    opened: list[str] = []
    closed: list[str] = []
    steps: list[bool] = []

    def open_watch(run: Any) -> Any:
        opened.append(run.id)
        return SimpleNamespace(close=lambda: closed.append(run.id))

    def step(watch: Any, gang: Any) -> bool:
        steps.append(run.waits_for_room)
        return False

    monkeypatch.setattr(gang_watch, "_open", open_watch)
    monkeypatch.setattr(gang_watch, "_step", step)
    rounds = iter([False, True, True, False, None, None])

    def living() -> list[Any]:
        waits = next(rounds, None)
        if waits is None:
            return []
        run.waits_for_room = waits
        return [SimpleNamespace(run=run)]

    async def watch() -> None:
        monkeypatch.setattr(gang_watch, "INTERVAL_S", 0.0)
        task = asyncio.create_task(gang_watch.watch_gangs(living, lambda: None))
        while not closed:
            await asyncio.sleep(0.02)
        task.cancel()

    asyncio.run(watch())
    assert steps == [False, False]
    assert opened == closed == ["1.1.1"]


def test_py_spy_does_not_delay_the_watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """py-spy may take 5 s for each rank, and all gangs are sampled by one task."""
    may_read = threading.Event()

    def slow_stacks(pid: int) -> str:
        may_read.wait(600)
        return f"stack of {pid}"

    monkeypatch.setattr(keeping, "spy", slow_stacks)
    monkeypatch.setattr(paths, "data_dir", lambda: tmp_path)
    stacks = tmp_path / "stacks"
    stacks.write_text("line 3")
    folder = SimpleNamespace(stacks=lambda rank: stacks, recorder=lambda rank: tmp_path / "none")
    run: Any = SimpleNamespace(id="1.1.1", dir=folder)
    kept = keeping.keep_files(run, {0: 7, 1: 8})
    assert kept is not None
    assert sorted(path.name for path in kept.iterdir()) == ["stacks-0.txt", "stacks-1.txt"]
    may_read.set()
    wait_until(lambda: (kept / "py-spy-1.txt").exists(), "it is kept")
    assert (kept / "py-spy-0.txt").read_text() == "stack of 7"
