"""New environments, in which Python and Jupyter find nothing of other environments."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LINE = re.compile(r"pip install '(?:det-jupyter|\.)\[([\w,-]+)\]'")


def readme_extras() -> list[str]:
    """Return the extras that README's install names; they bring what the quickstart needs."""
    (extras,) = set(_LINE.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    return str(extras).split(",")


def variables(bin: Path) -> dict[str, str]:
    """Return the variables for a program of the environment with this folder of programs."""
    ours = ("JUPYTER", "IPYTHON", "PYTHON", "VIRTUAL_ENV", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PATH": f"{bin}:{os.defpath}", "HOME": str(bin.parent)}


def checked(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> str:
    """Return what a command prints.

    Raises:
        RuntimeError: Its exit status is not 0; with the command and what it printed.
    """
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode != 0:
        line = " ".join(map(str, command))
        raise RuntimeError(f"{line}: exit status {done.returncode}\n{done.stdout[-8000:]}")
    return done.stdout


def run_quickstart(bin: Path, notebook: Path, executed: Path, home: Path) -> None:
    """Execute the quickstart, which fails below an accuracy of 0.97, with a home of its own."""
    options = ["--timeout=300", f"--output={executed}"]
    checked(
        [bin / "jupyter", "execute", *options, notebook],
        executed.parent,
        variables(bin) | {"DET_JUPYTER_HOME": str(home)},
    )
