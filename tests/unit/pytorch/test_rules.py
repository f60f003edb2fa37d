"""Lengths and periods that a script gives."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import Length
from det_jupyter.pytorch.rules import Batch, Counts, Epoch


@pytest.mark.parametrize(
    ("unit", "length", "period"),
    [
        (Batch(100), Length("batches", 100), Length("batches", 100)),
        (Epoch(3), Length("epochs", 3), Length("epochs", 3)),
        (Batch(0), Length("batches", 0), Length("batches", 1)),  # as Determined takes it
        (Epoch(-2), Length("epochs", -2), Length("epochs", 1)),
    ],
)
def test_lengths_and_periods_of_a_script(
    unit: Batch | Epoch, length: Length, period: Length
) -> None:
    assert (unit.to_length(), unit.to_period()) == (length, period)


def test_counts_are_a_period_and_no_length() -> None:
    assert Batch([5, 30]).to_period() == Counts("batches", [5, 30])
    with pytest.raises(TypeError, match=r"got Epoch\(value=\[5\]\), expected one number: Epoch"):
        Epoch([5]).to_length()


@pytest.mark.parametrize("value", [True, 1.5, None])
def test_what_is_no_amount_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="expected a whole number, or a container of them"):
        Batch(value)
