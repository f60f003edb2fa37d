"""This package beside the real one: only one of them can be imported."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import metadata

PAGE = "docs/from-determined.md"


def refuse_the_real_one() -> None:
    """Refuse to be imported where Determined itself is installed.

    Raises:
        ImportError: It is.
    """
    try:
        real = metadata.distribution("determined")
    except metadata.PackageNotFoundError:
        return
    raise ImportError(
        f"both determined {real.version} and det-jupyter-determined are installed, and have the "
        "same folder; uninstall both, then install the one that is wanted: "
        "`pip uninstall determined det-jupyter-determined`",
        name="determined",
    )


def warn_once() -> None:
    """Say what this package is, where a person will read it.

    Not in each of many ranks, nor in wrappers (`python -m determined.launch.wrap_rank`, whose
    `sys.argv` begins with "-m" while their packages are imported).
    """
    if os.environ.get("RANK", "0") != "0" or sys.argv[:1] == ["-m"]:
        return
    warnings.warn(
        "this `determined` is det_jupyter, under the names of Determined; what differs and what "
        f"is lacking is in det_jupyter's {PAGE}",
        UserWarning,
        stacklevel=3,
    )
