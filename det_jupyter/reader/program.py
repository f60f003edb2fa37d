"""The reader's program: serves the documents of what people see of the master's state.

It is a fork of the master (`master/background/reader_starter.py`), and ends with it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket

from det_jupyter.contract.host import paths
from det_jupyter.reader.server import BoundedServer, ReaderState, make_application

# The reader ends after this time without a socket; the master starts another when needed.
IDLE_S = 300.0
UNUSED_S = 30.0  # the same before the first socket: connections without the token do not count
_LOG_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def run(token: str, listener: socket.socket, commits: socket.socket) -> None:
    """Serve until the master ends, or until no page has been connected for a while.

    Args:
        token: The master's token, which clients have to send.
        listener: The socket that clients connect to.
        commits: Delivers a byte for each commit of the master; closed when the master ends.
    """
    logging.basicConfig(level=logging.WARNING, format=_LOG_LINE)
    asyncio.run(_serve(token, listener, commits))
    logging.shutdown()


async def _serve(token: str, listener: socket.socket, commits: socket.socket) -> None:
    reader = ReaderState(token, paths.data_dir() / "det.sqlite3")
    listener.setblocking(False)
    commits.setblocking(False)
    server = BoundedServer(make_application(reader), waiting=reader.waiting)
    server.add_sockets([listener])
    loop, terminated = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    ends = (
        terminated.wait(),
        _end_of_master(reader, commits),
        reader.wait_until_idle(UNUSED_S, IDLE_S),
    )
    await asyncio.wait(map(asyncio.ensure_future, ends), return_when=asyncio.FIRST_COMPLETED)
    server.stop()
    reader.close()


async def _end_of_master(reader: ReaderState, commits: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(commits, 1 << 16):
        reader.replica.wake()
