"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "det_jupyter"
WITH_EXAMPLES = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text()]


def test_examples_are_true() -> None:
    assert WITH_EXAMPLES
    for path in WITH_EXAMPLES:
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
        assert found.attempted, path
        assert not found.failed, path
