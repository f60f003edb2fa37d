"""The bounds of values in records, reports and requests.

Writers and readers enforce the same ones (the Core API refuses what is beyond them, in the user's
terms): what is within them can be stored, sent and computed with.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictInt

from det_jupyter.contract.values.text import printable

MAX_COUNT = 2**53  # the last whole number that a float, JavaScript's numbers too, can count to
MAX_AT = 253402300799.0  # the end of the year 9999: what calendars can show
MAX_RANK = 2**20
MAX_INTEGER = 2**63 - 1  # of a metric
MAX_DEPTH = 32  # of lists and dicts in a metric


def find_value_problem(value: Any, depth: int = 0) -> str | None:
    """Return why a value of JSON cannot be a metric (or a part of one), or None.

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
        if set(map(type, items)) == {float}:  # as nearly always, and quick
            return None
        found = (find_value_problem(item, depth + 1) for item in items)
        return next((problem for problem in found if problem), None)
    return None


def check_values(values: Any) -> Any:
    """Return metrics whose values can all be one.

    Raises:
        ValueError: One of them cannot.
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
PrintableText = Annotated[str, AfterValidator(printable)]  # for people
Amount = Annotated[float, Field(ge=0, le=MAX_COUNT)]  # of training, in some unit
# Names to numbers (or other JSON values); NaN as the string "NaN".
Metrics = Annotated[dict[str, Any], AfterValidator(check_values)]
