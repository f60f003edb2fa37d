"""`compat/` on the path: CI installs det_jupyter alone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

COMPAT = Path(__file__).parents[3] / "compat"


@pytest.fixture(scope="session", autouse=True)
def _names_of_determined() -> Iterator[None]:
    """Import `determined` from the repository, for the tests of this folder."""
    sys.path.insert(0, str(COMPAT))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says what it is
        import determined
    assert Path(determined.__file__).is_relative_to(COMPAT)
    yield
    sys.path.remove(str(COMPAT))
