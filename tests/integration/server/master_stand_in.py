"""A master for tests of the proxy: it notes what it is asked and answers as it was told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import birth_of
from det_jupyter.contract.messages import PROTOCOL, MasterInfo

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class StandIn:
    """A master: `answer` writes what it answers."""

    info: MasterInfo
    server: ThreadingHTTPServer
    asked: list[Asked] = field(default_factory=list)
    answer: Answer | None = None

    def take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        self.asked.append(Asked(request.command, request.path, dict(request.headers), body))
        if self.answer is not None:
            self.answer(request)
        else:
            reply(request, 200, {"fine": True})


def reply(request: BaseHTTPRequestHandler, status: int, body: object) -> None:
    """Answer with JSON."""
    text = json.dumps(body).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)


@contextmanager
def master_stand_in(token: str = "of-the-master") -> Iterator[StandIn]:
    """Serve, and be announced as the user's master."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is one packet

        def setup(self) -> None:
            super().setup()
            connections.append(self.connection)

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            stand_in.take(self)

        do_POST = do_PUT = do_DELETE = do_GET

    connections: list[socket.socket] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stand_in = StandIn(announce(server.server_address[1], token), server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        for connection in connections:  # those that are kept for the next request, too
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
        thread.join()


def announce(
    port: int,
    token: str = "",
    *,
    pid: int | None = None,
    protocol: int = PROTOCOL,
    reader_url: str = "http://127.0.0.1:1",
) -> MasterInfo:
    """Write the file that says where the master is."""
    pid = pid or os.getpid()
    info = MasterInfo(
        url=f"http://127.0.0.1:{port}", token=token, pid=pid, started_at=1.0,
        birth=birth_of(pid) or "", version="9.9.9", protocol=protocol, python="python",
        data_dir="/", reader_url=reader_url,
    )  # fmt: skip
    paths.write_private(paths.master_file(), info.model_dump_json())
    return info


@contextmanager
def frozen_process() -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that is stopped."""
    process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 19)"])
    try:
        while True:
            with open(f"/proc/{process.pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "T":
                    break
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()
