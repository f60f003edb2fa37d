"""Runs a Python program as `__main__`, in this process: as `python` would, with torch loaded.

    python3 train.py --epochs 3     sys.argv as given, sys.path[0] the script's folder
    python3 folder_or_zip           its `__main__`
    python3 -m package.module       sys.path[0] the current folder

torch and what it needs are imported already, so a module of the context directory with the name of
such a package would not be found by that name. It is refused (entrypoint.py).
"""

from __future__ import annotations

import builtins
import logging
import os
import random
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from det_jupyter.context.modules import describe_syntax_error
from det_jupyter.entrypoints import Program
from det_jupyter.errors import ConfigError
from det_jupyter.worker.endings import check_exit, finish_python
from det_jupyter.worker.entrypoint import listed, put_first
from det_jupyter.worker.work import ProcessRun


class ProgramRun(ProcessRun):
    """One run of a program."""

    def __init__(self, program: Program, *, steps: Callable[[], int], first: int) -> None:
        super().__init__(steps=steps, first=first)
        self._program = program

    def run(self) -> None:
        """Run it to its end, exit handlers included.

        Raises:
            ExitedWith: It called `sys.exit` with an exit code.
            BaseException: What it has raised.
        """
        name = f"python -m {self._program.target}" if self._program.is_module else ""
        try:
            self._run_main()
        except SystemExit as error:
            check_exit(name or self._program.target, error)
        finish_python()

    def _run_main(self) -> None:
        target = self._program.target
        sys.argv = [target, *self._program.args]
        main = ModuleType("__main__")
        vars(main).update({"__builtins__": builtins, "__annotations__": {}})
        sys.modules["__main__"] = main
        # Those of the fork server: with them the program's `logging.basicConfig` would do nothing.
        logging.root.handlers.clear()
        logging.root.setLevel(logging.WARNING)
        _draw_seeds()
        if self._program.is_module:
            put_first(Path.cwd())
            runpy._run_module_as_main(target)  # type: ignore[attr-defined]  # what `-m` calls
            return
        path = Path(os.path.abspath(target))
        _check_there(path, target)
        if path.is_dir() or path.suffix in (".zip", ".pyz"):
            sys.path.insert(0, str(path))
            runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
            return
        put_first(Path(os.path.realpath(path)).parent)
        vars(main).update({"__file__": str(path), "__cached__": None})
        exec(_compiled(path, target), vars(main))

    def live(self) -> dict[str, Any]:
        shown = vars(sys.modules["__main__"]).items()
        return {name: value for name, value in shown if not name.startswith("__")}


def _draw_seeds() -> None:
    """Seed the generators as a fresh Python does: all forked processes have the same state."""
    random.seed()
    torch.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def _compiled(path: Path, target: str) -> CodeType:
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ConfigError(f"entrypoint: {describe_syntax_error(error, target)}") from None
    except ValueError as error:  # null bytes
        raise ConfigError(f"entrypoint: {target} is no Python: {error}") from None


def _check_there(path: Path, target: str) -> None:
    if path.exists():
        if not os.access(path, os.R_OK):
            raise ConfigError(f"entrypoint: {target} cannot be read; its mode forbids it")
        return
    there = sorted(p.name for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
    raise ConfigError(
        f"entrypoint: there is no {target} in the folder that ranks work in (Python files "
        f"there: {listed(there)}); the context directory has to contain it"
    )
