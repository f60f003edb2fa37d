"""Hides the imports of a test from later tests in the same process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def modules_as_before() -> Iterator[None]:
    """Restore `sys.path` and `sys.modules` after the block."""
    path, modules = sys.path.copy(), sys.modules.copy()
    try:
        yield
    finally:
        sys.path[:] = path
        for name in sys.modules.keys() - modules.keys():
            if _is_of_a_test(name):
                del sys.modules[name]
        sys.modules.update(modules)


def _is_of_a_test(name: str) -> bool:
    """Return whether a module is of no installed package; such a package may load only once."""
    module = vars(sys.modules[name])  # not getattr, which would load lazy modules
    places = [module.get("__file__"), *(module.get("__path__") or ())]
    is_kept = name.partition(".")[0] in ("det_jupyter", "tests")
    return not is_kept and any(
        place and not place.startswith((sys.prefix, sys.base_prefix)) for place in places
    )
