"""Finds the processes of a run or of a home, whatever their parents and process groups are by now.

    master, agent, fork server,
    TensorBoard                           their command line, and their working folder: the data
                                          folder
    a program that was started            its environment has the run's folder (RUN_VARIABLE)
    a fork of a rank, without exec        it has mapped the rank's control page

Forks are found on Linux only. A process that a script has forked may have left its session and
closed all its files, as daemons do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

import psutil

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.rundir import RUN_VARIABLE, RunDir

_POLL_S = 0.01
_DELETED = " (deleted)"  # after a path in /proc
_PROGRAMS = {
    "master": ("-m", "det_jupyter.master", "serve"),
    "agent": ("-m", "det_jupyter.agent"),
    "fork server": ("-m", "det_jupyter.rank.zygote"),
}
_TENSORBOARD = {"TensorBoard": ("-m", "det_jupyter", "tensorboard", "start")}


def kill_run_processes(run: RunDir, timeout_s: float = 5.0) -> list[int]:
    """Kill all processes of a run except the caller; return the pids of those that exited.

    Takes 0.1 ms per process of the computer.
    """
    return _end_all(str(run.path), os.fsencode(run.control), timeout_s)[0]


def kill_processes_below(
    runs: Path, timeout_s: float = 5.0, *, spared: Collection[int] = ()
) -> tuple[list[int], list[int]]:
    """Kill all processes of all runs in the folder `runs`, except the caller and `spared`.

    An agent that runs must be spared: it has mapped control pages too.

    Returns:
        The pids of those that exited, and of those that did not within the timeout.
    """
    return _end_all(f"{runs}{os.sep}", os.fsencode(f"{runs}{os.sep}"), timeout_s, spared)


def pids_below(runs: Path) -> list[int]:
    """Return the pids of the processes of all runs in the folder `runs`.

    While the agent runs, its own pid is among them.
    """
    below = f"{runs}{os.sep}"
    return [process.pid for process in _find(below, os.fsencode(below), psutil.pids())]


def _end_all(
    folder: str, mapped: bytes, timeout_s: float, spared: Collection[int] = ()
) -> tuple[list[int], list[int]]:
    return kill_until_gone(
        lambda: _find(folder, mapped, (pid for pid in psutil.pids() if pid not in spared)),
        timeout_s,
    )


def kill_until_gone(
    find: Callable[[], list[psutil.Process]], timeout_s: float
) -> tuple[list[int], list[int]]:
    """Kill the processes that `find` returns, again and again until it returns none.

    They are killed at least once, however long finding them takes.

    Returns:
        The pids of those that exited, and of those that did not within the timeout.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + timeout_s
    for attempt in count():
        found = find()
        # On a busy computer, finding them alone may take longer than the timeout.
        if not found or (attempt > 0 and time.monotonic() > deadline):
            break
        for process in found:
            with suppress(psutil.Error):
                process.kill()
                killed.add(process.pid)
        time.sleep(_POLL_S)
    left = {process.pid for process in found}
    return sorted(killed - left), sorted(left)


def programs_of(data: Path) -> list[tuple[str, ProcessIdentity]]:
    """Return masters, then agents, then fork servers of a folder of data, each with its name.

    They are found even if the folder was removed, with its lock files, and created again: the path
    of their working folder is compared.
    """
    return _running_in(data, _PROGRAMS)


def boards_of(data: Path) -> list[ProcessIdentity]:
    """Return the background TensorBoards of a folder of data; found as in `programs_of`."""
    return [process for _, process in _running_in(data, _TENSORBOARD)]


def _running_in(
    data: Path, programs: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, ProcessIdentity]]:
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):  # it is another user's, or has exited
            process, line = ProcessIdentity.of(pid), psutil.Process(pid).cmdline()
            name = next((each for each, words in programs.items() if _contains(line, words)), "")
            if not name or pid == os.getpid() or _has_another(pid, str(data)):
                continue
            folder = psutil.Process(pid).cwd()
            if folder.removesuffix(_DELETED) == os.path.realpath(data):
                found.append((name, process))
    return sorted(found, key=lambda one: list(programs).index(one[0]))


def _contains(line: list[str], words: tuple[str, ...]) -> bool:
    return any(tuple(line[start : start + len(words)]) == words for start in range(1, len(line)))


def processes_of(run: RunDir, pids: Iterable[int]) -> list[psutil.Process]:
    """Return the processes among `pids` that belong to the run, except the caller."""
    return _find(str(run.path), os.fsencode(run.control), pids)


def _find(folder: str, mapped: bytes, pids: Iterable[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with suppress(psutil.Error, OSError):  # the process is another user's, or has exited
            process = psutil.Process(pid)
            is_ours = pid != os.getpid() and _belongs(process, folder, mapped)
            if is_ours and not _has_another(pid, folder):
                found.append(process)
    return found


def _has_another(pid: int, folder: str) -> bool:
    """Return whether this path is another folder for that process, as with a /tmp of its own."""
    try:
        return not os.path.samestat(os.stat(f"/proc/{pid}/root{folder}"), os.stat(folder))
    except OSError:  # it does not see the folder (a container), or the folder was removed
        return False


def _belongs(process: psutil.Process, folder: str, mapped: bytes) -> bool:
    """Return whether a process belongs to a run.

    Args:
        folder: The run's folder, which is compared with RUN_VARIABLE; if it ends with a
            separator, any run in it counts.
        mapped: A part of a path; a process that has mapped such a file belongs to the run.
    """
    named = process.environ().get(RUN_VARIABLE, "")
    if named == folder or (folder.endswith(os.sep) and named.startswith(folder)):
        return True
    with suppress(FileNotFoundError):  # not Linux
        # psutil's `memory_maps` has the kernel count all pages: [m] 0.9 ms instead of 0.04
        return mapped in Path(f"/proc/{process.pid}/maps").read_bytes()
    return False
