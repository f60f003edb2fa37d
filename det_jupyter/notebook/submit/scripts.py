"""`%%det_script train.py`: a cell as a file of the context directories of this notebook.

It is kept in the kernel, and written nowhere else.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from det_jupyter.context.modules import find_syntax_error
from det_jupyter.errors import ConfigError, UsageError
from det_jupyter.words import count


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
