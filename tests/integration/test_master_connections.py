"""What another user of the computer can do to a master, without and with its token."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from operator import methodcaller
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from det_jupyter.contract.host.pending_connections import HEAD_BYTES, PendingConnections
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.master.http.guard import MOST_BODY_BYTES
from det_jupyter.master.http.server import with_bounds
from tests.integration.master_support import make_client, master_process
from tests.problems import sentences_of
from tests.processes import wait_until

HEAD = b"POST /api/v1/preview HTTP/1.1\r\nHost: 127.0.0.1\r\n"
MB = 1_000_000
ANSWER_S = 1.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def info(home: Path) -> Iterator[MasterInfo]:
    """Return the address of a real master that may open 600 files."""
    with master_process(home) as master:
        info = master.start()
        resource.prlimit(info.pid, resource.RLIMIT_NOFILE, (600, 600))
        yield info


def connect(info: MasterInfo) -> socket.socket:
    host, _, port = info.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)))


def test_a_thousand_half_open_connections_do_not_stop_the_master(
    info: MasterInfo, home: Path
) -> None:
    crowd = []
    try:
        with make_client(info) as http:
            for number in range(1000):
                crowd.append(connect(info))
                crowd[-1].send(HEAD[: number % len(HEAD)])
                if number % 200 == 199:
                    assert http.get("/master").status_code == 200
        with make_client(info) as newcomer:
            assert newcomer.get("/master").status_code == 200
        assert psutil.Process(info.pid).num_fds() < 600
        assert (home / "data/logs/master.log").read_text().count("WARNING") == 1
        assert "Traceback" not in (home / "data/logs/master.log").read_text()
    finally:
        for one in crowd:
            one.close()


def test_a_thousand_connections_at_once_do_not_stop_the_master(
    info: MasterInfo, home: Path
) -> None:
    """They are made while the master is suspended, so it accepts all of them at once."""
    master = psutil.Process(info.pid)
    crowd = []
    try:
        master.suspend()
        crowd += [connect(info) for _ in range(1000)]
        master.resume()
        with make_client(info) as newcomer:
            assert newcomer.get("/master").status_code == 200
        assert "Traceback" not in (home / "data/logs/master.log").read_text()
    finally:
        master.resume()
        for one in crowd:
            one.close()


def test_requests_that_are_none_fill_no_log(info: MasterInfo, home: Path) -> None:
    log = home / "data/logs/master.log"
    before = log.read_text()
    for _ in range(3):
        with closing(connect(info)) as one:
            one.sendall(b"this is no HTTP\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 400"
    assert log.read_text() == before


def send_without_end(one: socket.socket, most_bytes: int) -> int:
    """Send until the connection is closed; return how many bytes were read."""
    sent = 0
    try:
        while sent < most_bytes:
            sent += one.send(bytes(65536))
    except OSError:
        pass
    return sent


def test_a_body_without_the_token_is_not_read(info: MasterInfo) -> None:
    with closing(connect(info)) as one:
        one.sendall(HEAD + b"Content-Length: 1000000000\r\n\r\n")
        assert one.recv(12) == b"HTTP/1.1 401"
        assert send_without_end(one, 1000 * MB) < 20 * MB


def test_a_body_that_is_announced_too_large_is_not_read(info: MasterInfo) -> None:
    with make_client(info) as http:
        answer = http.post("/preview", content=bytes(MOST_BODY_BYTES + 1))
    assert answer.status_code == 413
    assert sentences_of(answer.json()) == ["the request is too large; expected at most 64 MB"]


def test_a_body_that_turns_out_too_large_is_not_kept(info: MasterInfo) -> None:
    master = psutil.Process(info.pid)
    before = master.memory_info().rss
    with make_client(info) as http:
        answer = http.post("/preview", content=(bytes(MB) for _ in range(150)))
    assert answer.status_code == 413
    assert "expected at most 64 MB" in sentences_of(answer.json())[0]
    assert master.memory_info().rss - before < 2.5 * MOST_BODY_BYTES


# The limits themselves, shortened


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Send a response slowly, as the feed does."""
    await asyncio.sleep(ANSWER_S)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"yes"})


@asynccontextmanager
async def served(waiting: PendingConnections[asyncio.Transport]) -> AsyncIterator[int]:
    """Serve in this event loop; yield the port."""
    config = uvicorn.Config(answer, http="h11", ws="none", lifespan="off", log_config=None)
    config.load()
    make: Any = with_bounds(config.http_protocol_class, waiting)
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: make(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        yield server.sockets[0].getsockname()[1]


async def hung_up(port: int, *parts: bytes, pause_s: float = 0.05) -> bool:
    """Send parts with pauses; return whether the connection is closed without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_s)
        return not await reader.read(1)
    except ConnectionError:
        return True
    finally:
        writer.close()


def test_a_request_has_to_come_in_time_and_its_answer_may_take_longer() -> None:
    whole = HEAD + b"\r\n"

    async def check() -> None:
        async with served(PendingConnections(methodcaller("abort"), head_s=0.2)) as port:
            assert await hung_up(port), "nothing is said"
            assert await hung_up(port, *(whole[i : i + 1] for i in range(10))), "a byte at a time"
        async with served(PendingConnections(methodcaller("abort"), head_s=ANSWER_S / 2)) as port:
            assert not await hung_up(port, whole[:20], whole[20:]), "it took longer to answer"

    asyncio.run(check())


def test_a_head_without_end_is_hung_up_on() -> None:
    async def check() -> None:
        async with served(PendingConnections(methodcaller("abort"))) as port:
            header = b"X-Header: " + bytes(1000).replace(b"\0", b"x") + b"\r\n"
            assert await hung_up(port, HEAD, *([header] * (HEAD_BYTES // 1000)), pause_s=0)

    asyncio.run(check())


def test_of_too_many_that_wait_the_oldest_goes() -> None:
    async def check() -> None:
        waiting: PendingConnections[asyncio.Transport] = PendingConnections(
            methodcaller("abort"), most=2
        )
        async with served(waiting) as port:
            tasks = []
            for num_waiting in (1, 2, 2):
                tasks.append(asyncio.create_task(hung_up(port, HEAD)))
                while waiting.num_pending < num_waiting:
                    await asyncio.sleep(0.01)
            assert await tasks[0]
            assert not any(task.done() for task in tasks[1:])
            async with httpx.AsyncClient(trust_env=False) as http:
                assert (await http.get(f"http://127.0.0.1:{port}")).text == "yes"
            for task in tasks:
                task.cancel()

    asyncio.run(check())


def test_the_wait_is_over_when_the_other_side_is_gone() -> None:
    async def check() -> None:
        waiting: PendingConnections[asyncio.Transport] = PendingConnections(
            methodcaller("abort"), most=1
        )
        async with served(waiting) as port:
            for _ in range(3):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await writer.wait_closed()
            await asyncio.to_thread(wait_until, lambda: not waiting.num_pending, "all are gone")

    asyncio.run(check())
