"""Checks of the fork server: is a fork of this process safe, and can the child use CUDA?

A forked process has one thread, and no state of the CUDA driver. If its parent has other threads,
or such a state, the child hangs or fails later.

Python 3.12 and later warn at each `os.fork()` of a process with several threads. A rank always has
several threads that only wait: the kernel's, and the one that watches the agent. So the warning is
shown only if the program itself has started a thread.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path

from det_jupyter.contract.host.own_threads import own_thread_ids

_TASKS = "/proc/self/task"
_OF_ZMQ = "ZMQbg/"  # beginning of the names of ZeroMQ's threads
_WARNING = r"This process \(pid=\d+\) is multi-threaded, use of \w+\(\) may lead to deadlocks"
_IGNORED = ("ignore", re.compile(_WARNING, re.IGNORECASE), DeprecationWarning, None, 0)


def why_platform_unsafe() -> str:
    """Return why this platform cannot fork ranks; "" if it can."""
    if sys.platform == "darwin":
        return "macOS cannot fork a process that has loaded its frameworks"
    return ""


def why_unsafe() -> str:
    """Return why a fork is not safe now; "" if it is."""
    threads = sorted(_threads().values())
    if len(threads) > 1:
        return f"the zygote has {len(threads)} threads: {', '.join(threads)}"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "the zygote has initialised CUDA"
    return ""


def why_cuda_unusable() -> str:
    """Return why a forked process could not use CUDA; "" if it can.

    This is tested in a forked process, which takes a few ms.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    try:
        pid = os.fork()
    except OSError as error:
        return f"the zygote cannot fork: {error}"
    if pid == 0:
        is_bad = True
        try:
            is_bad = torch.cuda._is_in_bad_fork()
        finally:
            os._exit(is_bad)
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return ""
    return "a preloaded module has called the CUDA driver, after which forks cannot use CUDA"


def torch_cuda_version() -> str | None:
    """Return the version of CUDA that torch was built for; does not initialise it."""
    torch = sys.modules.get("torch")
    if torch is None:  # on macOS, where torch has none
        return None
    version: str | None = torch.version.cuda
    return version


def warn_of_users_threads() -> None:
    """Make Python warn of threads at a fork only if one of them is the user's."""
    if sys.version_info >= (3, 12):
        os.register_at_fork(before=_choose_warning)


def _choose_warning() -> None:
    """Show or suppress the warning of the next fork, overriding the program's own filters.

    Filters are changed only if necessary: after each change Python repeats warnings that it
    normally shows once.
    """
    if not _has_users_threads():
        if warnings.filters[:1] != [_IGNORED]:
            warnings.filterwarnings("ignore", _WARNING, DeprecationWarning)
    elif _IGNORED in warnings.filters:
        warnings.filters.remove(_IGNORED)  # type: ignore[attr-defined]  # it is a list


def _has_users_threads() -> bool:
    """Return whether there is a thread besides this one and the rank's own."""
    own = own_thread_ids() | {threading.get_native_id()}
    return any(t not in own and not name.startswith(_OF_ZMQ) for t, name in _threads().items())


def _threads() -> dict[int, str]:
    """Return the names of all threads by id, including threads that Python did not start."""
    if not os.path.isdir(_TASKS):
        return {thread.native_id or 0: thread.name for thread in threading.enumerate()}
    names = {}
    for task in os.listdir(_TASKS):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            names[int(task)] = Path(f"{_TASKS}/{task}/comm").read_text(encoding="utf-8").strip()
    return names
