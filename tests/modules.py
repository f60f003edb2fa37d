"""Imports of a test that later tests in the same process must not see."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def modules_as_before() -> Iterator[None]:
    """Have `sys.path` and `sys.modules` afterwards as they were."""
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
    """Return whether a module is none of an installed package, which may load only once."""
    module = vars(sys.modules[name])  # not getattr: modules that load lazily would load
    places = [module.get("__file__"), *(module.get("__path__") or ())]
    is_kept = name.partition(".")[0] in ("det_jupyter", "tests")
    return not is_kept and any(
        place and not place.startswith((sys.prefix, sys.base_prefix)) for place in places
    )
