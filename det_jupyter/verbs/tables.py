"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


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

    >>> [shown(value) for value in (0.123456, 3, None, True, "a")]
    ['0.1235', '3', '-', 'true', 'a']
    """
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> [counted(1, "slot"), counted(1200, "slot")]
    ['1 slot', '1,200 slots']
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def length_text(length: Mapping[str, float]) -> str:
    """Return an amount of training in words.

    >>> [length_text({"epochs": 1}), length_text({"batches": 2000}), length_text({"loss": 2})]
    ['1 epoch', '2,000 batches', '2 loss']
    """
    ((unit, amount),) = length.items()
    singular = {"batches": "batch", "records": "record", "epochs": "epoch"}.get(unit, unit)
    number = f"{amount:,.0f}" if amount == int(amount) else f"{amount:,.4g}"
    return f"{number} {singular if amount == 1 else unit}"
