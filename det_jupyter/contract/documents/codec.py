"""Encodes and decodes frames: JSON, with long lists of numbers as columns (messages/pages.py).

A document, or a patch, is encoded once and sent to several pages, each with its own id:

    pack(data)  ->  Packed        the costly part, the same for all pages
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

from det_jupyter.contract.documents.patches import plain

COLUMN = "$f64"
MIN_LENGTH = 8  # least length of lists that become columns
_NUMBERS = {int, float, type(None)}
_MOST_WHOLE = 2.0**53  # larger integers are not exact in a float64


@dataclass(frozen=True, slots=True)
class Packed:
    """Data as JSON text, in which references to `columns` replace long lists of numbers."""

    text: str
    columns: bytes = b""

    @property
    def num_bytes(self) -> int:
        """The approximate size of a frame of the data, in bytes."""
        return len(self.text) + len(self.columns)

    def frame(self, **fields: Any) -> str | bytes:
        """Return a frame of these fields and the data: text, or bytes if there are columns."""
        head = _json(fields)
        text = f'{head[:-1]}{"," if fields else ""}"data":{self.text}}}'
        if not self.columns:
            return text
        header = text.encode()
        header += b" " * (-(4 + len(header)) % 8)
        return struct.pack("<I", len(header)) + header + self.columns


def pack(data: Any) -> Packed:
    """Return encoded data.

    Numbers that are not finite become null. Data with a key "$f64" of its own is encoded without
    columns, as a page would decode that key as one.
    """
    columns = array("d")
    try:
        text = _json(_encoded(data, columns))
    except _HasColumnKey:
        return Packed(_json(plain(data)))
    if sys.byteorder == "big":
        columns.byteswap()
    return Packed(text, columns.tobytes())


def to_text(**fields: Any) -> str:
    """Return a frame without data as JSON text."""
    return _json(fields)


def unpack(frame: str | bytes) -> Any:
    """Return the fields of a frame, with columns as lists."""
    if isinstance(frame, str):
        return json.loads(frame)
    (length,) = struct.unpack_from("<I", frame)
    columns = array("d", frame[4 + length :])
    if sys.byteorder == "big":
        columns.byteswap()
    return _filled(json.loads(frame[4 : 4 + length]), columns)


def _filled(value: Any, columns: array[float]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {COLUMN}:
            first, length, is_whole = value[COLUMN]
            numbers = columns[first : first + length]
            kind = int if is_whole else float
            return [None if math.isnan(number) else kind(number) for number in numbers]
        return {name: _filled(part, columns) for name, part in value.items()}
    return [_filled(part, columns) for part in value] if isinstance(value, list) else value


class _HasColumnKey(Exception):
    """The data has a key "$f64" of its own."""


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate, which JSON may contain, cannot be encoded.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _encoded(value: Any, columns: array[float]) -> Any:
    """Return data as `plain` does, but append long lists of numbers to `columns`."""
    kind = type(value)
    if kind is dict:
        if COLUMN in value:
            raise _HasColumnKey
        return {name: _encoded(part, columns) for name, part in value.items()}
    if kind is list or kind is tuple:
        if len(value) >= MIN_LENGTH and _is_column(value):
            first = len(columns)
            columns.extend([math.nan if number is None else number for number in value])
            return {COLUMN: [first, len(value), float not in {*map(type, value)}]}
        return [_encoded(part, columns) for part in value]
    if isinstance(value, BaseModel):
        return _encoded(vars(value), columns)
    return plain(value)


def _is_column(values: Any) -> bool:
    if not {*map(type, values)} <= _NUMBERS:
        return False
    return all(
        number is None
        or (abs(number) <= _MOST_WHOLE if type(number) is int else not math.isinf(number))
        for number in values
    )
