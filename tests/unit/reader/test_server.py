"""The reader's socket: who gets one, what its tab hears, and how connections are bounded."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.netutil import bind_sockets
from tornado.websocket import WebSocketClientConnection, websocket_connect

from det_jupyter._version import __version__
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages.pages import PAGE_PROTOCOL
from det_jupyter.reader import server as servers
from det_jupyter.reader.server import BoundedServer, ReaderState, make_application
from det_jupyter.reader.tab import READ_ONLY

MAY_WRITE = {"Authorization": "Bearer secret", "X-Det-May-Write": "1"}


class Served:
    """A reader that serves in this process, of a master that has never run."""

    def __init__(self, listeners: list[socket.socket]) -> None:
        self.reader = ReaderState("secret", Path("/nowhere/det.sqlite3"))
        self.server = BoundedServer(make_application(self.reader), waiting=self.reader.waiting)
        self.server.add_sockets(listeners)
        self.port: int = listeners[0].getsockname()[1]
        self._opened: list[WebSocketClientConnection] = []

    async def open(self, **headers: str) -> WebSocketClientConnection:
        url = f"ws://127.0.0.1:{self.port}/socket"
        tab = await websocket_connect(HTTPRequest(url, headers=headers or MAY_WRITE))
        self._opened.append(tab)
        return tab

    async def close(self) -> None:
        for tab in self._opened:
            tab.close()
        await self.until(num_tabs=0)
        self.server.stop()
        self.reader.close()

    async def until(self, num_tabs: int, num_waiting: int = 0) -> None:
        """Return once there are so many tabs, and connections without a request."""
        reader = self.reader
        while (len(reader.sockets), reader.waiting.num_pending) != (num_tabs, num_waiting):
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(*listeners: socket.socket) -> AsyncIterator[Served]:
    served = Served(list(listeners) or bind_sockets(0, "127.0.0.1"))
    try:
        yield served
    finally:
        await served.close()


async def heard(tab: WebSocketClientConnection) -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(await tab.read_message() or "{}")
    return frame


def test_only_who_has_the_token_and_is_no_browser_gets_a_socket() -> None:
    async def status(served: Served, headers: dict[str, str]) -> int:
        try:
            await served.open(**headers)
        except HTTPClientError as error:
            return error.code
        return 101

    async def act() -> None:
        async with serving() as served:
            for headers, expected in (
                (MAY_WRITE, 101),
                ({"Authorization": "Bearer secret"}, 101),
                ({"X-Det-May-Write": "1"}, 403),
                ({"Authorization": "Bearer wrong"}, 403),
                ({"Authorization": "secret"}, 403),
                (MAY_WRITE | {"Origin": "http://127.0.0.1"}, 403),
            ):
                assert await status(served, headers) == expected, headers
            elsewhere = HTTPRequest(f"http://127.0.0.1:{served.port}/", headers=MAY_WRITE)
            answer = await AsyncHTTPClient().fetch(elsewhere, raise_error=False)
            assert answer.code == 404

    asyncio.run(act())


def test_the_first_frame_says_who_speaks() -> None:
    async def act() -> None:
        async with serving() as served:
            tab = await served.open()
            assert await heard(tab) == {
                "op": "hello",
                "instance": served.reader.instance,
                "version": __version__,
                "protocol": PAGE_PROTOCOL,
                "master": {
                    "state": "running", "version": __version__, "problem": "", "command": "",
                },
            }  # fmt: skip
            await tab.write_message('{"op": "ping"}')
            assert (await heard(tab))["op"] == "pong"
            late = await served.open()
            assert (await heard(late))["instance"] == served.reader.instance
            late.close()
            await served.until(num_tabs=1)
            assert ReaderState("secret", Path()).instance != served.reader.instance

    asyncio.run(act())


def test_it_is_idle_once_no_socket_was_open_for_so_long() -> None:
    async def act() -> None:
        async with serving() as served:
            tab = await served.open()
            idle = asyncio.create_task(served.reader.wait_until_idle(0.0, 0.05))
            await asyncio.sleep(0.2)
            assert not idle.done(), "a socket is open"
            closed_at = time.monotonic()
            tab.close()
            await idle
            assert time.monotonic() >= closed_at + 0.05, "counted from its end"

    asyncio.run(act())


def test_a_socket_that_was_open_for_a_moment_counts() -> None:
    async def act() -> None:
        async with serving() as served:
            reader = served.reader
            (await served.open()).close()
            await served.until(num_tabs=0)
            assert reader.is_used.is_set()
            began_at = time.monotonic()
            idle = asyncio.create_task(reader.wait_until_idle(0.0, 0.05))
            while reader.is_used.is_set():
                await asyncio.sleep(0)
            reader.is_used.set()  # as a socket does that opens, and one that closes
            await idle
            assert time.monotonic() >= began_at + 0.1

    asyncio.run(act())


def test_one_that_never_had_a_socket_is_idle_sooner() -> None:
    async def act() -> None:
        async with serving() as served:
            await served.reader.wait_until_idle(0.01, 600.0)

    asyncio.run(act())


@pytest.mark.parametrize(
    ("may_write", "error"), [("0", READ_ONLY), ("", READ_ONLY), ("1", "start it")]
)
def test_who_may_not_write_changes_nothing(
    may_write: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))  # without a master

    async def act() -> None:
        async with serving() as served:
            tab = await served.open(**MAY_WRITE | {"X-Det-May-Write": may_write})
            await heard(tab)
            question = '{"op": "ask", "id": 1, "experiment_id": 7, "question": {"type": "change"}}'
            await tab.write_message(question)
            assert error in (await heard(tab))["error"]

    asyncio.run(act())


def test_a_connection_waits_until_it_has_shown_the_token_or_is_closed() -> None:
    async def act() -> None:
        async with serving() as served:
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            await served.until(num_tabs=0, num_waiting=1)
            await served.open()
            await served.until(num_tabs=1, num_waiting=1)
            writer.close()
            await served.until(num_tabs=1, num_waiting=0)

    asyncio.run(act())


class Failing(socket.socket):
    """A listening socket that fails first."""

    errors: list[OSError]

    def accept(self) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return super().accept()


def failing(*errors: OSError) -> Failing:
    listener = Failing(fileno=bind_sockets(0, "127.0.0.1")[0].detach())
    listener.errors = [*errors]
    return listener


def test_a_server_without_files_pauses_and_complains_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(servers, "_PAUSE_S", 0.01)
    full = OSError(errno.EMFILE, "too many files")

    async def act() -> None:
        async with serving(failing(full, full, ConnectionAbortedError())) as served:
            await heard(await served.open())

    with caplog.at_level(logging.WARNING):
        asyncio.run(act())
    assert caplog.messages == ["no more connections can be accepted for now: too many files"]


def test_a_socket_that_was_closed_during_a_pause_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "_PAUSE_S", 0.0)
    failures: list[Any] = []

    async def act() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: failures.append(said))
        listener = failing(OSError(errno.ENFILE, "too many files"))
        async with serving(listener) as served:
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            while listener.errors:
                await asyncio.sleep(0)
            served.server.stop()
            await asyncio.sleep(0.01)
            writer.close()
        assert listener.fileno() == -1

    asyncio.run(act())
    assert failures == []


def test_other_errors_of_a_socket_are_no_pause() -> None:
    failures: list[Any] = []

    async def act() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: failures.append(said))
        async with serving(failing(OSError(errno.EIO, "broken"))) as served:
            await heard(await served.open())

    asyncio.run(act())
    assert [str(each["exception"]) for each in failures] == ["[Errno 5] broken"]
