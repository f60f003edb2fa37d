"""Tables as plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import yaml


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with columns as wide as they must be.

    >>> print(plain_table(("id", "name"), [("1", "digits"), ("12", "x")]))
    id  name
    1   digits
    12  x
    """
    cells = [header, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def shown(value: Any) -> str:
    """Return a value as a cell of a table.

    >>> [shown(value) for value in (0.123456, 3, None, True, "a", {"epochs": 1})]
    ['0.1235', '3', '-', 'true', 'a', '{epochs: 1}']
    """
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.4g}"
        case dict() | list():
            return str(yaml.safe_dump(value, default_flow_style=True, width=math.inf)).strip()
        case _:
            return str(value)
