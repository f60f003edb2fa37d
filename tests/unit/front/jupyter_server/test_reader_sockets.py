"""How long a reader has to answer: long while it may be starting, else not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httpx
import pytest
from tornado.httpclient import HTTPRequest
from tornado.simple_httpclient import HTTPTimeoutError

from det_jupyter.contract.messages import MasterInfo
from det_jupyter.errors import DetError
from det_jupyter.front.jupyter_server import reader_sockets
from det_jupyter.front.jupyter_server.reader_sockets import ReaderSockets

LONG, SHORT = 60.0, 10.0


class Connection:
    """A socket on which nothing comes; it ends when it is closed, or when the reader ends."""

    def close(self) -> None: ...

    async def read_message(self) -> None: ...


class Reader:
    """Answers each socket, or none of them; notes how long it was waited for."""

    def __init__(self) -> None:
        self.answers = True
        self.limits: list[float] = []
        self.asked: list[str] = []

    async def connect(self, request: HTTPRequest, max_message_size: int) -> Connection:
        assert request.url == "ws://127.0.0.1:7/socket"
        assert request.headers["Authorization"] == "Bearer secret"
        self.limits.append(cast(float, request.request_timeout))
        if not self.answers:
            raise HTTPTimeoutError("Timeout")
        return Connection()

    def take(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == "Bearer secret"
        self.asked.append(f"{request.method} {request.url}")
        return httpx.Response(200, json={})


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    reader = Reader()
    monkeypatch.setattr(reader_sockets, "websocket_connect", reader.connect)
    return reader


def sockets_of(reader: Reader) -> ReaderSockets:
    client = httpx.AsyncClient(transport=httpx.MockTransport(reader.take))
    return ReaderSockets(client, most_bytes=1000)


def master(pid: int = 5) -> MasterInfo:
    return MasterInfo(
        url="http://127.0.0.1:6", token="secret", pid=pid, started_at=1.0, version="1",
        protocol=19, python="p", data_dir="d", reader_url="http://127.0.0.1:7",
    )  # fmt: skip


async def visit(sockets: ReaderSockets, info: MasterInfo, *, to_the_end: bool = False) -> None:
    async with sockets.open(info, may_write=True) as socket:
        if to_the_end:
            assert await socket.read() is None


def test_one_that_has_answered_has_a_short_time_and_any_other_a_long_one(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        sockets = sockets_of(reader)
        await visit(sockets, master())
        await visit(sockets, master())
        assert reader.limits == [LONG, SHORT]
        await visit(sockets, master(pid=9))
        assert reader.limits[2:] == [LONG], "another master has another reader"
        await visit(sockets, master(pid=9), to_the_end=True)
        await visit(sockets, master(pid=9))
        assert reader.limits[3:] == [SHORT, LONG], "its end was seen"
        monkeypatch.setattr(reader_sockets, "_READER_IDLE_S", 0.0)
        async with sockets.open(master(pid=9), may_write=False):
            await visit(sockets, master(pid=9))
        await visit(sockets, master(pid=9))
        assert reader.limits[5:] == [LONG, SHORT, LONG], "without a socket it may have ended"
        await sockets.close()

    asyncio.run(act())


def test_one_that_does_not_answer_is_ended_and_the_next_one_has_a_long_time(
    reader: Reader,
) -> None:
    async def act() -> None:
        sockets = sockets_of(reader)
        await visit(sockets, master())
        reader.answers = False
        for _ in range(2):
            with pytest.raises(DetError, match="does not answer; it is ended"):
                await visit(sockets, master())
        assert reader.limits == [LONG, SHORT, LONG]
        assert reader.asked == ["POST http://127.0.0.1:6/api/v1/reader/end"] * 2
        await sockets.close()

    asyncio.run(act())


def test_a_master_that_does_not_answer_either_is_not_an_error(reader: Reader) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async def act() -> None:
        reader.answers = False
        client = httpx.AsyncClient(transport=httpx.MockTransport(refuse))
        sockets = ReaderSockets(client, most_bytes=1000)
        with pytest.raises(DetError, match="does not answer"):
            await visit(sockets, master())

    asyncio.run(act())


def test_a_socket_that_nobody_wants_any_more_is_closed_when_it_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[bool] = []

    class Late(Connection):
        def close(self) -> None:
            closed.append(True)

    async def act() -> None:
        opening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(reader_sockets, "websocket_connect", lambda *_, **__: opening)
        sockets = sockets_of(Reader())
        visiting = asyncio.create_task(visit(sockets, master()))
        await asyncio.sleep(0)
        visiting.cancel()
        await asyncio.wait([visiting])
        assert (visiting.cancelled(), closed) == (True, [])
        opening.set_result(Late())
        await sockets.close()
        assert closed == [True]

    asyncio.run(act())
