"""A feeder as the server extension starts it, and tabs that talk to it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from websocket import WebSocket, WebSocketTimeoutException, create_connection

from det_jupyter.contract.documents.codec import unpack
from det_jupyter.contract.documents.patches import Document, apply_changes

TOKEN = "secret"


class Page:
    """A tab: its documents and the answers that it got, by number."""

    def __init__(self, socket: WebSocket, *, acks: bool = True) -> None:
        self.socket = socket
        self.acks = acks
        self.documents: dict[int, Document] = {}
        self.versions: dict[int, int] = {}
        self.frames: dict[int, list[str]] = {}  # what came of a document: "document", "patch"
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
        """Follow a document, of which this page may have a version already."""
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
        """Read a frame; return whether one came in time."""
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
        """Read what comes within a time."""
        deadline = time.monotonic() + seconds
        while (rest_s := deadline - time.monotonic()) > 0:
            self.read(rest_s)

    def last(self, number: int) -> dict[str, Any]:
        """Return the newest version of a document, waiting for the first."""
        self.until(lambda: number in self.documents)
        return self.documents[number]

    def _take_version(self, op: str, frame: dict[str, Any]) -> None:
        number, version = frame["id"], frame["version"]
        if op == "document":
            self.documents[number] = frame["data"]
        else:
            assert frame["since"] == self.versions.get(number, frame["since"])
            apply_changes(self.documents[number], frame["data"])
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


class FeederProcess:
    """A feeder of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.port = int(json.loads(process.stdout.readline())["port"])

    @contextmanager
    def page(
        self, *, may_write: bool = True, acks: bool = True, token: str = TOKEN
    ) -> Iterator[Page]:
        """Open a tab."""
        headers = [f"Authorization: Bearer {token}", f"X-Det-May-Write: {int(may_write)}"]
        url = f"ws://127.0.0.1:{self.port}/socket"
        socket = create_connection(url, header=headers, suppress_origin=True)
        try:
            yield Page(socket, acks=acks)
        finally:
            socket.close()


@contextmanager
def feeder_process(*, start_master: bool = False, token: str = TOKEN) -> Iterator[FeederProcess]:
    """Run a feeder; it ends with its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-m", "det_jupyter.reader"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps({"token": token, "start_master": start_master}) + "\n")
        process.stdin.flush()
        yield FeederProcess(process)
        process.stdin.close()
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
