"""Tunnels at the master: who may join one, when it ends, and that it holds little memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import count

import pytest

from det_jupyter.errors import NotFound
from det_jupyter.master.service.agents import tunnels as module
from det_jupyter.master.service.agents.tunnels import Tunnel, Tunnels

PLACE = ("1.1.1", 0)


class Ends:
    """A tunnel: the program's end of its connection, and the id of which the agent is told."""

    def __init__(self, tunnels: Tunnels) -> None:
        self.tunnels = tunnels
        self.ids: list[str] = []
        self.program, self._other = socket.socketpair()
        self.program.setblocking(False)

    async def open(self) -> asyncio.Task[None]:
        """Begin to carry the program's connection."""
        reader, writer = await asyncio.open_connection(sock=self._other)
        carrying = self.tunnels.carry("b", PLACE, self.ids.append, reader, writer)
        task = asyncio.create_task(carrying)
        await asyncio.sleep(0)
        return task

    def join(self) -> tuple[Tunnel, Tunnel]:
        """Join both directions, as the agent does."""
        down = self.tunnels.join("b", self.ids[0], "down")
        return down, self.tunnels.join("b", self.ids[0], "up")

    async def received(self, size: int = 65536) -> bytes:
        """Return what the program receives; b"" when the connection is closed."""
        return await asyncio.get_running_loop().sock_recv(self.program, size)


def play(scenario: Callable[[Ends, Tunnels], Awaitable[None]]) -> None:
    async def run() -> None:
        tunnels = Tunnels()
        ends = Ends(tunnels)
        try:
            await scenario(ends, tunnels)
        finally:
            tunnels.end_of(PLACE)
            ends.program.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(run())


async def sent(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_bytes_go_both_ways_and_either_end_ends_all() -> None:
    async def scenario(ends: Ends, tunnels: Tunnels) -> None:
        carrying = await ends.open()
        down, up = ends.join()
        ends.program.send(b"to the kernel")
        parts = down.bytes_down()
        assert await anext(parts) == b"to the kernel"
        assert await up.write_up(sent(b"from ", b"it"))  # and the kernel closes its end
        assert await ends.received() == b"from it"
        assert await ends.received() == b""
        assert [part async for part in parts] == []
        await carrying

    play(scenario)


def test_program_that_closes_ends_the_request_of_the_agent() -> None:
    async def scenario(ends: Ends, tunnels: Tunnels) -> None:
        carrying = await ends.open()
        down, up = ends.join()

        async def silent() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        writing = asyncio.create_task(up.write_up(silent()))
        ends.program.send(b"last")
        ends.program.close()
        assert [part async for part in down.bytes_down()] == [b"last"]
        assert not await writing  # so the rest of the body is not read
        await carrying

    play(scenario)


def test_tunnel_is_joined_once_in_each_direction_by_the_agent_it_was_ordered_from() -> None:
    async def scenario(ends: Ends, tunnels: Tunnels) -> None:
        await ends.open()
        for agent, number in (("c", ends.ids[0]), ("b", "guess")):
            with pytest.raises(NotFound, match="has no such tunnel to open"):
                tunnels.join(agent, number, "up")
        ends.join()
        for direction in ("down", "up"):
            with pytest.raises(NotFound):
                tunnels.join("b", ends.ids[0], direction)

    play(scenario)


def test_connection_is_closed_when_the_agent_does_not_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_JOIN_S", 0.05)

    async def scenario(ends: Ends, tunnels: Tunnels) -> None:
        carrying = await ends.open()
        tunnels.join("b", ends.ids[0], "down")
        assert await ends.received() == b""
        await carrying
        with pytest.raises(NotFound):
            tunnels.join("b", ends.ids[0], "up")

    play(scenario)


def test_number_of_tunnels_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TUNNELS", 1)

    async def scenario(ends: Ends, tunnels: Tunnels) -> None:
        await ends.open()
        second = Ends(tunnels)
        await second.open()
        assert await second.received() == b""
        second.program.close()
        assert (len(ends.ids), second.ids) == (1, [])

    play(scenario)


def test_program_that_does_not_read_holds_up_the_kernel_and_not_the_end() -> None:
    async def scenario(ends: Ends, tunnels: Tunnels) -> None:
        carrying = await ends.open()
        down, up = ends.join()
        taken = count()

        async def endless() -> AsyncIterator[bytes]:
            for _ in taken:
                yield bytes(65536)

        writing = asyncio.create_task(up.write_up(endless()))
        await asyncio.sleep(0.2)
        num_taken = next(taken)
        await asyncio.sleep(0.2)
        assert num_taken < 64  # 4 MB: what the sockets hold
        assert next(taken) == num_taken + 1
        tunnels.end_of(PLACE)
        await asyncio.gather(writing, carrying)
        assert [part async for part in down.bytes_down()] == []

    play(scenario)


def test_agent_that_does_not_read_holds_up_the_program() -> None:
    async def scenario(ends: Ends, tunnels: Tunnels) -> None:
        await ends.open()
        ends.join()
        num_sent = 0
        with suppress(BlockingIOError):
            for _ in range(1000):
                num_sent += ends.program.send(bytes(65536))
                await asyncio.sleep(0)
        assert 0 < num_sent < 4 * 2**20

    play(scenario)
