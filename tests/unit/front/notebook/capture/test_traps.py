"""Mistakes that the code of functions shows before it runs."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from det_jupyter.front.notebook.capture.traps import find_code_traps


def notices(source: str) -> list[str]:
    """Return the notices about the functions that a notebook defines."""
    names: dict[str, Any] = {}
    exec(source, names)
    functions = [value for value in names.values() if isinstance(value, FunctionType)]
    return find_code_traps(functions[0], functions)


def test_a_name_that_is_defined_nowhere_is_reported_once_with_a_near_one() -> None:
    [notice] = notices("scale = 2\ndef f(): return scal\ndef g(): return scal")
    assert notice == (
        "f: scal is defined nowhere, so ranks that come to it end with a NameError; "
        "did you mean scale?"
    )


@pytest.mark.parametrize(
    "source",
    [
        "def f(): return len(g())\ndef g(): return 1",
        "def f(): return made\ndef g():\n  global made\n  made = 1",
        "def f(x): return [y for y in x]",
        "def breakpoint(): pass\ndef f(): breakpoint()",
    ],
)
def test_defined_names_are_no_mistakes(source: str) -> None:
    assert notices(source) == []


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("def f(): breakpoint()", "breakpoint()"),
        ("import pdb\ndef f(): pdb.set_trace()", "set_trace()"),
        ("from pdb import set_trace\ndef f():\n  import pdb\n  set_trace()", "set_trace()"),
    ],
)
def test_a_debugger_in_the_code_is_reported(source: str, call: str) -> None:
    [notice] = notices(source)
    assert notice.startswith(f"f: {call} needs a terminal, and ranks have none")
