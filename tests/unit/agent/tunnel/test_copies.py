"""HeldCopies of sharded models that ranks on two computers fetch from each other's agents."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.agent.tunnel.copies import HeldCopies, copies_shards, holding_copies
from det_jupyter.agent.tunnel.part import LinkedPart, open_part
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import GangPlan
from det_jupyter.contract.run.shard_memory import (
    FOUND,
    MISSING,
    UNREACHED,
    CopyRequest,
    fetch_copy,
)
from tests.unit.agent.tunnel.test_tunnel import ID, folder, link_to, opened, pair

__all__ = ["folder", "pair"]  # fixtures

HOMES = ["a", "b", "b"]  # agents of the ranks
SIZE = 1 << 20  # more than one piece


def content(rank: int, steps: int) -> bytes:
    return struct.pack("=q", steps) + bytes([rank]) * (SIZE - 8)


async def fetched(run: RunDir, rank: int, steps: int = 7, size: int = SIZE) -> tuple[bytes, bytes]:
    """Fetch copy 1 as a rank of the run does; return the answer and the memory."""
    memory = bytearray(size)
    request = CopyRequest(rank, 1, steps, size)
    return await asyncio.to_thread(fetch_copy, run.copies, request, memoryview(memory)), bytes(
        memory
    )


class World:
    """Agents `a`, the chief's, and `b`, which accepts no connections."""

    def __init__(self, folder: Path) -> None:
        self.runs = {name: RunDir(folder / f"run-{name}") for name in "ab"}
        self.parts: dict[str, LinkedPart] = {}
        self.other = AsyncExitStack()  # the part of `b`

    async def open(self, pair: tuple[str, str], held: AsyncExitStack) -> None:
        listener = await held.enter_async_context(opened())
        link = link_to(listener, pair)
        for name, ranks, keeps in (("a", [0], held), ("b", [1, 2], self.other)):
            run = self.runs[name]
            run.path.mkdir()
            copies = keeps.enter_context(holding_copies(run, ranks, HOMES))
            for rank in ranks:
                run.copy(rank, 1).write_bytes(content(rank, 7))
            part = open_part(
                ID,
                link if name == "a" else link.model_copy(update={"key": ""}),
                agents={name},
                store=run.path.with_name(name),
                listener=listener if name == "a" else None,
                copies=copies,
            )
            self.parts[name] = await keeps.enter_async_context(part)
        await asyncio.gather(*(part.gather() for part in self.parts.values()))


@asynccontextmanager
async def world(folder: Path, pair: tuple[str, str]) -> AsyncIterator[World]:
    made = World(folder)
    async with AsyncExitStack() as held:
        held.push_async_callback(made.other.aclose)
        await made.open(pair, held)
        yield made


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_ranks_fetch_copies_of_any_other_computer(folder: Path, pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with world(folder, pair) as made:
            for asks, rank in (("a", 1), ("a", 2), ("b", 0), ("a", 0), ("b", 2)):
                answer, memory = await fetched(made.runs[asks], rank)
                assert (answer, memory) == (FOUND, content(rank, 7))

    play(scenario())


def test_a_copy_of_another_step_or_size_is_not_there(folder: Path, pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with world(folder, pair) as made:
            for asks, rank in (("a", 0), ("a", 1), ("b", 0)):
                run = made.runs[asks]
                assert (await fetched(run, rank, steps=6))[0] == MISSING
                assert (await fetched(run, rank, size=SIZE + 1))[0] == MISSING
                assert (await fetched(run, rank))[0] == FOUND

    play(scenario())


def test_a_rank_that_is_killed_while_it_fetches_leaves_the_connection_to_others(
    folder: Path, pair: tuple[str, str]
) -> None:
    async def scenario() -> None:
        async with world(folder, pair) as made:
            run = made.runs["a"]
            reader, writer = await asyncio.open_unix_connection(run.copies, limit=10)
            writer.write(CopyRequest(1, 1, 7, SIZE).to_line())
            assert await reader.readexactly(1) == FOUND
            writer.transport.abort()
            assert await fetched(run, 2) == (FOUND, content(2, 7))

    play(scenario())


@pytest.mark.parametrize("has_ended", [False, True])
def test_copies_of_an_agent_that_is_cut_off_or_has_ended_are_lost(
    folder: Path, pair: tuple[str, str], *, has_ended: bool
) -> None:
    async def scenario() -> None:
        async with world(folder, pair) as made:
            if has_ended:
                await made.other.aclose()
            elif (copies := made.parts["a"].copies) is not None:
                copies.cut_off()
            for _ in range(2):
                assert (await fetched(made.runs["a"], 1))[0] == UNREACHED
            assert (await fetched(made.runs["a"], 0))[0] == FOUND

    play(scenario())


def test_copies_are_lost_if_their_agent_ends_while_they_are_sent(tmp_path: Path) -> None:
    async def scenario() -> None:
        copies = HeldCopies(RunDir(tmp_path), HOMES)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(FOUND + b"some")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            place = server.sockets[0].getsockname()
            connection = await asyncio.open_connection(*place)
            asked = asyncio.create_task(copies.ask(connection, ["b"]))
            listening = await copies.listen(tmp_path / "s")
            assert (await fetched(RunDir(tmp_path), 1))[0] == UNREACHED
            assert (await fetched(RunDir(tmp_path), 1))[0] == UNREACHED
            listening.close()
            asked.cancel()

    play(scenario())


def test_memory_is_held_for_sharded_models_on_cpus() -> None:
    def holds(sharding: str | None, *kinds: str) -> bool:
        slots = [SimpleNamespace(kind=kind) for kind in kinds]
        config = {"optimizations": {"sharding": sharding}}
        return copies_shards(cast(GangPlan, SimpleNamespace(config=config, slots=slots)))

    assert holds("fsdp", "cpu", "cpu")
    assert not holds("fsdp", "cpu")
    assert not holds("fsdp", "cuda", "cuda")
    assert not holds(None, "cpu", "cpu")


def test_without_memory_files_there_are_no_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.memfd_create")
    with holding_copies(RunDir(tmp_path), [0], ["a"]) as copies:
        assert copies is None
    assert not any(tmp_path.iterdir())


def test_a_run_needs_no_memory_for_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, made = RunDir(tmp_path), list[int]()

    def forbidden_later(name: str) -> int:
        if made:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        made.append(os.open(tmp_path / "memory", os.O_CREAT | os.O_RDWR))
        return made[0]

    monkeypatch.setattr("os.memfd_create", forbidden_later)
    with holding_copies(run, [0, 1], ["a", "a"]) as copies:
        assert copies is None
        assert not os.path.lexists(run.copy(0, 0))  # another file may get its number
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(made[0])


def test_links_to_memory_end_with_it(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with holding_copies(run, [0], ["a"]):
        run.copy(0, 1).write_bytes(b"some")
        assert run.copy(0, 1).read_bytes() == b"some"
    assert not os.path.lexists(run.copy(0, 1))
