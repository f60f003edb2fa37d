"""`python FILE`, `python -m MODULE` and `python -` as forks of a process that has loaded torch.

They run as new processes do, for a tenth of the CPU time ([m] 3 s for one that loads torch).
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.forks import Fork, torch_source


def start_python(
    *words: str,
    folder: Path,
    outputs: Sequence[Path],
    environment: Mapping[str, str] | None = None,
    text: str = "",
) -> Fork:
    """Start `python WORDS`, with files for its stdout and stderr; `text` is what `-` reads."""
    for file in outputs:
        file.write_text("")
    return torch_source().start(
        f"{__name__}:run", list(words), text,
        folder=folder, environment=environment, outputs=outputs,
    )  # fmt: skip


def run_python(*words: str, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` to its end, and return what it has printed."""
    outputs = [folder.with_name(f"{folder.name}.{name}") for name in ("stdout", "stderr")]
    status = start_python(*words, folder=folder, outputs=outputs, text=text).wait()
    return subprocess.CompletedProcess(words, status, *(each.read_text() for each in outputs))


def run(words: list[str], text: str) -> None:
    """Run the program in the fork."""
    name = words.pop(0)
    if name == "-m":
        name = words.pop(0)
    sys.argv = [name, *words]
    if name == "-":
        sys.path[0] = ""
        exec(compile(text, "<stdin>", "exec"), sys.modules["__main__"].__dict__)
    elif Path(name).exists():
        sys.path[0] = os.path.dirname(os.path.abspath(name))
        runpy.run_path(name, run_name="__main__")
    else:
        sys.path[0] = os.getcwd()
        runpy.run_module(name, run_name="__main__", alter_sys=True)
