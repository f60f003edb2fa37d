"""Frames as bytes: JSON, and float64 columns for what is long (messages/pages.py).

The data of news is packed once and sent to several pages, each with an id of its own:

    pack(data)  ->  Packed        the costly part, the same for all
    Packed.frame(op, id, ...)     text, or bytes where there are columns
"""

from __future__ import annotations

import json
import math
import struct
import sys
from array import array
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

COLUMN = "$f64"
MIN_LENGTH = 8  # of a list that becomes a column; for shorter ones JSON is as good
_NUMBERS = {int, float, type(None)}
_MOST_WHOLE = 2.0**53  # larger ones are not exact in a float64


@dataclass(frozen=True, slots=True)
class Packed:
    """Data as JSON, in which columns stand for its long lists of numbers."""

    text: str
    columns: bytes = b""

    def frame(self, **fields: Any) -> str | bytes:
        """Return the frame that has these fields, and the data."""
        head = _json(fields)
        text = f'{head[:-1]}{"," if fields else ""}"data":{self.text}}}'
        if not self.columns:
            return text
        header = text.encode()
        header += b" " * (-(4 + len(header)) % 8)
        return struct.pack("<I", len(header)) + header + self.columns


def pack(data: Any) -> Packed:
    """Return data in the form that frames have it.

    Numbers that are not finite become null. Data in which somebody's own key is named as a
    column's stays JSON, as it would be taken for one.
    """
    columns = array("d")
    try:
        text = _json(_packed(data, columns))
    except _TakenName:
        return Packed(_json(_packed(data, None)))
    if sys.byteorder == "big":
        columns.byteswap()
    return Packed(text, columns.tobytes())


def to_text(**fields: Any) -> str:
    """Return a frame without data."""
    return _json(fields)


class _TakenName(Exception):
    pass


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Half a character, which JSON may hold, cannot be sent.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _packed(value: Any, columns: array[float] | None) -> Any:
    """Return data as JSON takes it, long lists of numbers as columns if there are any."""
    kind = type(value)
    if kind is dict:
        if COLUMN in value and columns is not None:
            raise _TakenName
        return {name: _packed(part, columns) for name, part in value.items()}
    if kind is list or kind is tuple:
        if columns is not None and len(value) >= MIN_LENGTH and _is_column(value):
            first = len(columns)
            columns.extend([math.nan if number is None else number for number in value])
            return {COLUMN: [first, len(value)]}
        return [_packed(part, columns) for part in value]
    if isinstance(value, BaseModel):
        return _packed(vars(value), columns)
    return value if kind is not float or math.isfinite(value) else None


def _is_column(values: Any) -> bool:
    if not {*map(type, values)} <= _NUMBERS:
        return False
    return all(
        number is None
        or (abs(number) <= _MOST_WHOLE if type(number) is int else not math.isinf(number))
        for number in values
    )
