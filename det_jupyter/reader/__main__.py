"""`python -m det_jupyter.reader`: makes what people see of the master's state.

The master starts it, and its end ends it.

stdin     one line of JSON: {"token": ..., "socket": the file descriptor of the listening socket,
          "version": the master's}; then a byte for each commit; it ends when the master does
stderr    the log
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from contextlib import suppress

from det_jupyter.contract.host import paths
from det_jupyter.reader.server import BoundedServer, Reader, make_application

IDLE_S = 300.0  # without a socket; the master starts another reader for the next one
UNUSED_S = 30.0  # without any socket since the start: others may connect, without the token
_MOST_LINE = 10_000  # bytes
_LOG_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main() -> int:
    """Run until standard input ends."""
    logging.basicConfig(level=logging.WARNING, format=_LOG_LINE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of a terminal is not for it
    try:
        settings = json.loads(_first_line(sys.stdin.fileno()))
        token, version = str(settings["token"]), str(settings["version"])
        listener = socket.socket(fileno=int(settings["socket"]))
    except (ValueError, KeyError, TypeError, OSError):
        expected = '{"token": ..., "socket": ..., "version": ...}'
        print(f"expected {expected} on standard input", file=sys.stderr)
        return 2
    asyncio.run(_serve(token, version, listener))
    # Does not join threads, which may take seconds to answer a question.
    logging.shutdown()
    os._exit(0)


def _first_line(fd: int) -> bytes:
    """Read a line, and nothing after it."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _MOST_LINE and (byte := os.read(fd, 1)):
        line += byte
    return line


async def _serve(token: str, version: str, listener: socket.socket) -> None:
    reader = Reader(token, paths.data_dir() / "det.sqlite3", version)
    listener.setblocking(False)
    server = BoundedServer(make_application(reader), waiting=reader.waiting)
    server.add_sockets([listener])
    ended = asyncio.create_task(_end_of_master(reader))
    idle = asyncio.create_task(reader.wait_until_idle(UNUSED_S, IDLE_S))
    await asyncio.wait({ended, idle}, return_when=asyncio.FIRST_COMPLETED)
    server.stop()
    reader.close()


async def _end_of_master(reader: Reader) -> None:
    """Wait for SIGTERM or the end of standard input; each byte before it is a commit."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    fd = sys.stdin.fileno()

    def read() -> None:
        if os.read(fd, 65536):
            reader.replica.wake()
        else:
            loop.remove_reader(fd)
            ended.set()

    with suppress(PermissionError):  # stdin is a file, which epoll does not take
        loop.add_reader(fd, read)
        await ended.wait()


if __name__ == "__main__":
    sys.exit(main())
