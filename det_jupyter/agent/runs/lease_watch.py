"""`python -m det_jupyter.agent.runs.lease_watch SOCKET AGENT`: the watcher of an agent's lease.

    a line arrives          it is the time at which the lease ends (`since_boot`), or inf if no
                            ranks run; it is sent back
    the lease has ended     the agent is notified, then all processes that it has started are
                            killed, and those of its runs, again and again until it is renewed
    the agent has exited    what is left of its runs is killed, unless its successor is running,
                            which has done that (run.py)

It is in a process group of its own and ignores the signals that end an agent.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psutil

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.clock_steps import since_boot
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.contract.host.run_processes import kill_processes_below, kill_until_gone
from det_jupyter.contract.host.rundir import runs_root

logger = logging.getLogger(__name__)

EXPIRED = b"expired"  # the line that is sent to the agent when the lease has ended

_CHECK_S = 0.1  # a timeout would not count the time in which the computer is suspended
_AGAIN_S = 1.0
_KILL_S = 2.0  # time for killed processes to exit, in which the watcher does nothing else
_LOCK_S = 1.0
_MOST_BYTES = 1 << 16  # that are read at a time


def main() -> int:
    """Watch the lease until the agent exits."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    agent_pid = int(sys.argv[2])
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        was_held = watch(connection, partial(_end_all, agent_pid))
    if was_held and take_lock(paths.agent_lock(), timeout_s=_LOCK_S) is not None:
        _log(kill_processes_below(runs_root(paths.data_dir()), _LOCK_S)[0], "the agent has exited")
    return 0


def watch(connection: socket.socket, end: Callable[[], None]) -> bool:
    """Call `end` when the lease has ended, and again until it is renewed.

    Returns:
        Whether the lease was held when the agent closed the connection.
    """
    until, received, is_expired = math.inf, b"", False
    while True:
        timeout_s = None if until == math.inf else _AGAIN_S if is_expired else _CHECK_S
        if select.select([connection], [], [], timeout_s)[0]:
            data = b""
            with suppress(ConnectionError):
                data = connection.recv(_MOST_BYTES)
            if not data:
                return until < math.inf
            *lines, received = (received + data).split(b"\n")
            if lines:
                until, is_expired = float(lines[-1]), False
                with suppress(ConnectionError):  # the next turn notices
                    connection.sendall(lines[-1] + b"\n")
        elif since_boot() > until:  # only when nothing is left to read: no renewal is overlooked
            if not is_expired:
                is_expired = True
                with suppress(ConnectionError):
                    connection.sendall(EXPIRED + b"\n")  # first, so that the agent finds it
            end()


def _end_all(agent_pid: int) -> None:
    """Kill what the agent has started, fork servers included, and all processes of its runs."""
    started, _ = kill_until_gone(partial(_descendants, agent_pid), _KILL_S)
    runs = runs_root(paths.data_dir())
    of_runs, _ = kill_processes_below(runs, _KILL_S, spared=[agent_pid])
    _log(sorted({*started, *of_runs}), "the lease has ended")


def _descendants(agent_pid: int) -> list[psutil.Process]:
    if os.getppid() != agent_pid:  # it has exited, and another process may have its pid
        return []
    with suppress(psutil.Error):
        return [
            process
            for process in psutil.Process(agent_pid).children(recursive=True)
            if process.pid != os.getpid() and not _has_ended(process)
        ]
    return []


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _log(killed: object, reason: str) -> None:
    if killed:
        logger.warning("%s: killed %s", reason, killed)


if __name__ == "__main__":
    sys.exit(main())
