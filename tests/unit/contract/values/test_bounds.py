"""Which values can be metrics."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.values.bounds import MAX_DEPTH, MAX_INTEGER, find_value_problem


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"key": value}
    return value


@pytest.mark.parametrize(
    "value",
    [None, True, "NaN", 1.5, MAX_INTEGER, -MAX_INTEGER, [1.5, 2.5], {"a": [0.5, {"b": 3}]}, (),
     nested(MAX_DEPTH)],
)  # fmt: skip
def test_numbers_texts_and_what_is_nested_within_bounds_are_metrics(value: Any) -> None:
    assert find_value_problem(value) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (MAX_INTEGER + 1, "an integer of 64 bits"),
        (-MAX_INTEGER - 1, "an integer of 64 bits"),
        ({"a": [0.5, 2**70]}, "an integer of 71 bits"),
        (nested(MAX_DEPTH + 1), "lists and dicts in one another, expected at most 32 levels"),
    ],
)
def test_a_large_integer_and_what_is_nested_deeper_are_none(value: Any, problem: str) -> None:
    found = find_value_problem(value)
    assert found is not None
    assert found.startswith(problem)
