"""`python -m det_jupyter.reader`: the feeder's program, started by the server extension.

stdin     one line of JSON: {"token": ..., "start_master": true}; its end ends the program
stdout    one line of JSON: {"port": ...}
stderr    the log
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress

from tornado.netutil import bind_sockets

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import remove_lock, take_lock
from det_jupyter.errors import DetError
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.server import BoundedServer, Feeder, make_application

_BACKLOG = 2048  # connections that the kernel accepts before the program does
_LOCK_S = 1.0  # programs that look for feeders hold the lock for an instant
_FIRST_CHECK_S = 2.0  # the folder may be on a drive that is slow or gone


def main() -> int:
    """Run until standard input ends."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C of a terminal: the server ends this program
    try:
        settings = json.loads(sys.stdin.readline())
        token, may_start = str(settings["token"]), bool(settings["start_master"])
    except (ValueError, KeyError, TypeError):
        print('expected {"token": ..., "start_master": ...} on standard input', file=sys.stderr)
        return 2
    asyncio.run(_serve(token, may_start=may_start))
    # Does not join threads, which may wait for the master for seconds.
    logging.shutdown()
    os._exit(0)


async def _serve(token: str, *, may_start: bool) -> None:
    feeder = Feeder(token, MasterConnection(may_start=may_start))
    sockets = bind_sockets(0, "127.0.0.1", backlog=_BACKLOG)
    server = BoundedServer(make_application(feeder), waiting=feeder.waiting)
    server.add_sockets(sockets)
    with suppress(TimeoutError):  # a first frame before the timeout has the state `starting`
        async with asyncio.timeout(_FIRST_CHECK_S):
            await feeder.check_master()
    watching = asyncio.create_task(feeder.watch_master())
    holding = asyncio.create_task(asyncio.to_thread(_hold_lock))
    print(json.dumps({"port": sockets[0].getsockname()[1]}), flush=True)
    await _end_of_input()
    watching.cancel()
    holding.cancel()
    server.stop()
    feeder.close()


def _hold_lock() -> None:
    """Take the lock by which `det master stop --everything` finds this process.

    Its working folder tells if the lock was removed. Blocks while the file system does.
    """
    with suppress(DetError, OSError):
        os.chdir(paths.data_dir())
        for path in paths.feeder_locks():
            remove_lock(path, timeout_s=0)  # of a feeder that was killed
        take_lock(paths.feeder_lock(os.getpid()), timeout_s=_LOCK_S)


async def _end_of_input() -> None:
    """Wait for SIGTERM or the end of standard input; input before it is ignored."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    fd = sys.stdin.fileno()

    def read() -> None:
        if not os.read(fd, 4096):
            loop.remove_reader(fd)
            ended.set()

    try:
        loop.add_reader(fd, read)
    except (PermissionError, OSError):  # stdin is a file, which epoll does not take
        return
    await ended.wait()


if __name__ == "__main__":
    sys.exit(main())
