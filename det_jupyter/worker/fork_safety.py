"""Checks of the fork server: whether a fork of this process would work, and whether with CUDA.

A forked process has one thread, and no state of the CUDA driver. If the parent has more of either,
the child hangs or fails later.
"""

from __future__ import annotations

import os
import sys
import threading

_TASKS = "/proc/self/task"


def why_platform_unsafe() -> str:
    """Return why this platform cannot fork ranks; "" if it can."""
    if sys.platform == "darwin":
        return "macOS cannot fork a process that has loaded its frameworks"
    return ""


def why_unsafe() -> str:
    """Return why a fork is not safe now; "" if it is."""
    threads = _thread_names()
    if len(threads) > 1:
        return f"the zygote has {len(threads)} threads: {', '.join(sorted(threads))}"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "the zygote has initialised CUDA"
    return ""


def why_cuda_unusable() -> str:
    """Return why a forked process could not use CUDA; "" if it can.

    Only a forked process can find out, so this forks one, which takes a few ms.
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
    return "a module that was preloaded has asked the CUDA driver something, which spoils forks"


def torch_cuda_version() -> str | None:
    """Return the version of CUDA or HIP that torch was built for; initialises neither."""
    torch = sys.modules.get("torch")
    if torch is None:  # on macOS, which has neither
        return None
    version: str | None = torch.version.cuda or torch.version.hip
    return version


def _thread_names() -> list[str]:
    """Return the names of all threads, also of those that Python did not start."""
    if not os.path.isdir(_TASKS):
        return [thread.name for thread in threading.enumerate()]
    names = []
    for task in os.listdir(_TASKS):
        with open(f"{_TASKS}/{task}/comm", encoding="utf-8") as file:
            names.append(file.read().strip())
    return names
