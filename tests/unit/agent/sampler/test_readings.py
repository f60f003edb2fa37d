"""Rates of counters that wrap, go back or are read twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.agent.sampler.readings import Rates


def rate(rates: Rates, count: int, now: float) -> float | None:
    return rates.of({"count": count}, now).get("count")


def test_a_rate_is_growth_over_time_and_begins_with_the_second_reading() -> None:
    rates = Rates()
    assert rate(rates, 1000, 50.0) is None
    assert rate(rates, 1000, 51.0) == 0
    assert rate(rates, 1500, 53.0) == 250


def test_a_counter_that_wraps_has_no_rate_once_and_then_goes_on() -> None:
    rates = Rates()
    found = [rate(rates, count, now) for now, count in enumerate([2**32 - 10, 5, 15, 25])]
    assert found == [None, None, 10, 10]


def test_readings_close_together_count_as_one() -> None:
    rates = Rates()
    rate(rates, 0, 10.0)
    assert rate(rates, 500, 10.001) is None
    assert rate(rates, 1000, 11.0) == 1000


@given(st.lists(st.tuples(st.integers(0, 2**64), st.floats(-1e6, 1e6)), max_size=30))
def test_no_rate_is_negative_or_above_what_was_counted(readings: list[tuple[int, float]]) -> None:
    rates = Rates()
    for count, now in readings:
        found = rate(rates, count, now)
        assert found is None or 0 <= found <= 100 * count
