"""Tunnels: connections from programs here, by an agent, to a kernel on the agent's computer.

    a program connects to a unix socket   the agent is commanded to open a tunnel, with a random id
    the agent sends GET and POST          they join the connection: bytes down, bytes up
    one of the three ends                 all end

An agent can join only tunnels that it was commanded to open, each once; it cannot make the master
open a connection. No bytes are queued here: each direction waits for its slower end.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Literal, TypeAlias

from det_jupyter.errors import NotFound

logger = logging.getLogger(__name__)

MOST_TUNNELS = 256  # most tunnels; a console has up to five
_JOIN_S = 5.0  # time for the agent to send both requests
_FLUSH_S = 2.0
_PART_BYTES = 64 * 1024

Place: TypeAlias = tuple[str, int]  # allocation and rank
Direction: TypeAlias = Literal["down", "up"]


class Tunnel:
    """A connection to a program of a rank, carried by two requests of the agent."""

    def __init__(
        self,
        agent_id: str,
        place: Place,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.agent_id = agent_id
        self.place = place
        self.expected: set[Direction] = {"down", "up"}  # directions that have not been joined
        self.is_joined = asyncio.Event()
        self._ended = asyncio.Event()
        self._reader = reader
        self._writer = writer

    async def bytes_down(self) -> AsyncIterator[bytes]:
        """Yield the bytes that the program sends, until the tunnel ends."""
        try:
            with suppress(ConnectionError):
                while part := await self._reader.read(_PART_BYTES):
                    yield part
        finally:
            self.end()

    async def write_up(self, parts: AsyncIterator[bytes]) -> bool:
        """Write the bytes that the kernel sends to the program, until the tunnel ends.

        Returns:
            Whether the parts were read to their end.
        """
        copying = asyncio.create_task(self._write(parts))
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({copying, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.end()
            copying.cancel()
            ended.cancel()
            results = await asyncio.gather(copying, ended, return_exceptions=True)
        return results[0] is None  # else the write was cancelled, or the agent has disconnected

    async def _write(self, parts: AsyncIterator[bytes]) -> None:
        async for part in parts:
            self._writer.write(part)
            await self._writer.drain()

    async def wait_ended(self) -> None:
        """Wait until the tunnel has ended."""
        await self._ended.wait()

    def end(self) -> None:
        """Close the connection, which ends both requests. Idempotent."""
        if self._ended.is_set():
            return
        self._ended.set()
        self.is_joined.set()  # stop waiting for the agent
        self._writer.close()  # writes what is buffered
        if not self._reader.at_eof():
            self._reader.feed_eof()
        # If the program is stopped, it does not read, and the connection would stay open.
        asyncio.get_running_loop().call_later(_FLUSH_S, self._writer.transport.abort)


class Tunnels:
    """All open tunnels."""

    def __init__(self) -> None:
        self._tunnels: dict[str, Tunnel] = {}  # by id
        self._is_full = False  # whether the last connection was refused

    async def carry(
        self,
        agent_id: str,
        place: Place,
        order: Callable[[str], None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Carry a connection until either end closes it, or close it if the agent does not join.

        Args:
            agent_id: The agent that carries it.
            place: The rank whose kernel it leads to.
            order: Commands the agent to open the tunnel with this id.
            reader: Reads bytes from the program.
            writer: Writes bytes to the program.
        """
        if len(self._tunnels) >= MOST_TUNNELS:
            if not self._is_full:  # logged once, as programs retry several times a second
                logger.warning("consoles are refused: %d tunnels are open", MOST_TUNNELS)
            self._is_full = True
            writer.close()
            return
        self._is_full = False
        tunnel, number = Tunnel(agent_id, place, reader, writer), secrets.token_urlsafe(16)
        self._tunnels[number] = tunnel
        try:
            order(number)
            async with asyncio.timeout(_JOIN_S):
                await tunnel.is_joined.wait()
            await tunnel.wait_ended()
        except TimeoutError:
            logger.warning("agent %s did not open a tunnel within %g s", agent_id, _JOIN_S)
        finally:
            del self._tunnels[number]
            tunnel.end()

    def join(self, agent_id: str, number: str, direction: Direction) -> Tunnel:
        """Return a tunnel for one request of the agent that was commanded to open it.

        Raises:
            NotFound: There is no tunnel with this id for this agent, or the direction is joined
                already.
        """
        tunnel = self._tunnels.get(number)
        if tunnel is None or tunnel.agent_id != agent_id or direction not in tunnel.expected:
            raise NotFound(f"agent {agent_id} has no such tunnel to open")
        tunnel.expected.remove(direction)
        if not tunnel.expected:
            tunnel.is_joined.set()
        return tunnel

    def end_of(self, place: Place) -> None:
        """End the tunnels to a rank."""
        for tunnel in self._tunnels.values():
            if tunnel.place == place:
                tunnel.end()
