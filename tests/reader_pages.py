"""Stand-ins for tabs, connected to the reader of a real master."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from websocket import WebSocket, WebSocketTimeoutException, create_connection

from det_jupyter.connection import find_master
from det_jupyter.contract.documents.codec import unpack
from det_jupyter.contract.documents.patches import Document, apply_changes
from det_jupyter.contract.messages import MasterInfo
from tests.processes import DetHome, find


class Page:
    """A tab: the documents and answers that it has received, by number."""

    def __init__(self, socket: WebSocket, *, acks: bool = True) -> None:
        self.socket = socket
        self.acks = acks
        self.documents: dict[int, Document] = {}
        self.versions: dict[int, int] = {}
        # By document: the kinds of its frames, "document" or "patch".
        self.frames: dict[int, list[str]] = {}
        self.errors: list[dict[str, Any]] = []
        self.masters: list[dict[str, Any]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.num_bytes = 0
        self.num_pongs = 0
        self.hello = self._take()

    def send(self, **frame: Any) -> None:
        """Send a frame."""
        self.socket.send(json.dumps(frame))

    def follow(self, number: int, document: str, has: Page | None = None, **args: Any) -> None:
        """Follow a document; `has` is a page that already has a version of it."""
        more = {}
        if has is not None:
            more = {"version": has.versions[number]}
            self.documents[number] = has.documents[number]
        self.send(op="follow", id=number, document=document, args=args, **more)

    def ask(self, number: int, experiment_id: int, kind: str, **fields: Any) -> dict[str, Any]:
        """Ask a question and return the answer."""
        question = {"type": kind, **fields}
        self.send(op="ask", id=number, experiment_id=experiment_id, question=question)
        self.until(lambda: number in self.answers)
        return self.answers[number]

    def until(self, condition: Callable[[], object]) -> None:
        """Read frames until a condition is true."""
        while not condition():
            self.read()

    def read(self, timeout_s: float | None = None) -> bool:
        """Read a frame; return whether one arrived in time."""
        try:
            frame = self._take(timeout_s)
        except WebSocketTimeoutException:
            return False
        match frame["op"]:
            case "document" | "patch" as op:
                self._take_version(op, frame)
            case "error":
                self.errors.append(frame)
            case "master":
                self.masters.append(frame)
            case "answer":
                self.answers[frame["id"]] = frame
            case "pong":
                self.num_pongs += 1
        return True

    def drain(self, seconds: float) -> None:
        """Read the frames that arrive within this time."""
        deadline = time.monotonic() + seconds
        while (rest_s := deadline - time.monotonic()) > 0:
            self.read(rest_s)

    def last(self, number: int) -> dict[str, Any]:
        """Return the newest version of a document; wait for the first one."""
        self.until(lambda: number in self.documents)
        return self.documents[number]

    def _take_version(self, op: str, frame: dict[str, Any]) -> None:
        number, version = frame["id"], frame["version"]
        if op == "document":
            self.documents[number] = frame["data"]
        else:
            assert frame["since"] == self.versions.get(number, frame["since"])
            self.documents[number] = apply_changes(self.documents[number], frame["data"])
        self.versions[number] = version
        self.frames.setdefault(number, []).append(op)
        if self.acks:
            self.send(op="ack", id=number, version=version)

    def _take(self, timeout_s: float | None = None) -> dict[str, Any]:
        self.socket.settimeout(timeout_s)
        message = self.socket.recv()
        self.num_bytes += len(message)
        frame: dict[str, Any] = unpack(message)
        return frame


class ReaderOfMaster:
    """The reader of the running master; the first page starts it."""

    def __init__(self, home: DetHome) -> None:
        self._home = home

    @property
    def process(self) -> psutil.Process:
        """The reader's process."""
        found = find(self._home.path, "det_jupyter.reader")
        assert found is not None
        return found

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(_master().reader_url.rpartition(":")[2])

    @property
    def token(self) -> str:
        """The master's token."""
        return _master().token

    @contextmanager
    def page(self, *, may_write: bool = True, acks: bool = True) -> Iterator[Page]:
        """Open a tab."""
        headers = [f"Authorization: Bearer {self.token}", f"X-Det-May-Write: {int(may_write)}"]
        url = f"ws://127.0.0.1:{self.port}/socket"
        socket = create_connection(url, header=headers, suppress_origin=True)
        try:
            yield Page(socket, acks=acks)
        finally:
            socket.close()


def _master() -> MasterInfo:
    found = find_master()
    assert found is not None
    return found
