"""A reader for tests of the relay: it keeps the protocol of messages/pages.py, and obeys `do`.

{"op": "do", "what": "headers"}                 answers with the headers of the socket
{"op": "do", "what": "echo", ...}               answers with the frame
{"op": "do", "what": "send", "bytes": n}        sends one binary frame
{"op": "do", "what": "flood", "bytes": n}       sends text frames until it has sent so many bytes
{"op": "do", "what": "sent"}                    says how many bytes it has sent
{"op": "do", "what": "sockets"}                 says how many sockets it has
{"op": "do", "what": "publish", "document", "data"}   sends a document to all its followers

`reader_stand_in` stands for the master that starts it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from det_jupyter.contract.messages import MasterInfo
from tests.forks import Fork, torch_source, with_python_path
from tests.integration.server.master_stand_in import announce, master_stand_in, reply

_FRAME = "x" * 65536
_sockets: set[Socket] = set()
_sent = 0


class Socket(WebSocketHandler):
    """One socket."""

    def initialize(self, token: str) -> None:
        self._token = token

    async def prepare(self) -> None:
        if self.request.headers.get("Authorization") != f"Bearer {self._token}":
            self.set_status(401)
            self.finish()

    async def open(self) -> None:
        _sockets.add(self)
        self.followed: dict[str, int] = {}
        await self.write_message({"op": "hello", "instance": "stand-in"})

    async def on_message(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            await self.write_message(message, binary=True)
            return
        frame = json.loads(message)
        if frame["op"] == "follow":
            self.followed[frame["document"]] = frame["id"]
        elif frame["op"] == "do":
            await self._do(frame)

    async def _do(self, frame: dict[str, Any]) -> None:
        match frame["what"]:
            case "headers":
                await self.write_message(json.dumps(dict(self.request.headers)))
            case "echo":
                await self.write_message(json.dumps(frame))
            case "send":
                await self.write_message(b"\x00" * frame["bytes"], binary=True)
            case "sent":
                await self.write_message(json.dumps({"sent": _sent}))
            case "sockets":
                await self.write_message(json.dumps({"sockets": len(_sockets)}))
            case "flood":
                asyncio.get_running_loop().create_task(self._flood(frame["bytes"]))
            case "publish":
                await _publish(frame["document"], frame["data"])
                await self.write_message(json.dumps({"published": True}))

    async def _flood(self, most_bytes: int) -> None:
        global _sent
        for _ in range(most_bytes // len(_FRAME)):
            try:
                await self.write_message(_FRAME)
            except WebSocketClosedError:
                return
            _sent += len(_FRAME)

    def on_close(self) -> None:
        _sockets.discard(self)


async def _publish(document: str, data: Any) -> None:
    for each in list(_sockets):
        if document in each.followed:
            number = each.followed[document]
            whole = {"op": "document", "id": number, "version": 1, "data": data}
            await each.write_message(json.dumps(whole))


def serve(number: int, token: str) -> None:
    """Serve until killed, as a fork that has the socket of this number."""

    async def run() -> None:
        with socket.socket(fileno=number) as listener:
            listener.setblocking(False)
            application = Application([("/socket", Socket, {"token": token})])
            HTTPServer(application).add_sockets([listener])
            await asyncio.Event().wait()

    asyncio.run(run())


class ReaderStandIn:
    """The reader of a master that is announced; connections wait until it is started.

    The master stands for the real one: to end the reader it kills it, and starts it again.
    """

    def __init__(self, listener: socket.socket, info: MasterInfo) -> None:
        self._listener = listener
        self.info = info
        self.process: Fork | None = None
        self.num_ended = 0  # on request

    def start(self) -> Fork:
        """Start the process."""
        assert self.process is None
        self.process = torch_source().start(
            f"{__name__}:serve",
            self.info.token,
            environment=with_python_path(os.environ),
            descriptors=[self._listener.fileno()],
        )
        return self.process

    def kill(self) -> None:
        """Kill the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def take(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request to the master."""
        if request.path == "/api/v1/reader/end":
            self.num_ended += 1
            self.kill()
            self.start()
        reply(request, 200, {})


@contextmanager
def reader_stand_in(*, is_started: bool = True) -> Iterator[ReaderStandIn]:
    """Have a master announced whose reader this is."""
    with (
        master_stand_in() as master,
        socket.create_server(("127.0.0.1", 0), backlog=100) as listener,
    ):
        port = listener.getsockname()[1]
        info = announce(
            master.server.server_address[1], master.info.token,
            reader_url=f"http://127.0.0.1:{port}",
        )  # fmt: skip
        reader = ReaderStandIn(listener, info)
        master.answer = reader.take
        try:
            if is_started:
                reader.start()
            yield reader
        finally:
            reader.kill()
