"""How long a lease lasts and what its watcher is told; the watcher is played."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.runs import lease as module
from det_jupyter.agent.runs.lease import Lease
from det_jupyter.agent.runs.lease_watch import EXPIRED
from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.contract.messages import Loss


class Watchers:
    """The watchers that a lease starts, and the clocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0  # since boot
        self.monotonic = 50.0
        self.sockets: list[socket.socket] = []
        self.codes: list[int | None] = []
        self.error: OSError | None = None
        self.waited: list[float] = []
        monkeypatch.setattr(module, "since_boot", lambda: self.now)
        clock = SimpleNamespace(monotonic=lambda: self.monotonic)
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(module, "_start_watcher", self._start)

    def _start(self) -> tuple[Any, socket.socket]:
        if self.error is not None:
            raise self.error
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.sockets.append(theirs)
        self.codes.append(None)
        number = len(self.codes) - 1
        watcher = SimpleNamespace(poll=lambda: self.codes[number], wait=self.waited.append)
        return watcher, ours

    def told(self) -> bytes:
        """Return the last line that the newest watcher got since the last call; b"": none."""
        try:
            return self.sockets[-1].recv(1000).splitlines(keepends=True)[-1]
        except (BlockingIOError, IndexError):
            return b""

    def answer(self, line: bytes) -> None:
        """Answer as the newest watcher."""
        self.sockets[-1].sendall(line + b"\n")

    def close(self) -> None:
        """Close all sockets."""
        for each in self.sockets:
            each.close()


def play(
    monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Lease, Watchers], Awaitable[None]]
) -> None:
    async def act() -> None:
        watchers = Watchers(monkeypatch)
        lease = Lease(fence_s=25.0)
        try:
            await scenario(lease, watchers)
            await lease.close()
        finally:
            watchers.close()

    asyncio.run(act())


async def held(lease: Lease, watchers: Watchers) -> int:
    """Hold the lease; the watcher answers."""
    holding = asyncio.create_task(lease.hold())
    while not (told := watchers.told()):
        await asyncio.sleep(0)
    watchers.answer(told.strip())
    return await holding


def test_ranks_are_killed_a_second_after_the_agent_should_have_ended_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(lease: Lease, watchers: Watchers) -> None:
        holding = asyncio.create_task(lease.hold())
        await asyncio.sleep(0)
        assert watchers.told() == b"1026.0\n"  # 25 s to end them, and one more
        for line in (b"900.0", b"1025.9", b"inf"):
            watchers.answer(line)  # of former leases
        for _ in range(5):
            await asyncio.sleep(0)
        assert not holding.done()
        watchers.answer(b"1026.0")
        assert await holding == 0
        watchers.now = 1010.0
        assert lease.unanswered_s == 10.0
        lease.renew(1005.0)
        assert watchers.told() == b"1031.0\n"
        lease.renew(1001.0)  # its answer was overtaken
        assert watchers.told() == b"1031.0\n"
        assert lease.unanswered_s == 5.0
        lease.release()
        assert watchers.told() == b"inf\n"
        lease.release()
        lease.renew(1010.0)
        assert watchers.told() == b""  # no ranks run

    play(monkeypatch, scenario)


@pytest.mark.parametrize(("silent_s", "starts"), [(25.0, True), (26.0, False)])
def test_no_rank_is_started_while_the_master_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, silent_s: float, starts: bool
) -> None:
    async def scenario(lease: Lease, watchers: Watchers) -> None:
        watchers.now += silent_s
        if starts:
            assert await held(lease, watchers) == 0
            return
        with pytest.raises(StartFailed, match="the master has not answered for 26 s") as caught:
            await held(lease, watchers)
        assert caught.value.loss is Loss.MASTER

    play(monkeypatch, scenario)


def test_no_rank_is_started_without_an_answer_of_the_watcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 0.01)

    async def scenario(lease: Lease, watchers: Watchers) -> None:
        with pytest.raises(StartFailed, match=r"has not answered for 0\.01 s") as caught:
            await lease.hold()
        assert caught.value.loss is None

    play(monkeypatch, scenario)


def test_ranks_that_the_watcher_has_killed_are_known_to_be(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(lease: Lease, watchers: Watchers) -> None:
        first = await held(lease, watchers)
        assert not lease.has_expired_since(first)
        watchers.sockets[-1].sendall(EXPIRED[:3])
        assert not lease.has_expired_since(first)
        watchers.sockets[-1].sendall(EXPIRED[3:] + b"\n")
        assert lease.has_expired_since(first)
        second = await held(lease, watchers)
        assert not lease.has_expired_since(second)
        assert lease.has_expired_since(first)

    play(monkeypatch, scenario)
    assert "the lease has expired: all ranks were killed" in caplog.text


def test_a_watcher_that_ends_is_replaced_and_told_the_lease(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(lease: Lease, watchers: Watchers) -> None:
        await held(lease, watchers)
        lease.keep_watched()
        assert len(watchers.codes) == 1
        watchers.codes[0] = -9
        watchers.sockets[0].close()
        assert not lease.has_expired_since(0)  # it notices that the connection is closed
        watchers.monotonic += 1.9
        lease.keep_watched()  # it may never work: not too often
        assert len(watchers.codes) == 1
        watchers.monotonic += 0.1
        lease.keep_watched()
        assert len(watchers.codes) == 2
        assert watchers.told() == b"1026.0\n"
        lease.release()
        watchers.codes[1] = 0
        watchers.monotonic += 2.0
        watchers.told()
        lease.keep_watched()
        assert watchers.told() == b""  # nothing runs that it could kill
        assert watchers.sockets[1].recv(10) == b""  # the former one is not written to any more

    with caplog.at_level(logging.WARNING):
        play(monkeypatch, scenario)
    assert [record.getMessage() for record in caplog.records] == [
        "the process that ends ranks has exited (-9): started again",
        "the process that ends ranks has exited (0): started again",
    ]


def test_a_watcher_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(lease: Lease, watchers: Watchers) -> None:
        watchers.error = OSError(24, "Too many open files")
        lease.keep_watched()
        assert not lease.has_expired_since(0)
        lease.renew(1001.0)
        watchers.error = None
        lease.keep_watched()
        assert len(watchers.codes) == 1

    play(monkeypatch, scenario)
    assert "the process that ends ranks cannot be started: [Errno 24]" in caplog.text


def test_a_lease_ends_with_its_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(lease: Lease, watchers: Watchers) -> None:
        await held(lease, watchers)
        await lease.close()
        assert watchers.told() == b"inf\n"
        assert watchers.sockets[-1].recv(10) == b""  # it ends with its connection
        assert watchers.waited == [5.0]
        watchers.waited.clear()

    play(monkeypatch, scenario)


def test_a_watcher_that_closes_its_connection_is_replaced_though_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(lease: Lease, watchers: Watchers) -> None:
        await held(lease, watchers)
        watchers.sockets[0].close()
        assert not lease.has_expired_since(0)
        watchers.monotonic += 2.0
        lease.keep_watched()
        assert len(watchers.codes) == 2
        assert watchers.told() == b"1026.0\n"
        waiting = asyncio.create_task(lease.hold())  # the answer of the former one is void
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        watchers.answer(b"1026.0")
        await waiting

    play(monkeypatch, scenario)
