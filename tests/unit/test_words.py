"""Text from elsewhere, made fit to be shown."""

from __future__ import annotations

import re
from pathlib import Path

import det_jupyter
from det_jupyter.words import error_line, error_text

_BY_HAND = re.compile(r"type\((\w+)\)\.__name__\}: \{(\1|said_by\(\1\))\}")


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_the_text_of_an_error_is_its_type_and_its_message() -> None:
    assert error_text(OSError("gone\nfor good")) == "OSError: gone\nfor good"
    assert error_line(OSError("gone\nfor good")) == "OSError: gone"
    assert error_text(TimeoutError()) == error_line(TimeoutError()) == "TimeoutError"
    assert error_text(_Unspeakable()) == "_Unspeakable: <its __str__ raised ValueError>"


def test_no_other_module_puts_the_text_of_an_error_together() -> None:
    root = Path(det_jupyter.__file__).parent
    errors = root / "errors.py"  # says what our own errors say, which can always be said
    others = [
        f"{path.relative_to(root)}: {found[0]}"
        for path in sorted(root.rglob("*.py"))
        if path != errors
        for found in _BY_HAND.finditer(path.read_text(encoding="utf-8"))
    ]
    assert others == []
