"""The watch of a gang lasts as long as the gang, so that what it reports is taken back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.hangs import gang_watch


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
        async with asyncio.timeout(60):
            while not closed:
                await asyncio.sleep(0.02)
        task.cancel()

    asyncio.run(watch())
    assert steps == [False, False]
    assert opened == closed == ["1.1.1"]
