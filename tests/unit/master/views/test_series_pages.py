"""What a page of series has: which names, in which order, between which ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from det_jupyter.contract.messages import Series, SeriesQuery
from det_jupyter.contract.run.journal import PartTimes
from det_jupyter.contract.values.measures import measure_of
from det_jupyter.master.views.series_pages import (
    columns_of,
    fitting,
    superseded,
    to_series,
)
from det_jupyter.master.views.series_tables import Table, joined, of_samples, of_times, rolled_up


def interval(at: float, first: int, *, total: float = 1.0) -> dict[str, Any]:
    part = PartTimes(num=10, total=total, p50=0.1, p95=0.2, max=0.3)
    return {
        "at": at, "first": first, "batches": 10, "samples": 80, "seconds": 2.0,
        "parts": {"forward": part, "section.mine": part, "backward": part},
        "counters": {"tokens": 50.0},
    }  # fmt: skip


def query(of: Any = "timings", **others: Any) -> SeriesQuery:
    return SeriesQuery.model_validate({"of": of, **others})


TABLE = of_times([interval(11.25, 1), interval(13.25, 11, total=3.0)])


def test_all_names_are_there_ours_first_and_percentiles_only_if_they_are_named() -> None:
    found = to_series([("rank:0", TABLE)], query(columns=1))
    ours = [one.name for one in found]
    assert set(ours) == {
        "forward", "backward", "section.mine", "counter.tokens", "batch", "samples_per_second",
    }  # fmt: skip
    assert ours.index("forward") < ours.index("section.mine")
    assert ours.index("backward") < ours.index("counter.tokens")
    asked = ["forward.p95", "forward.max", "forward.p50", "nothing", "section.mine"]
    titles = {one.name: one.title for one in to_series([("r", TABLE)], query(names=asked))}
    forward = measure_of("forward").title
    assert titles == {
        "section.mine": "mine",
        "forward.p50": f"{forward}, median",
        "forward.p95": f"{forward}, 95th percentile",
        "forward.max": f"{forward}, longest",
    }


@pytest.mark.parametrize(
    ("name", "mid"),
    [
        ("forward", 0.2),  # 4 s in 20 batches
        ("forward.p50", 0.1),
        ("forward.max", 0.3),
        ("batch", 0.2),  # 4 s in 20 batches
        ("samples_per_second", 40.0),
        ("counter.tokens", 5.0),
    ],
)
def test_a_value_is_of_all_intervals_of_its_column(name: str, mid: float) -> None:
    (series,) = to_series([("rank:0", TABLE)], query(columns=1, names=[name]))
    assert series.mid == [mid]


@pytest.mark.parametrize(
    ("axis", "ends", "x", "mid"),
    [  # an interval of 2 s begins 2 s before it is reported
        ("time", {}, [9.25, 11.25], [0.1, 0.3]),
        ("time", {"since": 10.0}, [11.25], [0.3]),
        ("time", {"until": 10.0}, [9.25], [0.1]),
        ("time", {"since": 9.25, "until": 11.25}, [9.25, 11.25], [0.1, 0.3]),
        ("batches", {}, [1, 11], [0.1, 0.3]),
        ("batches", {"since": 2}, [11], [0.3]),
        ("batches", {"since": 12}, None, None),
    ],
)
def test_a_stretch_of_an_axis(axis: str, ends: dict[str, float], x: Any, mid: Any) -> None:
    asked = query(names=["forward"], axis=axis, columns=2, **dict[str, Any](ends))
    found = to_series([("rank:0", TABLE), ("rank:1", of_times([]))], asked)
    assert [(one.x, one.mid) for one in found] == ([] if x is None else [(x, mid)])


def test_moments_are_in_milliseconds() -> None:
    table = of_samples([(1.23456, {"cpu": 1.0})])
    (series,) = to_series([("host", table)], query("system", names=["cpu"]))
    assert series.x == [1.234]


def test_columns_are_equal_stretches() -> None:
    xs = [np.array([2.0, 4.0]), np.array([10.0]), np.array([])]
    columns = columns_of(xs, query(), 4)
    assert (columns.begin, columns.width, columns.num) == (2.0, 2.0, 4)
    assert columns.indices(np.array([2.0, 3.9, 4.0, 9.9, 10.0])).tolist() == [0, 0, 1, 3, 3]
    asked = columns_of(xs, query(since=0.0, until=8.0), 4)
    assert (asked.begin, asked.width) == (0.0, 2.0)
    assert columns_of([], query(), 4).width == 1.0
    (single,) = [columns_of([np.array([7.0])], query(), 4)]
    assert (single.begin, single.width) == (7.0, 1.0)


@pytest.mark.parametrize(
    ("max_points", "nums"),
    [
        (300, [100, 100, 100]),
        (299, [99, 99, 99]),
        (150, [50, 50, 50]),
        (60, [20, 20, 20]),
        (59, [20, 20]),  # rather than fewer points of each
        (19, []),
    ],
)
def test_series_share_the_room_of_a_page(max_points: int, nums: list[int]) -> None:
    table = of_samples([(float(at), {"a": 1.0, "b": 2.0, "c": 3.0}) for at in range(100)])
    asked = query("system", max_points=max_points)
    found = fitting(to_series([("host", table)], asked), asked)
    assert [len(one.x) for one in found] == nums


def test_a_series_without_points_takes_the_room_of_one() -> None:
    missing = [Series(source="host", name=name, title="", missing="no driver") for name in "abc"]
    assert fitting(missing, query("system", max_points=2)) == missing[:2]


@pytest.mark.parametrize(
    ("cuts", "kept"), [([], [1, 11]), ([10], [1]), ([0], []), ([30, 11], [1, 11]), ([30, 1], [1])]
)
def test_rows_that_were_trained_again_are_left_out(cuts: list[int], kept: list[int]) -> None:
    assert superseded(TABLE, cuts).get("", "first").tolist() == kept


def test_what_follows_the_last_batch_is_no_point_but_a_validation_is() -> None:
    def drawn(parts: dict[str, PartTimes]) -> list[float]:
        after = interval(15.25, 21) | {"batches": 0, "seconds": 0.1, "parts": parts}
        table = of_times([interval(11.25, 1), interval(13.25, 11), after])
        [found] = to_series([("rank:0", table)], query(names=["forward"]))
        return found.mid

    part = PartTimes(num=1, total=0.1, p50=0.1, p95=0.1, max=0.1)
    assert drawn({"rest": part}) == [0.1, 0.1]
    assert drawn({"validation": part}) == [0.1, 0.1, 0.0]


def test_sections_of_a_trial_whose_batches_are_not_timed_are_drawn() -> None:
    table = of_times([interval(11.25, 1) | {"batches": 0}])
    [found] = to_series([("rank:0", table)], query(names=["section.mine"]))
    assert found.mid == [1.0]


def test_what_a_table_lacks_is_no_number_or_nothing() -> None:
    one, other = of_samples([(1.0, {"a": 2.0})]), of_samples([(2.0, {"b": 4.0})])
    both = joined([one, other])
    assert both.get("a", "num").tolist() == [1.0, 0.0]
    assert np.isnan(both.get("a", "low")).tolist() == [False, True]
    assert np.isnan(both.get("b", "high")).tolist() == [True, False]
    assert rolled_up(both, 10.0).get("a", "high").tolist() == [2.0]
    assert sorted(both.names) == ["a", "b"]
    assert TABLE.names == ["forward", "section.mine", "backward", "counter.tokens"]
    assert isinstance(joined([]), Table)
