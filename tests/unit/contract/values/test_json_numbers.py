"""Numbers that JSON lacks, as text and back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from det_jupyter.contract.values.json_numbers import json_ready, to_finite, to_number
from det_jupyter.contract.values.lengths import Length


def test_what_is_ready_for_json_is_written_without_an_error_and_read_as_the_same() -> None:
    value = {"a": [math.nan, math.inf, -math.inf, 1.5], "b": (Length("epochs", 2), "\ud800")}
    ready = json_ready(value)
    assert ready == {"a": ["NaN", "Infinity", "-Infinity", 1.5], "b": [{"epochs": 2}, "?"]}
    json.dumps(ready, allow_nan=False).encode()
    assert [to_number(each) for each in ready["a"][1:]] == [math.inf, -math.inf, 1.5]
    assert math.isnan(to_number(ready["a"][0]) or 0)


@pytest.mark.parametrize("value", [None, True, "text", [1], {}, 10**400])
def test_other_values_are_no_numbers(value: Any) -> None:
    assert to_number(value) is None
    assert to_finite(value) is None
