"""The process that submits an experiment: a notebook, or a script."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from det_jupyter.contract.values.text import printable
from det_jupyter.errors import CaptureError


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The process that submits, and its options.

    Args:
        namespace: The globals of the notebook or script: the dict itself, not a copy.
        shell: IPython's shell, which has the sources of cells; None in a script.
        given: The class or function by its name, if it was given as an object.
        is_call: Submitted by `submit()`, whose handle may not be displayed.
        queue_anyway: Submit it even if no pool can run it at present.
        allow_large: Send more than 1 GiB.
        context: The context directory; None if there is none.
        include: Files and folders to add to it.
        follow_links: Send the targets of links that lead out of it.
    """

    namespace: Mapping[str, Any]
    shell: Any = None
    given: Mapping[str, Any] = field(default_factory=dict)
    is_call: bool = False
    queue_anyway: bool = False
    allow_large: bool = False
    context: Path | str | None = None
    include: Sequence[Path | str] = ()
    follow_links: bool = False

    @property
    def names(self) -> Mapping[str, Any]:
        """The values that an entrypoint may name."""
        return {**self.namespace, **self.given} if self.given else self.namespace


def namespace_of(shell: Any) -> dict[str, Any]:
    """Return the globals of the notebook, or of the script if there is no shell."""
    found: dict[str, Any] = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    return found


def present_folder() -> Path:
    """Return this process's working directory.

    Raises:
        CaptureError: It is deleted, or its name is not UTF-8.
    """
    try:
        folder = Path.cwd()
        str(folder).encode()
        return folder
    except UnicodeEncodeError:
        raise CaptureError(
            "the name of the folder that this notebook runs in is not UTF-8: "
            f"{os.fsencode(folder)!r}; rename it, or os.chdir() into another one"
        ) from None
    except FileNotFoundError:
        raise CaptureError(
            "the folder that this notebook runs in is not there any more; "
            "os.chdir() into one that is, or restart the kernel"
        ) from None


def notebook_path(caller: Caller) -> str | None:
    """Return the path of the script or notebook; None if the front end does not give it."""
    if caller.shell is None:
        script = os.path.abspath(caller.namespace.get("__file__") or "")
        return printable(script) if os.path.isfile(script) else None
    path = os.environ.get("JPY_SESSION_NAME") or caller.namespace.get("__vsc_ipynb_file__")
    return printable(str(path)) if path else None
