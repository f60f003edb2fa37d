"""Finds the processes of a home, whatever their parent is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil

from det_jupyter.contract.host import paths

_HAS_PROC = Path("/proc/self/environ").exists()


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; a zombie has."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True


def processes_of(home: Path) -> list[psutil.Process]:
    """Return every live process that was started under this home, whatever its parent is."""
    return processes_whose_home(lambda other: other == str(home))


def processes_whose_home(is_ours: Callable[[str], bool]) -> list[psutil.Process]:
    """Return every live process whose home satisfies `is_ours`, except this process."""
    found = []
    for pid in psutil.pids():
        try:
            home = _home_of(pid)
            if pid == os.getpid() or not home or not is_ours(home):
                continue
            if (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (FileNotFoundError, ProcessLookupError, PermissionError, psutil.Error):
            continue
    return found


def _home_of(pid: int) -> str:
    """Return the home that a process was started under.

    Reads /proc directly if it exists, as tests poll this ([m] 1 instead of 5 ms CPU for 115
    processes). The reader of a master, which is forked, is in another session and works in the
    data folder.
    """
    if not _HAS_PROC:
        return psutil.Process(pid).environ().get(paths.HOME_VARIABLE, "")
    with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
        environ = b"\0" + file.read()
    _, is_set, rest = environ.partition(os.fsencode(f"\0{paths.HOME_VARIABLE}="))
    if is_set:
        return os.fsdecode(rest.partition(b"\0")[0])
    folder = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
    return folder.removesuffix("/data") if folder.endswith("/data") else ""


def find(home: Path, module: str) -> psutil.Process | None:
    """Return the process that runs `python -m <module>` under this home."""
    for process in processes_of(home):
        try:
            line = process.cmdline()
        except psutil.NoSuchProcess:
            continue
        if module in line:
            return process
    return None


def processes_below(folder: Path) -> list[psutil.Process]:
    """Return every live process whose home is in this folder, at any depth."""
    return processes_whose_home(lambda home: Path(home).is_relative_to(folder))
