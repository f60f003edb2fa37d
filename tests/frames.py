"""Reads frames of the feeder, as pages do."""

from __future__ import annotations

import json
import math
import struct
import sys
from array import array
from typing import Any

from det_jupyter.front.pages.codec import COLUMN


def unpack(frame: str | bytes) -> Any:
    """Return what a frame says, columns as lists."""
    if isinstance(frame, str):
        return json.loads(frame)
    (length,) = struct.unpack_from("<I", frame)
    columns = array("d", frame[4 + length :])
    if sys.byteorder == "big":
        columns.byteswap()
    return _unpacked(json.loads(frame[4 : 4 + length]), columns)


def _unpacked(value: Any, columns: array[float]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {COLUMN}:
            first, length = value[COLUMN]
            numbers = columns[first : first + length]
            return [None if math.isnan(number) else number for number in numbers]
        return {name: _unpacked(part, columns) for name, part in value.items()}
    return [_unpacked(part, columns) for part in value] if isinstance(value, list) else value
