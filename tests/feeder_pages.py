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

from tests.frames import unpack

TOKEN = "secret"


class Page:
    """A tab: what came over its socket, by number of the topic or question."""

    def __init__(self, socket: WebSocket, *, acks: bool = True) -> None:
        self.socket = socket
        self.acks = acks
        self.news: dict[int, list[dict[str, Any]]] = {}
        self.seqs: dict[int, int] = {}
        self.errors: list[dict[str, Any]] = []
        self.masters: list[dict[str, Any]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.num_bytes = 0
        self.num_pongs = 0
        self.hello = self._take()

    def send(self, **frame: Any) -> None:
        """Send a frame."""
        self.socket.send(json.dumps(frame))

    def follow(self, number: int, topic: str, since: int | None = None, **args: Any) -> None:
        """Follow a topic."""
        more = {} if since is None else {"since": since}
        self.send(op="follow", id=number, topic=topic, args=args, **more)

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
            case "news":
                number = frame["id"]
                self.news.setdefault(number, []).append(frame["data"])
                self.seqs[number] = frame["seq"]
                if self.acks:
                    self.send(op="ack", id=number, seq=frame["seq"])
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
        """Return the newest news of a topic, waiting for the first."""
        self.until(lambda: number in self.news)
        return self.news[number][-1]

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
        [sys.executable, "-m", "det_jupyter.front.pages"],
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
