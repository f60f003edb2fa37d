"""Readers that say who they are to everyone who connects, and a master that starts one.

Kinds: `usual`; `stubborn` does not end with its master or by SIGTERM; `broken` ends with status 1,
and `leaving` with 0, before they accept anything.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from typing import Any


def target_of(kind: str) -> str:
    """Return a kind of stand-in as the starter has it."""
    return f"{__name__}:{kind}"


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


def serve_with_stand_in(kind: str = "usual") -> int:
    """Be a master whose reader is a stand-in."""
    from det_jupyter.master import __main__ as program

    program.READER = target_of(kind)
    return program.main()


def serve_with_broken_readers() -> int:
    """Be a master whose readers fail."""
    return serve_with_stand_in("broken")


def broken(token: str, listener: socket.socket, commits: socket.socket) -> None:
    """Fail."""
    leaving(token, listener, commits)
    raise SystemExit(1)


def leaving(token: str, listener: socket.socket, commits: socket.socket) -> None:
    """End at once."""
    print("a reader was started", flush=True)


def usual(token: str, listener: socket.socket, commits: socket.socket) -> None:
    """Say who it is until the master ends."""
    _serve(token, listener, commits, [listener, commits])


def stubborn(token: str, listener: socket.socket, commits: socket.socket) -> None:
    """Say who it is for ever."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _serve(token, listener, commits, [listener])


def _serve(
    token: str, listener: socket.socket, commits: socket.socket, inputs: list[socket.socket]
) -> None:
    print("a reader was started", flush=True)
    num_commits = 0
    while True:
        ready, _, _ = select.select(inputs, [], [])
        if commits in ready:
            if not (wakes := commits.recv(65536)):
                return
            num_commits += len(wakes)
        elif ready:
            connection, _ = listener.accept()
            said = {
                "pid": os.getpid(),
                "session": os.getsid(0),
                "folder": os.getcwd(),
                "token": token,
                "nodelay": listener.proto == socket.IPPROTO_TCP,
                "commits": num_commits,
            }
            with connection:
                connection.sendall(json.dumps(said).encode())
