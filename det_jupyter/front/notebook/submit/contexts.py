"""The context directory of an experiment that a notebook submits, and scripts that go with it.

`%%det_script train.py` keeps a cell as a file of the context directories of this notebook. It is
in the kernel, and written nowhere else.
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
from det_jupyter.contract.values.text import count, printable, size
from det_jupyter.errors import ConfigError, UsageError

_MAX_FILES = 30  # that a dry run lists
_MAX_NAMES = 8


@dataclass(frozen=True, slots=True)
class Script:
    """A script of the notebook."""

    text: str
    cell: str  # where it is from: "In [5]"


SCRIPTS: dict[str, Script] = {}  # of this kernel, by their paths in a context


def keep_script(line: str, text: str, cell: str) -> str:
    """Keep a script under the path in a line, and return what to say of it.

    Raises:
        UsageError: The name is no path in a context.
        ConfigError: It is Python that cannot be read.
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


def plan_surroundings(
    folder: Path | str | None,
    include: Sequence[Path | str],
    entrypoint: Entrypoint | None,
    *,
    follow_links: bool = False,
) -> ContextPlan | None:
    """Return what would travel beside the entrypoint; None: ranks work in the present folder.

    The notebook's scripts travel with a context directory, and with a module or command.

    Args:
        folder: The context directory; None: there is none.
        include: Files and folders to add to it.
        follow_links: Whether what links out of it lead to travels in their places.
    """
    is_captured = entrypoint is None or isinstance(entrypoint, Captured)
    has_scripts = bool(SCRIPTS) and not is_captured
    if folder is None and not include and not has_scripts:
        return None
    texts = {name: script.text for name, script in SCRIPTS.items()}
    plan = plan_context(folder, include=include, scripts=texts, follow_links=follow_links)
    if folder is None and not plan.problems:
        plan.notices.append(
            f"ranks work in a copy of {_listed(sorted(plan.files))} alone; --context . takes the "
            "rest of this folder along"
        )
    return plan


def list_files(plan: ContextPlan) -> Iterator[str]:
    """Yield a line for each file, the first ones of many."""
    files = plan.files
    for name, num_bytes in list(files.items())[:_MAX_FILES]:
        script = SCRIPTS.get(name)
        where = f"script of {script.cell}" if script is not None else "file"
        yield printable(f"{name:24} {where:20} {num_bytes:>12,} bytes")
    if len(files) > _MAX_FILES:
        rest = sum(list(files.values())[_MAX_FILES:])
        yield f"and {len(files) - _MAX_FILES:,} more files, {size(rest)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"
