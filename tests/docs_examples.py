"""Runs example notebooks and stores their outputs in them: `make docs-examples`.

    python -m tests.docs_examples [NAME ...]     all by default

Each runs in a copy of the folder with a det_jupyter of its own, on CPU slots. Of its outputs those
are kept that a page of the site or of GitHub shows: text, HTML, pictures. In them, this computer's
name is `pc`, and its folders begin with `~`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

from tests.notebook_kernel import run_notebook
from tests.processes import det_home

EXAMPLES = Path(__file__).parents[1] / "examples"
SHOWN = ("text/plain", "text/html", "text/markdown", "image/png", "image/svg+xml")
MOST_BYTES = 150_000  # of a notebook
_REDRAWN = re.compile(r"[^\n]*\r(?!\n)")  # of a line that a progress bar has written anew


def main() -> int:
    """Run the notebooks that are named; return the exit status."""
    names = sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    named = parser.parse_args().names
    if unknown := [name for name in named if name not in names]:
        parser.error(f"no example {', '.join(unknown)}: there are {', '.join(names)}")
    too_large = [name for name in named or names if execute(name) > MOST_BYTES]
    for name in too_large:
        print(f"{name}: more than {MOST_BYTES:,} bytes", file=sys.stderr)
    return 1 if too_large else 0


def execute(name: str) -> int:
    """Run a notebook and store its outputs in it; return its bytes."""
    path = EXAMPLES / f"{name}.ipynb"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLES, Path(folder, "examples"))
        with det_home(Path(folder, "home"), {"TMPDIR": folder}):
            document, _ = run_notebook(path, Path(folder, "examples"))
        names = {folder: "~", sys.prefix: "~/.venv", os.path.realpath(sys.prefix): "~/.venv"}
        names |= {os.path.expanduser("~"): "~", socket.gethostname(): "pc"}
        for cell in document.cells:
            if cell.cell_type == "code":
                cell.metadata.clear()  # when it ran
                cell.outputs = [shown(each, names) for each in cell.outputs]
    document.metadata.pop("widgets", None)
    document.metadata.language_info = {"name": "python"}
    nbformat.write(document, path)
    print(f"{name}: {path.stat().st_size:,} bytes", flush=True)
    return path.stat().st_size


def shown(output: Any, names: dict[str, str]) -> Any:
    """Return an output with what a page shows of it, with other names for those given."""
    if "data" in output:
        output.metadata = {}
        output.data = {
            kind: renamed(output.data[kind], names)
            if kind.startswith("text/")
            else output.data[kind]
            for kind in SHOWN
            if kind in output.data
        }
    elif "text" in output:
        output.text = _REDRAWN.sub("", renamed(output.text, names))
    return output


def renamed(text: str, names: dict[str, str]) -> str:
    """Return text with other names in place of those given, where these are whole words."""
    for name, other in names.items():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", other, text)
    return text


if __name__ == "__main__":
    sys.exit(main())
