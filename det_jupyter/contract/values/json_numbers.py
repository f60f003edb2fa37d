"""Non-finite numbers in JSON: the strings "NaN", "Infinity" and "-Infinity"."""

from __future__ import annotations

from math import isfinite, isnan
from typing import Any

from det_jupyter.contract.values.lengths import Length


def json_ready(value: Any) -> Any:
    """Return a copy of `value` for JSON: non-finite floats as strings, text encodable in UTF-8."""
    if isinstance(value, float):
        if isnan(value):
            return "NaN"
        return value if isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # lone surrogates become "?"
    if isinstance(value, dict):
        return {json_ready(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return value.to_document() if isinstance(value, Length) else value


def to_number(value: Any) -> float | None:
    """Return a metric's value as a float, also of a string such as "NaN"; None if impossible."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def to_finite(value: Any) -> float | None:
    """Return a metric's value as a finite float; None if it is not one.

    >>> [to_finite(value) for value in (0.5, "0.5", "NaN", float("inf"), True, [1], None)]
    [0.5, 0.5, None, None, None, None, None]
    """
    number = to_number(value)
    return number if number is not None and isfinite(number) else None
