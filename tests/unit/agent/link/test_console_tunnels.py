"""Bytes between the master and kernels of ranks: sockets are real, the master is played."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from det_jupyter.agent.link import console_tunnels
from det_jupyter.agent.link.console_tunnels import ConsoleTunnels, announce_kernels
from det_jupyter.agent.link.master_link import MasterLink
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host.connection_files import write_connection_file
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import AgentCredentials, OpenTunnel, RankKernel
from tests.integration.agent_support import make_plan

CREDENTIALS = AgentCredentials(agent="b", url="https://127.0.0.1:1", certificate="", token="t")
TUNNEL = OpenTunnel(id="x", allocation_id="1.1.1", rank=1, socket=2)
URL = "/api/v1/agents/b/tunnels/x"


class Bytes(httpx.AsyncByteStream):
    """The bytes that a test sends to the kernel, until it sends None."""

    def __init__(self, parts: asyncio.Queue[bytes | None]) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self._parts.get()) is not None:
            yield part


class Master(httpx.AsyncBaseTransport):
    """The master's end of tunnels; `status` is what it answers."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.down: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.up = b""
        self.status = 200
        self.is_closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        if self.status != 200:
            return httpx.Response(self.status)
        if request.method == "GET":
            return httpx.Response(200, stream=Bytes(self.down))
        async for part in cast(httpx.AsyncByteStream, request.stream):
            self.up += part
        return httpx.Response(200)

    async def aclose(self) -> None:
        self.is_closed = True


class Kernel:
    """A kernel's socket, with the connections to it."""

    def __init__(self) -> None:
        self.connected: asyncio.Queue[Any] = asyncio.Queue()
        self.after: list[asyncio.Task[bytes]] = []  # awaited when the link has ended
        self._writers: list[asyncio.StreamWriter] = []

    async def listen(self, path: Path) -> asyncio.Server:
        """Listen at a path."""

        async def on_connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.append(writer)
            self.connected.put_nowait((reader, writer))

        return await asyncio.start_unix_server(on_connected, path)

    async def close(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


Scenario = Callable[[ConsoleTunnels, Master, Kernel], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], Master]:
    """Return what plays a scenario; its tunnels end with it."""
    asked: list[Any] = []

    def play_one(scenario: Scenario) -> Master:
        async def act() -> Master:
            master, kernel = Master(), Kernel()

            def open_http(credentials: Any, *, most_connections: Any) -> httpx.AsyncClient:
                asked.append((credentials, most_connections))
                return httpx.AsyncClient(transport=master, base_url="http://m")

            monkeypatch.setattr(console_tunnels, "open_http", open_http)
            run = AgentRun(plan=make_plan("1.1.1", []), dir=RunDir(tmp_path), sockets=tmp_path)
            over = AgentRun(plan=make_plan("2.1.1", []), dir=RunDir(tmp_path), sockets=None)
            server = await kernel.listen(tmp_path / "1-2")
            try:
                runs = {"1.1.1": run, "2.1.1": over}
                async with ConsoleTunnels(CREDENTIALS, runs) as tunnels:
                    await scenario(tunnels, master, kernel)
                assert [await task for task in kernel.after] == [b""] * len(kernel.after)
            finally:
                server.close()
                await kernel.close()
            assert asked in ([], [(CREDENTIALS, None)])  # one client for all tunnels
            assert master.is_closed is bool(asked)
            return master

        return asyncio.run(act())

    return play_one


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_bytes_go_both_ways_until_the_kernel_closes(play: Callable[[Scenario], Master]) -> None:
    async def scenario(tunnels: ConsoleTunnels, master: Master, kernel: Kernel) -> None:
        tunnels.open(TUNNEL)
        reader, writer = await kernel.connected.get()
        master.down.put_nowait(b"to the kernel")
        assert await reader.readexactly(13) == b"to the kernel"
        writer.write(b"from it")
        await until(lambda: master.up == b"from it")
        writer.close()
        assert await reader.read() == b""

    master = play(scenario)
    assert sorted(master.requests) == [f"GET {URL}", f"POST {URL}"]


