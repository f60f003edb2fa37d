"""Which connections wait for a request, and which are closed because it never comes whole."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from det_jupyter.contract.host.pending_connections import HEAD_BYTES
from det_jupyter.master.http.server import with_bounds


class Waiting:
    """The connections that wait, and those that were dropped."""

    def __init__(self) -> None:
        self.now: list[object] = []
        self.dropped: list[object] = []

    def add(self, connection: object) -> None:
        if connection not in self.now:
            self.now.append(connection)

    def remove(self, connection: object) -> None:
        if connection in self.now:
            self.now.remove(connection)

    def drop(self, connection: object) -> None:
        self.remove(connection)
        self.dropped.append(connection)


class Parser(asyncio.Protocol):
    """Stands for uvicorn's parser: a request is whole when a blank line has arrived."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.cycle: Any = None
        self.received = b""
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if data.endswith(b"\n\n"):
            self.cycle = SimpleNamespace(response_complete=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Connection:
    """A connection to a server."""

    def __init__(self) -> None:
        self.waiting, self.made = Waiting(), list[object]()
        kind = with_bounds(Parser, cast(Any, self.waiting), self.made.append)
        self.parser: Any = kind()
        self.parser.connection_made(cast(asyncio.Transport, "line"))

    def receive(self, data: bytes) -> None:
        self.parser.data_received(data)

    def answer(self) -> None:
        self.parser.cycle.response_complete = True


def test_a_connection_waits_until_the_head_of_a_request_is_whole() -> None:
    connection = Connection()
    assert connection.made == ["line"]
    assert connection.waiting.now == ["line"]
    connection.receive(b"GET / HTTP/1.1\n")
    assert connection.waiting.now == ["line"]
    connection.receive(b"host: a\n\n")
    assert connection.waiting.now == []
    connection.receive(b"a body")
    assert connection.waiting.now == []
    assert connection.parser.received == b"GET / HTTP/1.1\nhost: a\n\na body"


def test_it_waits_again_when_the_next_request_begins() -> None:
    connection = Connection()
    connection.receive(b"GET /\n\n")
    connection.answer()
    assert connection.waiting.now == []
    connection.receive(b"GET")
    assert connection.waiting.now == ["line"]


def test_a_head_of_the_greatest_size_is_read_and_a_larger_one_is_not() -> None:
    connection = Connection()
    connection.receive(b"a" * (HEAD_BYTES - 2))
    connection.receive(b"bb")
    assert connection.waiting.dropped == []
    connection.receive(b"c")
    assert connection.waiting.dropped == ["line"]


def test_the_size_of_a_head_is_that_of_one_request() -> None:
    connection = Connection()
    for _ in range(3):
        connection.receive(b"a" * (HEAD_BYTES - 10))
        connection.receive(b"\n\n")
        connection.receive(b"b" * HEAD_BYTES)  # the body, which the application bounds
        connection.answer()
    assert connection.waiting.dropped == []


def test_a_connection_that_is_closed_waits_no_more() -> None:
    connection, error = Connection(), OSError()
    connection.parser.connection_lost(error)
    assert connection.waiting.now == []
    assert connection.parser.lost == [error]
