"""`after_import`: changes a module of another library once it is imported, and not before.

A change that fails, as with another version of the library, is logged: the import goes on.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

logger = logging.getLogger(__name__)


def after_import(name: str, do: Callable[[], None], *, has: str) -> None:
    """Call `do` after the first import of a module; now, if it is imported already.

    Args:
        name: Name of the module.
        do: Called without arguments.
        has: An attribute that the module has only when its import is over.
    """
    if hasattr(sys.modules.get(name), has):
        _change(name, do)
    else:
        sys.meta_path.insert(0, _AfterImport(name, do))


def _change(name: str, do: Callable[[], None]) -> None:
    try:
        do()
    except Exception as error:  # it would be one of the user's import
        logger.warning("%s: this version is not recorded: %r", name, error)


class _AfterImport(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, do: Callable[[], None]) -> None:
        self._name, self._do = name, do

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name or self not in sys.meta_path:
            return None
        # Those after this one: one of them may wait for the same module.
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((each for each in found if each is not None), None)
        loader = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:  # the spec may be requested without an import
                    sys.meta_path.remove(self)
                    _change(self._name, self._do)

            loader.exec_module = exec_module  # type: ignore[method-assign]  # of this loader only
        return spec
