"""Holds the memory of copies of sharded models, and sends copies between the parts of a gang.

    memory    files without names (memfd), two for each rank here, which outlive the ranks. Links
              in the run's folder lead to them. They are empty until a rank writes into them
    request   of a rank that saves the last step, for a copy of a rank on another computer:

              rank ── unix socket ── its agent ── TLS ── chief's agent ── TLS ── the other agent

Each agent but the chief's opens two connections to the chief's before ranks start: one for its own
requests (`copies`), one for those of the others (`own_copies`). So agents that accept no
connections can be asked, and an agent that has ended is noticed at once. If an agent is lost, so
are the copies of its ranks: the trial begins again from its last checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import BinaryIO

from det_jupyter.agent.tunnel.connections import LIMIT_BYTES, Connection, copies_socket
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import GangPlan
from det_jupyter.contract.run.shard_memory import (
    FOUND,
    MISSING,
    NUM_COPIES,
    UNREACHED,
    CopyRequest,
)

logger = logging.getLogger(__name__)

_WORD = struct.Struct("=q")


@dataclass(slots=True, eq=False)
class _Elsewhere:
    """A connection that answers requests, one after the other."""

    connection: Connection
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def pass_on(self, request: CopyRequest, to: asyncio.StreamWriter) -> None:
        """Send a request to the other agent, and its answer to the one that has asked."""
        async with self.lock:
            reader, writer = self.connection
            answer = UNREACHED
            with suppress(OSError, asyncio.IncompleteReadError):
                if not writer.is_closing():  # a write would fail in asyncio
                    writer.write(request.to_line())
                    answer = await reader.readexactly(1)
            to.write(answer)
            left = request.num_bytes if answer == FOUND else 0
            while left:
                data = await reader.read(min(left, LIMIT_BYTES))
                if not data:
                    raise ConnectionResetError("the other agent has ended")
                left -= len(data)
                if not to.is_closing():  # else the next answer follows what is left of this one
                    with suppress(OSError):
                        to.write(data)
                        await to.drain()


@dataclass(slots=True, eq=False)
class HeldCopies:
    """The copies of a gang's ranks: those here, and how to get those elsewhere.

    Args:
        folder: The folder of its run here.
        homes: The agents of the gang, by rank.
    """

    folder: RunDir
    homes: Sequence[str]
    _files: dict[tuple[int, int], BinaryIO] = field(default_factory=dict)  # by rank and number
    _elsewhere: dict[str, _Elsewhere] = field(default_factory=dict)  # by agent

    def hold(self, rank: int, number: int, file: BinaryIO) -> None:
        """Add the memory of a copy of a rank here."""
        self._files[rank, number] = file

    async def listen(self, store: Path) -> asyncio.Server:
        """Answer the requests of the ranks here, which have this store."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.answer((reader, writer))

        path = copies_socket(store)
        self.folder.copies.symlink_to(path)
        return await asyncio.start_unix_server(answer, path)

    async def ask(self, connection: Connection, agents: Iterable[str]) -> None:
        """Use a connection to get the copies of the ranks on these agents, until it is closed."""
        self._elsewhere |= dict.fromkeys(agents, _Elsewhere(connection))
        try:
            with suppress(OSError):
                await connection[1].wait_closed()
        finally:
            connection[1].close()

    def cut_off(self) -> None:
        """Close the connections to other agents, one of which does not answer any more."""
        for other in self._elsewhere.values():
            other.connection[1].transport.abort()

    async def answer(self, connection: Connection) -> None:
        """Answer the requests of a connection until it is closed."""
        reader, writer = connection
        try:
            with suppress(OSError, ValueError):  # lost; or the memory was closed
                while line := await reader.readline():
                    await self._answer(CopyRequest.from_line(line), writer)
                    await writer.drain()
        finally:
            writer.close()

    async def _answer(self, request: CopyRequest, writer: asyncio.StreamWriter) -> None:
        if (file := self._files.get((request.rank, request.number))) is not None:
            await _send(file, request, writer)
        elif (other := self._elsewhere.get(self.homes[request.rank])) is not None:
            await other.pass_on(request, writer)
        else:
            writer.write(UNREACHED)


async def _send(file: BinaryIO, request: CopyRequest, writer: asyncio.StreamWriter) -> None:
    head = os.pread(file.fileno(), _WORD.size, 0)
    is_there = head == _WORD.pack(request.steps_completed)
    if not is_there or os.fstat(file.fileno()).st_size < request.num_bytes:
        writer.write(MISSING)
        return
    writer.write(FOUND)
    for at in range(0, request.num_bytes, LIMIT_BYTES):
        writer.write(os.pread(file.fileno(), min(LIMIT_BYTES, request.num_bytes - at), at))
        await writer.drain()


def copies_shards(plan: GangPlan) -> bool:
    """Return whether the ranks of a plan copy sharded models, if their trial allows it."""
    optimizations = plan.config.get("optimizations") or {}
    are_on_cpus = all(slot.kind == "cpu" for slot in plan.slots)
    return are_on_cpus and len(plan.slots) > 1 and optimizations.get("sharding") is not None


@contextmanager
def holding_copies(
    folder: RunDir, ranks: Iterable[int], homes: Sequence[str]
) -> Iterator[HeldCopies | None]:
    """Hold memory for the copies of these ranks within the block; None if it cannot be had."""
    if not hasattr(os, "memfd_create"):
        yield None
        return
    copies = HeldCopies(folder, homes)
    with ExitStack() as held:
        try:
            for rank, number in product(ranks, range(NUM_COPIES)):
                file = held.enter_context(open(os.memfd_create("shard"), "r+b", buffering=0))
                held.enter_context(_linked(folder.copy(rank, number), file))
                copies.hold(rank, number, file)
        except OSError as error:  # a sandbox forbids the memory; or the disk has no links
            logger.warning("%s: no memory for copies of sharded models: %s", folder.path, error)
            held.close()
            yield None
            return
        yield copies


@contextmanager
def _linked(link: Path, file: BinaryIO) -> Iterator[None]:
    """Have a link to a file without a name, which is removed before another one has its number."""
    link.symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")
    try:
        yield
    finally:
        with suppress(OSError):  # the user's code has removed the folder
            link.unlink()
