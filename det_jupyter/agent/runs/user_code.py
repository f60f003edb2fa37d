"""Determines which frames of a stack are of the user's code. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

OURS = str(Path(__file__).parents[2]) + os.sep  # this package
_INSTALLED = re.compile(r"/lib(?:64)?/python3[\d.]*t?/|/(?:site|dist)-packages/")


def is_user_file(file: str, labels: Collection[str], folders: Iterable[str]) -> bool:
    """Return whether a file is of the user's code.

    Files of Python and of installed packages are not, even below `folders`: a home folder often
    contains an environment.

    Args:
        file: The file name in the frame.
        labels: The files of the captured code.
        folders: Folders of the user's modules.
    """
    if file in labels:
        return True
    if _INSTALLED.search(file) or file.startswith(OURS):
        return False
    return any(file.startswith(f"{folder.rstrip(os.sep)}{os.sep}") for folder in folders)
