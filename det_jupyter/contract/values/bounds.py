"""Types with the bounds of values in records, reports and requests.

Writers and readers enforce the same bounds (the Core API refuses other values, in the user's
terms). A value within them can be stored, sent and computed with.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictInt

from det_jupyter.contract.values.text import printable

MAX_COUNT = 2**53  # up to here a float, such as a number of JavaScript, has all whole numbers
MAX_AT = 253402300799.0  # the end of the year 9999, the last that `datetime` has
MAX_RANK = 2**20
MAX_INTEGER = 2**63 - 1  # largest integer in a metric
MAX_DEPTH = 32  # levels of nested lists and dicts in a metric


def find_value_problem(value: Any, depth: int = 0) -> str | None:
    """Return why a JSON value cannot be a metric, or a part of one; None if it can.

    >>> find_value_problem({"a": [1, 2.5, "NaN", None]})
    >>> find_value_problem([10**400])
    'an integer of 1329 bits, expected one of at most 64; float(...) makes it one that is rounded'
    """
    if isinstance(value, int):
        if -MAX_INTEGER <= value <= MAX_INTEGER:
            return None
        return (
            f"an integer of {value.bit_length()} bits, expected one of at most 64; "
            "float(...) makes it one that is rounded"
        )
    if isinstance(value, (dict, list, tuple)):
        if depth == MAX_DEPTH:
            return f"lists and dicts in one another, expected at most {MAX_DEPTH} levels"
        items = value.values() if isinstance(value, dict) else value
        if set(map(type, items)) == {float}:  # the usual case, without a call for each item
            return None
        found = (find_value_problem(item, depth + 1) for item in items)
        return next((problem for problem in found if problem), None)
    return None


def check_values(values: Any) -> Any:
    """Return `values` unchanged; a pydantic validator for metrics.

    Raises:
        ValueError: A value cannot be a metric.
    """
    if problem := find_value_problem(values):
        raise ValueError(f"got {problem}")
    return values


Timestamp = Annotated[float, Field(ge=0, le=MAX_AT)]  # UTC seconds
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Whole = Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]
StrictWhole = Annotated[StrictInt, Field(ge=-MAX_COUNT, le=MAX_COUNT)]
StrictCount = Annotated[StrictInt, Field(ge=0, le=MAX_COUNT)]
Rank = Annotated[int, Field(ge=0, le=MAX_RANK)]
ProcessId = Annotated[int, Field(ge=0, le=2**31 - 1)]
ExitCode = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PrintableText = Annotated[str, AfterValidator(printable)]
Amount = Annotated[float, Field(ge=0, le=MAX_COUNT)]  # amount of training, in some unit
# Metrics by name: numbers, or other JSON values; NaN is the string "NaN".
Metrics = Annotated[dict[str, Any], AfterValidator(check_values)]