def test_a_tunnel_that_the_master_ends_is_closed_at_the_kernel(
    play: Callable[[Scenario], Master],
) -> None:
    async def scenario(tunnels: ConsoleTunnels, master: Master, kernel: Kernel) -> None:
        for _ in range(2):
            tunnels.open(TUNNEL)
            reader, writer = await kernel.connected.get()
            master.down.put_nowait(b"last")
            master.down.put_nowait(None)
            assert await reader.read() == b"last"
            writer.close()
            await until(lambda: not tunnels._tasks)

    play(scenario)


@pytest.mark.parametrize("allocation_id", ["1.1.1", "2.1.1", "9.9.9"])
def test_a_kernel_that_cannot_be_reached_ends_the_tunnel_at_the_master(
    play: Callable[[Scenario], Master], caplog: pytest.LogCaptureFixture, allocation_id: str
) -> None:
    async def scenario(tunnels: ConsoleTunnels, master: Master, kernel: Kernel) -> None:
        unknown = {"allocation_id": allocation_id, "socket": 3}
        tunnels.open(TUNNEL.model_copy(update=unknown))
        await until(lambda: master.requests)

    with caplog.at_level(logging.INFO):
        assert play(scenario).requests == [f"POST {URL}"]
    assert f"allocation={allocation_id} rank=1: its kernel cannot be reached" in caplog.text


def test_a_tunnel_that_fails_ends_no_other(
    play: Callable[[Scenario], Master], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(tunnels: ConsoleTunnels, master: Master, kernel: Kernel) -> None:
        master.status = 404
        tunnels.open(TUNNEL)
        reader, writer = await kernel.connected.get()
        assert await reader.read() == b""
        writer.close()
        master.status = 200
        tunnels.open(TUNNEL)
        reader, writer = await kernel.connected.get()
        writer.write(b"still")
        await until(lambda: master.up == b"still")
        writer.close()

    with caplog.at_level(logging.INFO):
        play(scenario)
    assert "a tunnel ended: " in caplog.text


def test_tunnels_end_with_the_link(play: Callable[[Scenario], Master]) -> None:
    connections: list[Any] = []

    async def scenario(tunnels: ConsoleTunnels, master: Master, kernel: Kernel) -> None:
        tunnels.open(TUNNEL)
        connections.append(await kernel.connected.get())
        connections[0][1].write(b"from it")
        await until(lambda: master.up)
        kernel.after.append(asyncio.create_task(connections[0][0].read()))

    play(scenario)
    assert len(connections) == 1


def test_kernels_of_living_runs_are_told_once_when_they_have_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(console_tunnels, "_POLL_S", 0.0)
    told: list[RankKernel] = []

    async def announce(kernel: RankKernel) -> str:
        told.append(kernel)
        return "the run is over" if kernel.rank == 1 else ""

    link = cast(MasterLink, SimpleNamespace(announce=announce))
    plan = make_plan("1.1.1", [], slots=4)
    run = AgentRun(plan=plan, dir=RunDir(tmp_path), sockets=tmp_path)
    over: Any = SimpleNamespace(is_alive=False)
    run.dir.connection_file(2).write_text("changed by user code")

    async def act() -> None:
        announcing = asyncio.create_task(announce_kernels(link, {"1.1.1": run, "2.1.1": over}))
        for _ in range(5):
            await asyncio.sleep(0)
        assert told == []
        for rank in (0, 1):
            write_connection_file(
                run.dir.connection_file(rank), prefix=f"/s/{rank}", key=f"{rank}" * 64
            )
        await until(lambda: len(told) == 2)
        for _ in range(5):
            await asyncio.sleep(0)
        announcing.cancel()

    asyncio.run(act())
    assert told == [
        RankKernel(allocation_id="1.1.1", rank=rank, key=f"{rank}" * 64) for rank in (0, 1)
    ]
    assert "run 1.1.1: rank 1 has no console: the run is over" in caplog.text


def test_a_fault_in_a_tunnel_is_told_and_ends_no_link(
    play: Callable[[Scenario], Master],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: str) -> None:
        raise RuntimeError("a fault of ours")

    async def scenario(tunnels: ConsoleTunnels, master: Master, kernel: Kernel) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "open_unix_connection", fail)
            tunnels.open(TUNNEL)
            await until(lambda: not tunnels._tasks)

    play(scenario)
    (record,) = caplog.records
    assert record.getMessage() == "a tunnel failed"
