"""`import_from_path`: imports a checkpoint's code beside loaded code of the same name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def import_from_path(path: str | Path) -> Iterator[None]:
    """Within the block, import modules from this folder first.

    Modules with the names of those in the folder are imported again; after the block the former
    ones are in `sys.modules` again. Not thread-safe.

        with det.import_from_path(checkpoint_path / "code"):
            import model_def as model_def_of_the_checkpoint
    """
    folder = Path(path).resolve()
    names = {_module_name(entry) for entry in folder.iterdir()} - {""}
    before = _take_out(names)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        _take_out(names)
        sys.modules.update(before)


def _module_name(entry: Path) -> str:
    """Return the name by which a file or folder is imported; "" if it cannot be."""
    name = entry.name if entry.is_dir() else entry.stem
    is_code = entry.is_dir() or entry.suffix == ".py"
    return name if is_code and name.isidentifier() else ""


def _take_out(names: set[str]) -> dict[str, ModuleType]:
    """Remove these modules and their submodules from `sys.modules`, and return them."""
    found = [name for name in sys.modules if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in found}
