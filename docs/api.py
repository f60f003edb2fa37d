"""Write the API reference, made from the docstrings: `python docs/api.py FOLDER`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pdoc

PACKAGES = (
    "det_jupyter",
    "det_jupyter.hp",
    "det_jupyter.core",
    "det_jupyter.pytorch",
    "det_jupyter.errors",
)


def write(folder: Path) -> None:
    """Write one page of HTML per package into the folder."""
    for package in map(importlib.import_module, PACKAGES):
        for name in getattr(package, "__all__", ()):  # pdoc does not see lazy names
            value = getattr(package, name)
            # The page of `templates` is that of its class: its repr would start a master.
            setattr(package, name, type(value) if name == "templates" else value)
    pdoc.render.configure(docformat="google", footer_text="det_jupyter")
    pdoc.pdoc(*PACKAGES, output_directory=folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
