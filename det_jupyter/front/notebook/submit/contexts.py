"""The context directory of a notebook's experiment, and the notebook's scripts in it.

`%%det_script train.py` stores a cell in the kernel, as a file to add to context directories. It is
not written to disk.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.contract.trial.context_dir import ContextPlan, plan_context
from det_jupyter.contract.trial.context_dir.python_modules import find_syntax_error
from det_jupyter.contract.values.entrypoints import Captured, Entrypoint
from det_jupyter.contract.values.text import count, listed, printable, size
from det_jupyter.errors import ConfigError, UsageError

_MAX_FILES = 30  # most files that a dry run lists
_MAX_NAMES = 8


@dataclass(frozen=True, slots=True)
class Script:
    """A script of the notebook."""

    text: str
    cell: str  # its origin: "In [5]"


SCRIPTS: dict[str, Script] = {}  # scripts of this kernel, by path in the context


def store_script(line: str, text: str, cell: str) -> str:
    """Store a script under the path in `line`, and return a line to print.

    Raises:
        UsageError: The line is not one path inside of a context.
        ConfigError: It is Python with a syntax error.
    """
    path = _path_of(line)
    if path.endswith(".py") and (problem := find_syntax_error(text, path)):
        raise ConfigError(problem)
    again = " (instead of the one before)" if path in SCRIPTS else ""
    SCRIPTS[path] = Script(text, cell)
    lines = count(len(text.splitlines()), "line")
    return f"{path}: {lines}, taken along by experiments with --context or a command{again}"


def _path_of(line: str) -> str:
    try:
        [given] = shlex.split(line)
    except ValueError:  # none, several, or an open quote
        given = ""
    path = os.path.normpath(given) if given else ""
    if not path or os.path.isabs(path) or path.split(os.sep)[0] in (".", ".."):
        raise UsageError(
            f"%%det_script: got {line.strip()!r}, expected the path of one file in the context, "
            "such as train.py"
        )
    return path


def list_scripts() -> str:
    if not SCRIPTS:
        return "no scripts yet; write %%det_script train.py above the code of one"
    return "\n".join(
        f"{name:24} {count(len(script.text.splitlines()), 'line'):>12}  {script.cell}"
        for name, script in sorted(SCRIPTS.items())
    )


def plan_notebook_context(
    folder: Path | str | None,
    include: Sequence[Path | str],
    entrypoint: Entrypoint | None,
    *,
    follow_links: bool = False,
) -> ContextPlan | None:
    """Return the plan of the context directory; None if ranks work in the present folder.

    The notebook's scripts are added to a context directory; an entrypoint that is a module or
    command gets one for them.

    Args:
        folder: The context directory; None if there is none.
        include: Files and folders to add to it.
        follow_links: Send the targets of links that lead out of it.
    """
    is_captured = entrypoint is None or isinstance(entrypoint, Captured)
    has_scripts = bool(SCRIPTS) and not is_captured
    if folder is None and not include and not has_scripts:
        return None
    texts = {name: script.text for name, script in SCRIPTS.items()}
    plan = plan_context(folder, include=include, scripts=texts, follow_links=follow_links)
    if folder is None and not plan.problems:
        plan.notices.append(
            f"ranks work in a copy of {listed(sorted(plan.files), most=_MAX_NAMES)} alone; "
            "--context . takes the rest of this folder along"
        )
    return plan


def list_files(plan: ContextPlan) -> Iterator[str]:
    """Yield a line for each of the first files, and one for the others."""
    files = plan.files
    for name, num_bytes in list(files.items())[:_MAX_FILES]:
        script = SCRIPTS.get(name)
        where = f"script of {script.cell}" if script is not None else "file"
        yield printable(f"{name:24} {where:20} {num_bytes:>12,} bytes")
    if len(files) > _MAX_FILES:
        rest = sum(list(files.values())[_MAX_FILES:])
        yield f"and {len(files) - _MAX_FILES:,} more files, {size(rest)}"
