"""How long a gang waits for a fork server that is not ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.starting import launcher
from det_jupyter.contract.messages import ZygoteReady

READY = ZygoteReady(protocol=1, version="1", warmup_s=1.0)


def wait(
    monkeypatch: pytest.MonkeyPatch,
    times: Iterable[float],
    *,
    frozen: Iterable[bool] = (),
    act: Callable[[asyncio.Event, asyncio.Future[ZygoteReady]], object] = lambda *_: None,
) -> tuple[ZygoteReady | None, list[float]]:
    """Return what is waited for, and the times that are left over.

    Args:
        times: Of the clock, each time that it is read.
        frozen: Whether the fork server is stopped, each time that it is looked at; else it is not.
        act: Called with the order to end and with the readiness, before the wait begins.
    """
    clock, looks = iter(times), iter(frozen)
    monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(launcher, "_CHECK_S", 0.001)
    monkeypatch.setattr(launcher, "is_frozen", lambda pid: next(looks, False))

    async def run() -> ZygoteReady | None:
        end, answer = asyncio.Event(), asyncio.get_running_loop().create_future()
        act(end, answer)

        async def ready() -> ZygoteReady:
            found: ZygoteReady = await answer
            return found

        zygote: Any = SimpleNamespace(pid=7, ready=ready)
        found = await launcher._readiness(zygote, end)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return found

    return asyncio.run(run()), list(clock)


def test_a_gang_waits_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = launcher._WARMUP_S
    times = [100.0, 100.0, 101.0, 100.0 + limit - 1, 100.0 + limit, 999.0]
    assert wait(monkeypatch, times) == (None, [999.0])


def test_a_gang_waits_for_no_fork_server_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = [True, False, True, True]  # a debugger stops it for an instant
    assert wait(monkeypatch, [1.0] * 6, frozen=frozen) == (None, [1.0])


def test_a_gang_that_is_to_end_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wait(monkeypatch, [1.0] * 3, act=lambda end, _: end.set()) == (None, [1.0])


def test_a_fork_server_that_is_ready_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found = wait(monkeypatch, [1.0] * 3, act=lambda _, answer: answer.set_result(READY))
    assert found == (READY, [1.0])
