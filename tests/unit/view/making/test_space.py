"""Hyperparameters as axes: which there are, their ends, and where each trial is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.view.making.space import place_trials, value_text
from det_jupyter.view.model.search_state import Axis
from tests.unit.view.view_samples import SPACE, sample


def axis(spec: Any, *values: Any) -> tuple[Axis, list[float | None]]:
    """Return the one axis of a hyperparameter, and the places of the values."""
    [found], rows = place_trials({"x": spec}, [{"x": value} for value in values])
    return found, [row[0] for row in rows]


def test_constants_are_left_out_and_nested_ones_named_by_their_path() -> None:
    axes, rows = place_trials(SPACE, [sample(1), sample(2)])
    assert [each["name"] for each in axes] == [
        "lr", "hidden", "optimizer.name", "optimizer.momentum"
    ]  # fmt: skip
    assert [len(row) for row in rows] == [4, 4]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"type": "int", "minval": 2, "maxval": 8}, ("linear", True, 2, 8, [])),
        ({"type": "double", "minval": 0, "maxval": 1}, ("linear", False, 0, 1, [])),
        ({"type": "log", "base": 10, "minval": -2, "maxval": 2}, ("log", False, 0.01, 100, [])),
        ({"type": "log", "base": 2, "minval": 3, "maxval": 5}, ("log", True, 8, 32, [])),
        ({"type": "categorical", "vals": ["a", 1, None, True]},
         ("category", True, -0.5, 3.5, ["a", "1", "null", "true"])),
    ],
)  # fmt: skip
def test_axis_follows_the_type(spec: Any, expected: tuple[Any, ...]) -> None:
    [found], _ = place_trials({"x": spec}, [])
    assert (
        found["scale"], found["is_whole"], found["start"], found["end"], found["labels"]
    ) == expected  # fmt: skip


def test_category_places_are_those_of_its_labels() -> None:
    found, places = axis({"type": "categorical", "vals": ["sgd", "adam"]}, "adam", "sgd", "lion")
    assert found["labels"] == ["sgd", "adam", "lion"]  # of before the search was changed
    assert places == [1, 0, 2]


def test_values_beyond_the_ends_widen_the_axis() -> None:
    found, places = axis({"type": "double", "minval": 0, "maxval": 1}, 0.5, 3.0)
    assert (found["start"], found["end"]) == (0, 3)
    assert places == [0.5, 3.0]


def test_constant_that_differs_all_the_same_is_an_axis() -> None:
    found, places = axis(64, 64, 128)
    assert (found["scale"], found["is_whole"], found["start"], found["end"]) == (
        "linear", True, 64, 128
    )  # fmt: skip
    assert places == [64, 128]
    assert axis("a", "a", "b")[0]["labels"] == ["a", "b"]


def test_trial_without_the_hyperparameter_has_no_place() -> None:
    space = {"x": {"type": "int", "minval": 0, "maxval": 4}}
    _, rows = place_trials(space, [{"x": 2}, {}, {"x": {"y": 1}}])
    assert [row[0] for row in rows] == [0, None, 1]


def test_without_a_configuration_axes_are_taken_from_the_trials() -> None:
    [found], _ = place_trials({}, [{"a": 1, "b": 5}, {"a": 1, "b": 6}])
    assert found["name"] == "b"
    assert place_trials({}, []) == ([], [])


def test_without_axes_each_trial_has_no_places() -> None:
    assert place_trials({"a": 1}, [{"a": 1}, {"a": 1}]) == ([], [[], []])


def test_huge_exponents_have_no_end() -> None:
    [found], _ = place_trials(
        {"x": {"type": "log", "base": 10, "minval": -4, "maxval": 999}}, [{"x": 1.0}]
    )
    assert (found["start"], found["end"]) == (1.0, 1.0)


def test_whole_number_beyond_floats_is_a_label() -> None:
    found, places = axis(1, 1, 10**400)
    assert (found["scale"], places) == ("category", [0, 1])


def test_large_integers_are_exact() -> None:
    found, places = axis({"type": "int", "minval": 0, "maxval": 2**31}, 1893475621)
    assert value_text(found, places[0]) == "1893475621"


def test_long_values_that_differ_at_their_end_are_two_categories() -> None:
    names = [f"mistralai/Mistral-7B-Instruct-v0.{i}" for i in (1, 2)]
    found, places = axis({"type": "categorical", "vals": names}, *names)
    assert places == [0, 1]
    assert found["labels"] == ["mistralai/M…nstruct-v0.1", "mistralai/M…nstruct-v0.2"]


def test_values_are_written_as_their_axis_has_them() -> None:
    category, _ = axis({"type": "categorical", "vals": ["a", "b"]}, "a")
    whole, _ = axis({"type": "int", "minval": 0, "maxval": 9}, 1)
    number, _ = axis({"type": "double", "minval": 0, "maxval": 9}, 1.5)
    assert [value_text(category, 1), value_text(whole, 3.0), value_text(number, 0.123456)] == [
        "b", "3", "0.1235"
    ]  # fmt: skip
    assert value_text(whole, None) == "-"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(values=st.lists(json_values, min_size=1, max_size=6))
def test_any_values_have_a_place_within_their_axis(values: list[Any]) -> None:
    space = {"x": {"type": "categorical", "vals": values[:1]}}
    [found], rows = place_trials(space, [{"x": value} for value in values])
    for [place] in rows:
        assert place is not None
        assert found["start"] <= place <= found["end"]
        assert value_text(found, place) == found["labels"][int(place)]
