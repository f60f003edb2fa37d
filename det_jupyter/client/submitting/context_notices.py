"""Notices about the files of a context directory, for the user to read at submission."""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from det_jupyter.contract.trial.context_dir import ContextPlan
from det_jupyter.contract.trial.context_dir.python_modules import (
    is_builtin_or_frozen,
    modules_among,
    parse_module,
)
from det_jupyter.contract.values.entrypoints import (
    Captured,
    Imported,
    entrypoint_text,
    try_parse_entrypoint,
)
from det_jupyter.contract.values.text import printable, shortened
from det_jupyter.errors import CaptureError

_HOOK = "startup-hook.sh"  # Determined sources it in each container, before the ranks start
_MAX_LINES, _LONGEST_LINE = 5, 80  # most lines of the hook in a notice, and characters of a line


def find_context_notices(plan: ContextPlan, entrypoint: Any) -> list[str]:
    """Return all notices about a context directory."""
    return [*plan.notices, *find_shadowing(plan), *find_unrun_hook(plan, entrypoint)]


def find_shadowing(plan: ContextPlan) -> list[str]:
    """Return a notice for each top-level module that hides a module of Python's library."""
    return [
        f"context: {file} has the name of a module of Python: whatever imports {name} in the "
        "ranks gets it"
        for name, file in modules_among(plan.entries).items()
        if name in sys.stdlib_module_names and not is_builtin_or_frozen(name)
    ]


def find_unrun_hook(plan: ContextPlan, entrypoint: Any) -> Iterator[str]:
    """Yield a notice if a `startup-hook.sh` would not run: what is in it, and how to run it."""
    text = entrypoint_text(entrypoint) if isinstance(entrypoint, str | list) else ""
    if _HOOK not in plan.entries or plan.entries[_HOOK].kind == "folder" or _HOOK in text:
        return
    try:
        lines = plan.read(_HOOK).decode("utf-8", "replace").splitlines()
    except CaptureError:  # reported when the context is packed
        return
    does = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    front = [shortened(printable(line), _LONGEST_LINE) for line in does[:_MAX_LINES]]
    more = [f"… {len(does) - _MAX_LINES} more lines"] if len(does) > _MAX_LINES else []
    if not does:
        return
    remedy = "run it yourself before"
    if start := _command_for(plan, text):
        command = shlex.join(["bash", "-c", f". ./{_HOOK} && {start}"])
        remedy += f", or have each run begin with it: entrypoint: {command}"
    yield (
        f"context: {_HOOK} is not run, as ranks run in your own environment and not in a new "
        f"container ({'; '.join([*front, *more])}); {remedy}"
    )


def _command_for(plan: ContextPlan, text: str) -> str:
    """Return a shell command that runs the entrypoint; "" if there is none."""
    meaning = try_parse_entrypoint(text)
    if meaning is None or isinstance(meaning, Captured):
        return ""
    if isinstance(meaning, Imported) and text == f"{meaning.module}:{meaning.name}":
        is_trial = _is_trial(plan, meaning)  # required by `--trial`
        return f"python3 -m det_jupyter.launch.torch_distributed --trial {text}" * is_trial
    return text


def _is_trial(plan: ContextPlan, entrypoint: Imported) -> bool:
    """Return whether the entrypoint is a subclass of PyTorchTrial, by its source alone."""
    path = entrypoint.module.replace(".", "/")
    file = next((f for f in (f"{path}/__init__.py", f"{path}.py") if f in plan.entries), None)
    if file is None:
        return False
    body: list[ast.stmt] = []
    with suppress(CaptureError, OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        body = parse_module(plan.read(file)).body
    trials = {"PyTorchTrial"}
    for node in body:  # a base class is defined before its subclasses
        if isinstance(node, ast.ClassDef):
            if trials & {ast.unparse(base).rpartition(".")[2] for base in node.bases}:
                trials.add(node.name)
            else:
                trials.discard(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            trials.discard(node.name)
    return entrypoint.name in trials - {"PyTorchTrial"}
