"""Lengths, and what they are in batches: a fast answer is that of a plain count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.values.bounds import MAX_COUNT
from det_jupyter.contract.values.lengths import Length, TrainingUnits, parse_length

units = st.builds(
    TrainingUnits,
    global_batch_size=st.integers(1, 9),
    batches_per_epoch=st.integers(1, 9),
    records_per_epoch=st.none() | st.integers(1, 40),
)


@given(units)
def test_epochs_are_one_after_the_other(of: TrainingUnits) -> None:
    ends = [of.epoch_end(epochs) for epochs in range(20)]
    assert ends[0] == 0
    for batch_idx in range(ends[8]):
        epoch = next(epoch for epoch in range(20) if batch_idx < ends[epoch + 1])
        assert of.epoch_of(batch_idx) == epoch
        assert of.is_epoch_start(batch_idx) == (batch_idx == ends[epoch])
        assert of.is_epoch_end(batch_idx) == (batch_idx + 1 == ends[epoch + 1])
        trained = of.trained(batch_idx)
        share = (batch_idx - ends[epoch]) / (ends[epoch + 1] - ends[epoch])
        assert trained == {
            "batches": batch_idx,
            "records": batch_idx * of.global_batch_size,
            "epochs": epoch + share,
        }


@given(units, st.sampled_from(["batches", "records", "epochs"]), st.integers(0, 30))
def test_periods_end_at_their_multiples(of: TrainingUnits, unit: str, amount: int) -> None:
    period = parse_length({unit: amount})
    batches = of.to_batches(period)
    if unit == "epochs":
        expected = {of.epoch_end(n * amount) for n in range(1, 61)} if amount else set()
    else:
        expected = set(range(batches, 61, batches)) if batches else set()
    found = {steps for steps in range(61) if of.is_boundary(period, steps)}
    assert found == {steps for steps in expected if steps <= 60}


@pytest.mark.parametrize(
    ("length", "batches"),
    [
        (Length("batches", 7), 7),
        (Length("records", 0), 0),
        (Length("records", 1), 1),
        (Length("records", 129), 2),
        (Length("epochs", 0), 0),
        (Length("epochs", 3), 67),
    ],
)
def test_a_length_in_batches(length: Length, batches: int) -> None:
    of = TrainingUnits(global_batch_size=64, records_per_epoch=1437, batches_per_epoch=23)
    assert of.to_batches(length) == batches


def test_lengths_of_one_unit_are_compared() -> None:
    assert Length("epochs", 3).comparable_amount(Length("epochs", 5)) == 5
    assert Length("epochs", 3).comparable_amount(Length("batches", 5)) == 0
    assert Length("epochs", 3).comparable_amount(None) == 0


@pytest.mark.parametrize("value", [5, 5.0, {"batches": 5}, {"batches": 5.0}, Length("batches", 5)])
def test_what_is_a_length(value: object) -> None:
    assert parse_length(value) == Length("batches", 5)


@pytest.mark.parametrize(
    "value",
    [True, -1, 0.5, "5", None, {}, {"steps": 5}, {"epochs": 1, "batches": 2}, {"epochs": True}],
)
def test_what_is_no_length(value: object) -> None:
    with pytest.raises(ValueError, match='exactly one of "batches", "records" or "epochs"'):
        parse_length(value)


def test_a_length_is_at_most_what_a_float_counts_to() -> None:
    assert parse_length({"epochs": MAX_COUNT}).amount == MAX_COUNT
    with pytest.raises(ValueError, match=f"expected at most {MAX_COUNT} epochs"):
        parse_length({"epochs": MAX_COUNT + 1})
