"""Connections without a request are closed: after a time, and the oldest of too many."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from det_jupyter.contract.host.pending_connections import PendingConnections


def test_the_oldest_is_closed_when_one_too_many_is_pending() -> None:
    async def check() -> None:
        closed: list[str] = []
        pending = PendingConnections(closed.append, most=2)
        for name in ("a", "b", "a", "c"):  # the second "a" is pending already
            pending.add(name)
        assert (closed, pending.num_pending) == (["a"], 2)

    asyncio.run(check())


def test_a_connection_is_closed_after_its_time_unless_its_request_has_come() -> None:
    async def check() -> None:
        closed: list[str] = []
        pending = PendingConnections(closed.append, head_s=0.01)
        pending.add("silent")
        pending.add("served")
        pending.remove("served")
        pending.remove("unknown")
        while pending.num_pending:
            await asyncio.sleep(0.01)
        assert closed == ["silent"]

    asyncio.run(check())


def test_the_log_gets_one_warning_a_minute_with_the_number_so_far(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pending: PendingConnections[str] = PendingConnections(lambda _: None)
    with caplog.at_level(logging.WARNING):
        for now[0] in (100.0, 159.0, 160.0):
            pending.drop("x")
    assert [record.args for record in caplog.records] == [(1,), (3,)]
