"""Curves that grow by records: each step once, bounded, and with every extreme."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.messages import curves as module
from det_jupyter.contract.messages.curves import (
    BATCHES,
    Curve,
    Curves,
    landmarks,
    most_points,
    steps_per_epoch,
    steps_per_epoch_of,
)


def batches(first: int, **values: list[Any]) -> dict[str, Any]:
    return {"kind": "batch_metrics", "at": 1.0, "first": first, "values": values}


def metrics(step: int, epochs: float | None = None, **values: Any) -> dict[str, Any]:
    trained = None if epochs is None else {"epochs": epochs}
    return {
        "kind": "metrics", "at": 2.0, "group": "validation", "steps_completed": step,
        "metrics": values, "trained": trained,
    }  # fmt: skip


def points(curve: Curve) -> list[tuple[int, Any]]:
    return list(zip(curve.steps, curve.values, strict=True))


def test_batches_and_reports_are_curves_of_their_own() -> None:
    curves = Curves()
    curves.add(1, batches(1, loss=[3.0, "NaN"], lr=[0.1, 0.1]))
    curves.add(1, metrics(2, loss=1.0))
    curves.add(2, batches(1, loss=[9.0]))
    assert {key: points(curve) for key, curve in curves.items()} == {
        (1, BATCHES, "loss"): [(1, 3.0), (2, None)],
        (1, BATCHES, "lr"): [(1, 0.1), (2, 0.1)],
        (1, "validation", "loss"): [(2, 1.0)],
        (2, BATCHES, "loss"): [(1, 9.0)],
    }
    assert curves[1, BATCHES, "loss"].times == [1.0, 1.0]
    assert Curves.of(curves.values()) == curves


def test_what_is_reported_again_replaces_what_was_there() -> None:
    curves = Curves()
    curves.add(1, batches(1, loss=[1, 2, 3]))
    curves.add(1, batches(2, loss=[8, 9, 4]))
    assert points(curves[1, BATCHES, "loss"]) == [(1, 1), (2, 8), (3, 9), (4, 4)]
    curves.add(1, metrics(9, loss=1.0))
    curves.add(1, metrics(9, loss=0.5))
    curves.add(1, metrics(3, loss=2.0))  # thinned out, or never there
    assert points(curves[1, "validation", "loss"]) == [(9, 0.5)]


def test_a_trial_that_trains_again_from_a_step_has_nothing_after_it() -> None:
    curves = Curves()
    curves.add(1, batches(1, loss=[1, 2, 3]))
    curves.add(2, batches(1, loss=[1, 2, 3]))
    curves.truncate(1, 2)
    curves.add(1, batches(3, loss=[7]))
    assert points(curves[1, BATCHES, "loss"]) == [(1, 1), (2, 2), (3, 7)]
    assert len(curves[2, BATCHES, "loss"].steps) == 3
    curves.truncate(1, 0)
    assert points(curves[1, BATCHES, "loss"]) == []


def test_what_was_read_with_a_curve_is_not_added_again() -> None:
    read = Curves()
    read.add(1, batches(1, loss=[3.0, 2.0]))
    curves = Curves.of(read.values())
    curves.add(1, batches(2, loss=[2.0, 1.0]))
    assert points(curves[1, BATCHES, "loss"]) == [(1, 3.0), (2, 2.0), (3, 1.0)]


def test_each_point_has_the_time_of_its_last_report() -> None:
    curves = Curves()
    curves.add(1, batches(1, loss=[3.0, 2.0]) | {"at": 5.0})
    curves.add(1, batches(2, loss=[2.0, 1.0]) | {"at": 6.0})
    curves.add(1, metrics(3, error=0.5))
    assert curves[1, BATCHES, "loss"].times == [5.0, 6.0, 6.0]
    curves.truncate(1, 2)
    assert curves[1, BATCHES, "loss"].times == [5.0, 6.0]
    assert curves[1, "validation", "error"].times == []


def test_what_is_not_a_finite_number_has_no_value() -> None:
    curves = Curves()
    for step, value in enumerate(["NaN", "Infinity", "words", 0.5], 5):
        curves.add(1, metrics(step, error=value))
    assert curves[1, "validation", "error"].values == [None, None, None, 0.5]


def test_a_gap_that_is_longer_than_a_stretch_stays_a_gap() -> None:
    curves = Curves()
    curves.add(1, batches(1, loss=[0.5] * 100 + ["NaN"] * 100 + [0.5] * 100))
    thinned = curves[1, BATCHES, "loss"].thinned(12)
    assert len(thinned.steps) <= 26
    assert None in thinned.values


def test_a_long_trial_has_points_everywhere() -> None:
    curves, drawn = Curves(), random.Random(3)
    values = [drawn.gauss(0, 1) for _ in range(60_000)]
    for first in range(0, len(values), 500):
        curves.add(1, batches(1 + first, loss=values[first : first + 500]))
        assert len(curves[1, BATCHES, "loss"].steps) <= 8000
    steps = curves[1, BATCHES, "loss"].steps
    in_parts = Counter((step - 1) // 1000 for step in steps)
    assert set(in_parts) == set(range(60))
    assert min(in_parts.values()) > 20
    curves.truncate(1, 30_000)
    assert max(curves[1, BATCHES, "loss"].steps) <= 30_000


@pytest.mark.parametrize(
    ("num_curves", "most"),
    [(0, 8000), (1, 8000), (50, 8000), (100, 4000), (2000, 200), (9999, 200)],
)
def test_the_more_curves_the_fewer_points_of_each(num_curves: int, most: int) -> None:
    assert most_points(num_curves) == most


def test_the_steps_of_an_epoch_are_those_of_the_first_report_that_has_them() -> None:
    curves = Curves()
    curves.add(1, metrics(30, loss=1.0))
    curves.add(1, metrics(60, 0.0, loss=1.0))
    assert steps_per_epoch(curves.values()) == {}
    curves.add(1, metrics(90, 4.5, loss=1.0))
    curves.add(1, metrics(100, 50.0, loss=1.0))
    curves.add(2, batches(1, loss=[1.0]))
    assert steps_per_epoch(curves.values()) == {1: 20.0}
    assert steps_per_epoch_of(batches(1, loss=[1.0])) is None


@pytest.mark.parametrize(
    ("values", "limit", "places"),
    [
        ([0, None, 2, 3], 4, [0, 1, 2, 3]),
        ([0, 1, 2, 3, 4, 5, 6], 6, [0, 1, 2, 3, 5, 6]),
        ([6, 5, 4, 3, 2, 1, 0], 6, [0, 1, 2, 3, 5, 6]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 6, [0, 1, 3, 4, 7, 8]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 5, [0, 1, 8, 9]),
        ([0, 5, 9, 5, 1, 1, 9, 9, 5, 0], 5, [0, 2, 4, 9]),  # the first of equal ones
        ([0, 1, None, 3, 4, 5, None, 7, 8, 9], 8, [0, 1, 2, 4, 5, 6, 8, 9]),
        ([0, 5, None, 5, 1, None, None, None, None, 0], 8, [0, 1, 2, 3, 4, 5, 6, 9]),
    ],
)
def test_each_stretch_keeps_its_extremes_and_its_first_gap(
    values: list[float | None], limit: int, places: list[int]
) -> None:
    assert list(landmarks(values, limit)) == places
    assert list(landmarks(values, limit, range(100, 100 + len(values)))) == places


def test_stretches_are_equal_in_steps_if_these_are_given() -> None:
    steps = [1, *range(90, 101)]  # the first half of the steps has one point
    assert list(landmarks([0.0] * 6 + [1, 2, 3, 4, 5, 6], 6, steps)) == [0, 1, 10, 11]


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(numbers, min_size=1, max_size=600), st.integers(5, 300), st.booleans())
def test_landmarks_have_the_ends_and_the_extremes_of_the_curve(
    values: list[float | None], limit: int, by_steps: bool
) -> None:
    steps = [step * step for step in range(len(values))] if by_steps else None
    places = list(landmarks(values, limit, steps))
    assert len(places) <= limit
    assert places == sorted(set(places))
    assert (places[0], places[-1]) == (0, len(values) - 1)
    finite = [value for value in values if value is not None]
    kept = [value for i in places if (value := values[i]) is not None]
    assert (min(finite, default=None), max(finite, default=None)) == (
        min(kept, default=None),
        max(kept, default=None),
    )
    assert (None in values) is (len(kept) < len(places))


values = st.one_of(st.integers(-9, 9), st.just("NaN"))


@given(st.lists(st.lists(values, max_size=30), max_size=8), st.integers(10, 24))
def test_a_curve_stays_bounded_in_order_and_with_its_ends_and_extremes(
    flushes: list[list[Any]], limit: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "most_points", lambda num_curves: limit)
        curves, all_points = Curves(), dict[int, Any]()
        for flush in flushes:
            first = len(all_points) + 1
            curves.add(1, batches(first, loss=flush))
            all_points |= {
                first + i: None if value == "NaN" else value for i, value in enumerate(flush)
            }
    if not all_points:
        return
    curve = curves[1, BATCHES, "loss"]
    assert len(curve.steps) <= limit
    assert curve.steps == sorted(set(curve.steps))
    assert (curve.steps[0], curve.steps[-1]) == (1, len(all_points))
    assert all(all_points[step] == value for step, value in points(curve))
    finite = [value for value in all_points.values() if value is not None]
    if finite:
        kept = [value for value in curve.values if value is not None]
        assert (min(kept), max(kept)) == (min(finite), max(finite))
