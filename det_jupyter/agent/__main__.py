"""`python -m det_jupyter.agent`: the one agent of this computer and user.

What takes longest is a zygote's import of torch, so the zygote of our own interpreter is started
before anything heavy is imported here.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import sys
import time
from pathlib import Path

from det_jupyter import paths
from det_jupyter.agent.zygote_process import RANK_TARGET, ZygoteProcess, start_zygote

_LOCK_S = 2.0


def main() -> int:
    """Serve until ordered to leave, or until nobody needs us."""
    options = _parser().parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request otherwise
    lock = _take_lock(paths.agent_lock())
    if lock is None:
        return 0
    # Held by us alone: it closes when we die, however we die. Ranks wait for that.
    lifeline_fd, _ = os.pipe()
    first = start_zygote(sys.executable, lifeline_fd=lifeline_fd, target=options.target)

    import asyncio

    asyncio.run(_serve(first, lifeline_fd, options))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m det_jupyter.agent", description=__doc__)
    parser.add_argument("--target", default=RANK_TARGET, help="what runs in a forked rank")
    parser.add_argument("--leave-after-s", type=float, default=60.0, help="when not needed")
    return parser


def _take_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock until we die, or None if another agent has it.

    An agent that is leaving gets the time to do so; who only looks holds the lock for an instant.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                return None
            time.sleep(0.02)


async def _serve(first: ZygoteProcess, lifeline_fd: int, options: argparse.Namespace) -> None:
    import asyncio
    import signal
    import socket
    import uuid

    from det_jupyter.agent.devices import discover_slots
    from det_jupyter.agent.runner import Runner
    from det_jupyter.agent.runs import adopt_runs
    from det_jupyter.agent.service import Service
    from det_jupyter.agent.sockets import socket_folder
    from det_jupyter.agent.spawn import Spawner
    from det_jupyter.agent.zygotes import Zygotes

    adopted = adopt_runs(now=time.time())
    with socket_folder() as folder:
        spawner = Spawner()
        zygotes = Zygotes(lifeline_fd=lifeline_fd, target=options.target)
        await zygotes.adopt(first)
        runner = Runner(
            adopted=adopted,
            zygotes=zygotes,
            spawner=spawner,
            lifeline_fd=lifeline_fd,
            socket_dir=folder,
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, spawner.reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.leave_ordered.set)
        service = Service(
            agent_id=socket.gethostname(),
            session=uuid.uuid4().hex,
            slots=discover_slots(),
            runner=runner,
            leave_after_s=options.leave_after_s,
        )
        try:
            await service.run()
        finally:
            await zygotes.close()


if __name__ == "__main__":
    sys.exit(main())
