"""Axes of pictures: their ends, their ticks, and where values are on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.values.direction import Direction
from det_jupyter.view.making.axes import (
    category_axis,
    metric_axis,
    number_axis,
    padded,
    place_on,
    tick_text,
)

CASES = json.loads(
    (Path(__file__).parents[4] / "labextension/test/place-cases.json").read_text("utf-8")
)
MAXIMIZE, MINIMIZE = Direction.MAXIMIZE, Direction.MINIMIZE


@pytest.mark.parametrize(("axis", "value", "place"), CASES["places"])
def test_values_are_where_the_front_end_places_them(axis: Any, value: float, place: float) -> None:
    assert place_on(axis, value) == pytest.approx(place)


@pytest.mark.parametrize(
    ("low", "high", "is_whole", "expected"),
    [
        (0, 1, False, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (-0.3, 0.3, False, ["-0.2", "0", "0.2"]),
        (0.001, 0.0035, False, ["0.001", "0.0015", "0.002", "0.0025", "0.003", "0.0035"]),
        (16, 256, False, ["50", "100", "150", "200", "250"]),
        (1, 3, False, ["1", "1.5", "2", "2.5", "3"]),
        (1, 3, True, ["1", "2", "3"]),
        (0, 1, True, ["0", "1"]),
        (5, 5, True, ["5"]),
    ],
)
def test_ticks_are_few_round_numbers(
    low: float, high: float, is_whole: bool, expected: list[str]
) -> None:
    axis = number_axis("n", low, high, is_whole=is_whole)
    assert axis["tick_labels"] == expected
    assert axis["ticks"] == [float(text) for text in expected]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1e-4, 1e-1, ["1e-4", "0.001", "0.01", "0.1"]),
        (1e-3, 1e5, ["0.001", "0.1", "10", "1000", "100000"]),  # nine powers: every second
        (1.0, 1e7, ["1", "10", "100", "1000", "10000", "100000", "1e6", "1e7"]),
        (0.123456, 0.9, ["0.123", "0.9"]),
        (2.0, 20.0, ["2", "20"]),
        (1.0, 10.0, ["1", "10"]),
        (3.0, 300.0, ["10", "100"]),
        (0.5, 0.5, ["0.5"]),
        (0.0, 1.0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),  # linear: 0 has no logarithm
    ],
)
def test_ticks_of_logarithms_are_powers_of_ten(
    low: float, high: float, expected: list[str]
) -> None:
    assert number_axis("n", low, high, is_log=True)["tick_labels"] == expected


def test_integers_on_an_axis_of_logarithms_are_whole() -> None:
    assert number_axis("n", 16, 1024, is_log=True, is_whole=True)["tick_labels"] == ["100", "1000"]
    assert number_axis("n", 4096, 8192, is_log=True, is_whole=True)["tick_labels"] == [
        "4096", "8192",
    ]  # fmt: skip


def test_labels_of_categories_are_in_the_middle_of_equal_parts() -> None:
    axis = category_axis("kind", ["sgd", "adam"])
    assert axis["tick_labels"] == ["sgd", "adam"]
    assert [place_on(axis, tick) for tick in axis["ticks"]] == [0.25, 0.75]
    many = category_axis("kind", list("abcdefghijklmnopqrstuvwxyz"))
    assert many["tick_labels"] == list("adgjmpsvy")
    assert many["ticks"][1] == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (-2.5, "-2.5"),
        (123456.0, "123456"),
        (1e6, "1e6"),
        (0.001, "0.001"),
        (2.5e-5, "2.5e-5"),
    ],
)
def test_numbers_beside_ticks(value: float, text: str) -> None:
    assert tick_text(value) == text


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0, 10), (-0.5, 10.5)),
        ((0.123, 0.4567), (0.1, 0.48)),
        ((5, 5), (4.5, 5.5)),
        ((0, 0), (-1, 1)),
        ((-2, -2), (-2.2, -1.8)),
        ((-1.7e308, 1.7e308), (-8e307, 8e307)),
    ],
)
def test_a_range_has_a_margin_to_round_numbers(
    ends: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert padded(*ends) == pytest.approx(expected)


def test_large_values_that_hardly_differ_are_apart() -> None:
    axis = metric_axis("loss", [1e9, 1e9 + 0.001], MINIMIZE)
    assert place_on(axis, 1e9) - place_on(axis, 1e9 + 0.001) > 0.8
    assert len(set(axis["ticks"])) == len(axis["ticks"]) > 1


@pytest.mark.parametrize(
    ("values", "direction", "expected"),
    [
        ([1.0, None, 2.0, 3.0], MAXIMIZE, (0.9, 3.1)),
        ([1.0, None, 2.0, 3.0], MINIMIZE, (3.1, 0.9)),
        ([0.0, 1, 2, 3, 4, 100], MINIMIZE, (4.2, -0.2)),
        ([0.0, 1, 2, 3, 4, 5, 11, 100], MINIMIZE, (12, -1)),  # 11 < 5 + 4 * (5 - 2)
        ([0.0, 1, 2, 3, 4, 100], MAXIMIZE, (-5.0, 105.0)),  # it is the best
        ([-100.0, 0, 1, 2, 3, 4], MAXIMIZE, (-0.2, 4.2)),
        ([1.0, 1, 1, 1, 1, 9], MINIMIZE, (9.4, 0.6)),  # most are equal
    ],
)
def test_the_axis_of_a_metric_ends_with_the_best_and_leaves_out_what_is_far_worse_than_most(
    values: list[float | None], direction: Direction, expected: tuple[float, float]
) -> None:
    axis = metric_axis("loss", values, direction)
    assert (axis["start"], axis["end"]) == pytest.approx(expected)


def test_the_axis_of_a_metric_without_values_has_no_numbers() -> None:
    axis = metric_axis("loss", [None], MINIMIZE)
    assert (axis["ticks"], axis["tick_labels"]) == ([], [])
    assert axis["start"] < axis["end"]


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(low=finite, high=finite, value=finite, is_log=st.booleans(), is_whole=st.booleans())
def test_any_numbers_are_on_their_axis(
    low: float, high: float, value: float, is_log: bool, is_whole: bool
) -> None:
    axis = number_axis("n", min(low, high), max(low, high), is_log=is_log, is_whole=is_whole)
    assert 0 <= place_on(axis, value) <= 1
    assert len(axis["ticks"]) == len(axis["tick_labels"]) <= 12


@given(values=st.lists(finite, min_size=1, max_size=20), direction=st.sampled_from(Direction))
def test_labels_of_different_ticks_differ(values: list[float], direction: Direction) -> None:
    values = [float(f"{value:.6g}") for value in values]  # as in the state
    labels = metric_axis("loss", values, direction)["tick_labels"]
    assert len(set(labels)) == len(labels)


def test_labels_of_near_ticks_differ() -> None:
    labels = metric_axis("loss", [0.999998, 0.999999], MINIMIZE)["tick_labels"]
    assert len(set(labels)) == len(labels) > 1


@given(values=st.lists(finite, max_size=20), direction=st.sampled_from(Direction))
def test_any_metrics_are_on_their_axis(values: list[float], direction: Direction) -> None:
    axis = metric_axis("loss", values, direction)
    assert all(0 <= place_on(axis, value) <= 1 for value in values)
    if values and abs(best := direction.best(values) or 0.0) < 8e307:
        assert 0 < place_on(axis, best) <= 1
