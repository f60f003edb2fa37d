"""A reader that says who it is to everyone who connects, and a master that starts it.

As a program: `reader_stand_in.py KIND -m det_jupyter.reader`; the last words are those by which a
reader is found. Kinds: `usual`; `stubborn` does not end with its input or by SIGTERM; `broken`
ends with status 1, and `leaving` with 0, before they accept anything.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import Any


def command_of(kind: str) -> tuple[str, ...]:
    """Return the command line of a kind of stand-in."""
    return (sys.executable, __file__, kind, "-m", "det_jupyter.reader")


def ask(url: str) -> dict[str, Any]:
    """Connect to a reader, and return what it says.

    Raises:
        ConnectionError: The connection was closed instead.
    """
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        text = b"".join(iter(lambda: connection.recv(4096), b""))
    if not text:
        raise ConnectionResetError("closed without a word")
    said: dict[str, Any] = json.loads(text)
    return said


def serve_with_stand_in() -> int:
    """Be a master whose reader is the usual stand-in."""
    from det_jupyter.master import serve
    from det_jupyter.master.__main__ import main

    serve.READER = command_of("usual")
    return main()


def _run(kind: str) -> int:
    print(kind, "was started", flush=True)
    if kind in ("broken", "leaving"):
        return int(kind == "broken")
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
    settings = json.loads(line)
    listener = socket.socket(fileno=settings["socket"])
    inputs: list[Any] = [listener, 0] if kind == "usual" else [listener]
    num_commits = 0
    while True:
        ready, _, _ = select.select(inputs, [], [])
        if 0 in ready:
            if not (wakes := os.read(0, 65536)):
                return 0
            num_commits += len(wakes)
        elif ready:
            connection, _ = listener.accept()
            said = {
                "pid": os.getpid(),
                "session": os.getsid(0),
                "folder": os.getcwd(),
                "token": settings["token"],
                "nodelay": listener.proto == socket.IPPROTO_TCP,
                "commits": num_commits,
            }
            with connection:
                connection.sendall(json.dumps(said).encode())


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1]))
