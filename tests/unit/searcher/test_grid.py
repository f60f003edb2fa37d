"""Grids: the values of an axis, and the order of the points."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import Length
from det_jupyter.searcher import Close, Create, ExitReason, TrainTo
from det_jupyter.searcher.grid import Grid, GridSearcher, axis_values
from tests.unit.searcher.searcher_world import World, make_config


def ranged(kind: str, low: float, high: float, count: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "minval": low, "maxval": high, "count": count} | more


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        (ranged("int", 0, 20, 3), [0, 10, 20]),
        (ranged("int", 0, 10, 3), [0, 5, 10]),
        (ranged("int", 0, 4, 5), [0, 1, 2, 3, 4]),
        (ranged("int", -4, -2, 3), [-4, -3, -2]),
        (ranged("int", 7, 11, 2), [7, 11]),
        (ranged("int", 0, 20, 7), [0, 3, 7, 10, 13, 17, 20]),
        (ranged("int", 0, 2, 9), [0, 1, 2]),
        (ranged("int", 0, 5, 1), [3]),
        (ranged("int", -5, 0, 1), [-3]),
        (ranged("int", 0, 5, 3), [0, 3, 5]),
        (ranged("int", -5, 0, 3), [-5, -3, 0]),
        (ranged("double", 0, 2, 5), [0.0, 0.5, 1.0, 1.5, 2.0]),
        (ranged("double", 0, 3, 1), [1.5]),
        (ranged("log", 1, 2, 2, base=10), [10.0, 100.0]),
        (ranged("log", -3, -2, 2, base=10), [0.001, 0.01]),
        (ranged("log", -3, -1, 1, base=10), [0.01]),
        ({"type": "categorical", "vals": ["b", "a"]}, ["b", "a"]),
        ({"type": "const", "val": [1, 2]}, [[1, 2]]),
        ([1, 2], [[1, 2]]),
        ({}, [{}]),
    ],
)  # fmt: skip
def test_an_axis_has_these_values(spec: Any, values: list[Any]) -> None:
    assert axis_values(spec) == values


def test_the_ends_of_a_range_are_exact() -> None:
    values = axis_values(ranged("double", 0.1, 0.7, 4))
    assert (values[0], values[-1]) == (0.1, 0.7)


ORDER = [(0, 0), (0, 5), (0, 10), (10, 0), (10, 5), (10, 10), (20, 0), (20, 5), (20, 10)]


def test_the_last_axis_varies_fastest() -> None:
    grid = Grid({"2": ranged("int", 0, 10, 3), "1": ranged("int", 0, 20, 3)})
    points = [grid.point(place) for place in range(len(grid))]
    assert points == [{"1": one, "2": two} for one, two in ORDER]


def test_nested_axes_are_in_the_same_order() -> None:
    grid = Grid({"2": {"inner": ranged("int", 0, 10, 3)}, "1": ranged("int", 0, 20, 3)})
    points = [grid.point(place) for place in range(len(grid))]
    assert points == [{"1": one, "2": {"inner": two}} for one, two in ORDER]


def test_a_grid_of_nothing_is_one_point() -> None:
    assert len(Grid({})) == 1
    assert Grid({}).point(0) == {}
    assert Grid({"a": {}, "b": {"c": {}}}).point(0) == {"a": {}, "b": {"c": {}}}


def test_trials_begin_at_the_last_point() -> None:
    space = {"a": {"type": "categorical", "vals": [1, 2, 3]}}
    length = {"batches": 7}
    world = World(make_config(space, name="grid", max_length=length, max_concurrent_trials=2))
    assert [create.hparams for create in world.created] == [{"a": 3}, {"a": 2}]
    assert world.reach(0, 0.5) == [Close(0)]
    third, target = world.exit(0)
    assert isinstance(third, Create)
    assert (third.index, third.hparams) == (2, {"a": 1})
    assert target == TrainTo(2, Length("batches", 7), is_last=True)


def test_a_point_with_invalid_hyperparameters_is_not_replaced() -> None:
    space = {"a": {"type": "categorical", "vals": [1, 2]}}
    world = World(make_config(space, name="grid", max_length={"batches": 7}))
    world.exit(0, ExitReason.INVALID_HP)
    world.exit(1, ExitReason.ERRORED)
    assert world.is_shut
    assert len(world.created) == 2


def test_seeds_of_a_grid_are_drawn_without_hyperparameters_in_between() -> None:
    world = World(make_config({}, name="grid", max_length={"batches": 7}))
    assert [create.seed for create in world.created] == [441365315]


def problems_of(**space: Any) -> list[str]:
    found = GridSearcher.find_contradictions({"name": "grid"}, space)
    return sorted(problem.path for problem in found)


def test_each_range_of_a_grid_needs_a_count_also_in_lists() -> None:
    counted = ranged("double", 0, 1, 3)
    uncounted = {"type": "int", "minval": 0, "maxval": 5}
    choice = {"type": "categorical", "vals": [1, 2]}
    assert problems_of(a=counted, b=choice, c=[counted, choice, 7], d="text") == []
    assert problems_of(a=uncounted, b={"c": uncounted}, d=[choice, uncounted]) == [
        "hyperparameters.a.count", "hyperparameters.b.c.count", "hyperparameters.d[1].count",
    ]  # fmt: skip


def test_a_grid_of_too_many_points_is_refused_with_their_number() -> None:
    large = {name: ranged("double", 0, 1, 1000) for name in "ab"}
    (problem,) = GridSearcher.find_contradictions({"name": "grid"}, large)
    assert "the grid has 1,000,000 points" in problem.text
    few = ranged("int", 0, 1, 1000)  # of which there are two
    assert problems_of(a=few, b=few, c=few) == []
