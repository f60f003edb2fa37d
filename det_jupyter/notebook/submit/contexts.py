"""The context directory of an experiment that a notebook submits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from det_jupyter.context import ContextPlan, plan_context
from det_jupyter.entrypoints import Captured, Entrypoint
from det_jupyter.notebook.submit.scripts import SCRIPTS
from det_jupyter.words import printable, size

_MAX_FILES = 30  # that a dry run lists
_MAX_NAMES = 8


def plan_surroundings(
    folder: Path | str | None, include: Sequence[Path | str], entrypoint: Entrypoint | None
) -> ContextPlan | None:
    """Return what would travel beside the entrypoint; None: ranks work in the present folder.

    The notebook's scripts travel with a context directory, and with a module or command.

    Args:
        folder: The context directory; None: there is none.
        include: Files and folders to add to it.
    """
    is_captured = entrypoint is None or isinstance(entrypoint, Captured)
    has_scripts = bool(SCRIPTS) and not is_captured
    if folder is None and not include and not has_scripts:
        return None
    texts = {name: script.text for name, script in SCRIPTS.items()}
    plan = plan_context(folder, include=include, scripts=texts)
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
