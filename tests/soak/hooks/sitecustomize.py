"""Kills a process when it calls a chosen function. Python imports this file through PYTHONPATH.

A file `armed` in the folder SOAK_POINTS names a role and a function. The first process of the role
that calls it removes the file, and gets SIGKILL. If the folder has a file `record`, all called
functions are appended to `seen-<role>`, each once per process.

Roles are those of tests/soak/faults.py. Standard library only: this runs before anything else.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import CodeType, FrameType

# By module: the roles of its process, of its forks, and of their forks; the starter of readers has
# none.
_MODULES = {
    "det_jupyter.master": ("master", "", "reader"),
    "det_jupyter.agent": ("agent", "", ""),
    "det_jupyter.rank.zygote": ("fork server", "rank", "loader"),
}
_WATCHED = ("/det_jupyter/", "/torch/utils/data/", "/torch/multiprocessing/", "/multiprocessing/")
_OF_FUNCTION = 1  # CO_OPTIMIZED: not of a module or a class

_folder = os.environ.get("SOAK_POINTS", "")
_arguments = sys.orig_argv
_module = _arguments[_arguments.index("-m") + 1] if "-m" in _arguments[:-1] else ""
_num_forks = 0
_role = ""
_sought: str | None = None
_called: set[CodeType] = set()


def _watch(frame: FrameType, event: str, argument: object) -> None:
    code = frame.f_code
    if event != "call" or code in _called or not code.co_flags & _OF_FUNCTION:
        return
    _called.add(code)
    found = next(
        (code.co_filename.find(part) for part in _WATCHED if part in code.co_filename), -1
    )
    if found < 0:
        return
    name = f"{code.co_filename[found + 1 :]}:{code.co_qualname}"
    if _sought is None:
        with open(f"{_folder}/seen-{_role}", "a", encoding="utf-8") as file:
            file.write(f"{name}\n")
    elif name == _sought:
        sys.setprofile(None)
        try:
            os.unlink(f"{_folder}/armed")
        except FileNotFoundError:  # another process was faster
            return
        os.kill(os.getpid(), signal.SIGKILL)


def _begin() -> None:
    """Trace this process if it has the role."""
    global _role, _sought
    _role = _MODULES[_module][min(_num_forks, 2)] if _module in _MODULES else ""
    sys.setprofile(None)
    threading.setprofile(None)
    _called.clear()
    try:
        with open(f"{_folder}/armed", encoding="utf-8") as file:
            role, _, _sought = file.read().partition(" at ")
    except FileNotFoundError:
        role, _sought = "", None
    if not _role or (_sought is not None and role != _role):
        return
    if _sought is None and not os.path.exists(f"{_folder}/record"):
        return
    threading.setprofile(_watch)
    sys.setprofile(_watch)


def _begin_child() -> None:
    global _num_forks
    _num_forks += 1
    _begin()


if _folder:
    os.register_at_fork(after_in_child=_begin_child)
    _begin()
