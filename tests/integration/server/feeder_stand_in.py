"""A feeder for tests of the relay: it keeps the protocol of messages/pages.py, and obeys `do`.

{"op": "do", "what": "headers"}                 answers with the headers of the socket
{"op": "do", "what": "echo", ...}               answers with the frame
{"op": "do", "what": "send", "bytes": n}        sends one binary frame
{"op": "do", "what": "flood", "bytes": n}       sends text frames until it has sent so many bytes
{"op": "do", "what": "sent"}                    says how many bytes it has sent
{"op": "do", "what": "publish", "document", "data"}   sends a document to all its followers
{"op": "do", "what": "die"}                     ends without a word

`python -m tests.integration.server.feeder_stand_in [refuse]`
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import WebSocketClosedError, WebSocketHandler

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
            case "flood":
                asyncio.get_running_loop().create_task(self._flood(frame["bytes"]))
            case "publish":
                await _publish(frame["document"], frame["data"])
                await self.write_message(json.dumps({"published": True}))
            case "say":
                print(frame["text"], file=sys.stderr, flush=True)
            case "die":
                raise SystemExit(7)

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
    for socket in list(_sockets):
        if document in socket.followed:
            number = socket.followed[document]
            whole = {"op": "document", "id": number, "version": 1, "data": data}
            await socket.write_message(json.dumps(whole))


async def main() -> None:
    """Serve until the end of stdin."""
    token = json.loads(sys.stdin.readline())["token"]
    if "refuse" in sys.argv:
        print("no place for a feeder here", file=sys.stderr)
        raise SystemExit(3)
    sockets = bind_sockets(0, "127.0.0.1")
    HTTPServer(Application([("/socket", Socket, {"token": token})])).add_sockets(sockets)
    print(json.dumps({"port": sockets[0].getsockname()[1]}), flush=True)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
