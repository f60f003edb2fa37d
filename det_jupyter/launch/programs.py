"""Programs that launchers need and that are not ours."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from det_jupyter.launch.options import WrongUsage


def find_program(name: str, how: str) -> str:
    """Return the path of a program: beside this Python, or on the PATH.

    Args:
        name: Its name.
        how: How it is installed.

    Raises:
        WrongUsage: It is not there.
    """
    beside = Path(sys.executable).parent / name
    if beside.is_file():
        return str(beside)
    found = shutil.which(name)
    if found is None:
        raise WrongUsage(f"there is no program {name} on this computer; install it with `{how}`")
    return found
