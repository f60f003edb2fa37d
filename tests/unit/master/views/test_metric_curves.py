"""Records of metrics as curves and as series of a picture, number by number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.messages import Curve, SeriesQuery
from det_jupyter.contract.messages.curves import landmarks
from det_jupyter.contract.run.journal import PartTimes
from det_jupyter.master.views.metric_curves import to_curves, to_tables
from det_jupyter.master.views.series_pages import to_series
from det_jupyter.master.views.series_tables import (
    Table,
    from_bytes,
    joined,
    merged,
    of_samples,
    of_times,
    per_unit,
    rolled_up,
    to_bytes,
)

NAN = math.nan
Row = tuple[int, dict[str, Any]]


def window(first: int, losses: list[Any], at: float = 5.0, trial_id: int = 1) -> Row:
    values = {"loss": losses}
    return trial_id, {"kind": "batch_metrics", "at": at, "first": first, "values": values}


def validation(steps: int, error: Any, at: float = 5.0, **others: Any) -> Row:
    return 1, {
        "kind": "metrics", "group": "validation", "at": at, "steps_completed": steps,
        "metrics": {"error": error}, **others,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("records", "steps", "values", "times"),
    [
        ([window(1, [3.0, 2.0])], [1, 2], [3.0, 2.0], [5.0, 5.0]),
        ([window(1, [3.0, 2.0], 5.0), window(3, [1.0], 6.0)],
         [1, 2, 3], [3.0, 2.0, 1.0], [5.0, 5.0, 6.0]),
        ([window(1, [3.0]), window(4, [1.0, 0.0])], [1, 4, 5], [3.0, 1.0, 0.0], [5.0] * 3),
        # Of the values of one step the one that was reported last, whichever record has it.
        ([window(1, [3.0, 2.0], 5.0), window(2, [9.0, 1.0], 6.0)],
         [1, 2, 3], [3.0, 9.0, 1.0], [5.0, 6.0, 6.0]),
        ([window(2, [3.0, 2.0], 5.0), window(1, [9.0, 9.0], 6.0)],
         [1, 2, 3], [9.0, 9.0, 2.0], [6.0, 6.0, 5.0]),
        ([window(2, [3.0], 5.0), window(2, [9.0], 6.0), window(3, [2.0], 7.0)],
         [2, 3], [9.0, 2.0], [6.0, 7.0]),
        ([validation(4, 0.5), validation(8, 0.25, 6.0), validation(8, 0.5, 7.0)],
         [4, 8], [0.5, 0.5], [5.0, 7.0]),
        ([window(0, [3.0], 5.0)], [0], [3.0], [5.0]),
        # What is no finite number has a point without a value.
        ([window(1, [1.0, NAN, math.inf, "NaN", 2])], [1, 2, 3, 4, 5],
         [1.0, None, None, None, 2.0], [5.0] * 5),
        ([validation(20, 0.5), validation(40, 0.25, 6.0)], [20, 40], [0.5, 0.25], [5.0, 6.0]),
    ],
)  # fmt: skip
def test_records_become_a_curve(
    records: list[Row], steps: list[int], values: list[Any], times: list[float]
) -> None:
    (curve,) = to_curves(records)
    assert (curve.steps, curve.values, curve.times) == (steps, values, times)
    assert curve.trial_id == 1


def test_each_metric_of_each_group_of_each_trial_is_a_curve() -> None:
    records = [window(1, [1.0], trial_id=2), validation(1, 0.5), window(1, [2.0]), window(2, [])]
    assert [curve.key for curve in to_curves(records)] == [
        (1, "batches", "loss"), (1, "validation", "error"), (2, "batches", "loss"),
    ]  # fmt: skip
    assert list(to_curves([window(1, [])])) == []


@pytest.mark.parametrize(
    ("trained", "per_epoch"),
    [
        ([None, None], None),
        ([{}, {"epochs": 0}], None),
        ([{"epochs": 2.0}, None], 10.0),
        ([None, {"epochs": 2.0}], 20.0),
        ([{"epochs": 2.0}, {"epochs": 1.0}], 10.0),  # the first that says it
    ],
)
def test_a_curve_has_the_steps_of_an_epoch_where_reports_say_them(
    trained: list[Any], per_epoch: float | None
) -> None:
    (curve,) = to_curves(
        validation(20 + 20 * place, 0.5, trained=each) for place, each in enumerate(trained)
    )
    assert curve.steps_per_epoch == per_epoch


@given(st.lists(st.sampled_from([NAN, -1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=90))
def test_arrays_have_the_same_landmarks_as_curves(values: list[float]) -> None:
    (whole,) = to_curves([window(1, values)])
    (thinned,) = to_curves([window(1, values)], max_points=20)
    assert thinned == whole.select(landmarks(whole.values, 20))


@pytest.mark.parametrize(("num", "kept"), [(9, 9), (10, 10), (11, 10)])
def test_a_curve_that_fits_is_whole(num: int, kept: int) -> None:
    (curve,) = to_curves([window(1, [float(i) for i in range(num)])], max_points=10)
    assert len(curve.steps) == kept
    assert isinstance(curve, Curve)
    assert curve.values == [float(step - 1) for step in curve.steps]
    assert curve.times == [5.0] * kept


METRICS = [
    window(1, [4.0, 2.0, NAN, 6.0], 10.0), window(5, [8.0], 20.0),
    validation(4, 0.5, 12.0), validation(5, NAN, 21.0),
]  # fmt: skip


def series_of(**query: Any) -> dict[str, tuple[list[float], ...]]:
    asked = SeriesQuery.model_validate({"of": "metrics", "axis": "batches", **query})
    return {
        f"{one.source} {one.name}": (one.x, one.low, one.mid, one.high)
        for one in to_series(to_tables(METRICS, asked), asked)
    }


LOSS, ERROR = "batches loss", "validation error"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, {LOSS: ([1, 2, 4, 5], *[[4, 2, 6, 8]] * 3), ERROR: ([4], [0.5], [0.5], [0.5])}),
        ({"columns": 1}, {LOSS: ([1], [2], [5], [8]), ERROR: ([4], [0.5], [0.5], [0.5])}),
        ({"columns": 2}, {LOSS: ([1, 4], [2, 6], [3, 7], [4, 8]), ERROR: ([4], *[[0.5]] * 3)}),
        ({"names": ["error"]}, {ERROR: ([4], [0.5], [0.5], [0.5])}),
        ({"names": []}, {}),
        ({"sources": ["batches"], "columns": 1}, {LOSS: ([1], [2], [5], [8])}),
        ({"sources": ["mine"]}, {}),
        ({"since": 4}, {LOSS: ([4, 5], *[[6, 8]] * 3), ERROR: ([4], *[[0.5]] * 3)}),
        ({"since": 4.5}, {LOSS: ([5], [8], [8], [8])}),
        ({"until": 2}, {LOSS: ([1, 2], *[[4, 2]] * 3)}),
        ({"since": 2, "until": 4}, {LOSS: ([2, 4], *[[2, 6]] * 3), ERROR: ([4], *[[0.5]] * 3)}),
        ({"axis": "time"},
         {LOSS: ([10, 20], [2, 8], [4, 8], [6, 8]), ERROR: ([12], *[[0.5]] * 3)}),
        ({"axis": "time", "since": 11},
         {LOSS: ([20], [8], [8], [8]), ERROR: ([12], *[[0.5]] * 3)}),
    ],
)  # fmt: skip
def test_metrics_are_series(query: dict[str, Any], expected: dict[str, Any]) -> None:
    assert series_of(**query) == expected


def test_a_mean_of_the_largest_numbers_is_one_of_them() -> None:
    asked = SeriesQuery(of="metrics", axis="batches", columns=1)
    (series,) = to_series(to_tables([window(1, [1e308, 1.5e308])], asked), asked)
    assert (series.low, series.mid, series.high) == ([1e308], [1.5e308], [1.5e308])


# Tables


def test_samples_are_a_table_with_nothing_where_nothing_was_measured() -> None:
    table = of_samples([(1.0, {"a": 2.0, "b": 5.0}), (2.0, {"a": NAN}), (3.0, {"b": -1.0})])
    assert table.at.tolist() == [1.0, 2.0, 3.0]
    assert table.get("a", "num").tolist() == [1.0, 0.0, 0.0]
    assert table.get("a", "total").tolist() == [2.0, 0.0, 0.0]
    assert table.get("b", "total").tolist() == [5.0, 0.0, -1.0]
    for extreme in ("low", "high"):
        np.testing.assert_array_equal(table.get("a", extreme), [2.0, NAN, NAN])
        np.testing.assert_array_equal(table.get("b", extreme), [5.0, NAN, -1.0])
    np.testing.assert_array_equal(per_unit(table, "b"), [5.0, NAN, -1.0])
    assert table.get("c", "num").tolist() == [0.0, 0.0, 0.0]


def interval(
    at: float, first: int, batches: int, **parts: tuple[int, float, float, float, float]
) -> dict[str, Any]:
    return {
        "at": at, "first": first, "batches": batches, "samples": 4 * batches, "seconds": 2.0,
        "parts": {name: PartTimes(*times) for name, times in parts.items()},
        "counters": {"tokens": 10.0} if parts else {},
    }  # fmt: skip


def times() -> Table:
    """Return three intervals, of which the last has no parts."""
    return of_times(
        [
            interval(12.0, 1, 4, forward=(8, 2.0, 0.2, 0.3, 0.5), data=(1, 0.5, 0.5, 0.5, 0.5)),
            interval(14.0, 5, 0, forward=(2, 1.0, 0.1, 0.6, 0.75)),
            interval(16.0, 5, 2),
        ]
    )


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (("", "first"), [1, 5, 5]),
        (("", "batches"), [4, 0, 2]),
        (("", "samples"), [16, 0, 8]),
        (("", "seconds"), [2, 2, 2]),
        (("forward", "num"), [8, 2, 0]),
        (("forward", "total"), [2, 1, 0]),
        (("forward", "p50"), [1.6, 0.2, 0]),
        (("forward", "p95"), [2.4, 1.2, 0]),
        (("forward", "max"), [0.5, 0.75, 0]),
        (("forward", "low"), [0.5, 1, 0]),  # per batch
        (("forward", "high"), [0.5, 1, 0]),
        (("data", "num"), [1, 0, 0]),
        (("data", "total"), [0.5, 0, 0]),
        (("data", "p50"), [0.5, 0, 0]),
        (("data", "max"), [0.5, 0, 0]),
        (("data", "high"), [0.125, 0, 0]),
        (("counter.tokens", "total"), [10, 10, 0]),
        (("counter.tokens", "high"), [2.5, 10, 0]),
        (("counter.tokens", "num"), [0, 0, 0]),
    ],
)
def test_intervals_are_a_table(column: tuple[str, str], values: list[float]) -> None:
    assert times().get(*column).tolist() == pytest.approx(values)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (("", "first"), [1, 5]),
        (("", "batches"), [4, 2]),
        (("forward", "total"), [3, 0]),
        (("forward", "max"), [0.75, 0]),
        (("forward", "low"), [0.5, 0]),
        (("forward", "high"), [1, 0]),
        (("forward", "p95"), [3.6, 0]),
    ],
)
def test_rows_of_one_stretch_become_one(column: tuple[str, str], values: list[float]) -> None:
    both = merged(times(), np.array([0, 0, 7]))
    assert both.at.tolist() == [10.0, 14.0]
    assert both.get(*column).tolist() == pytest.approx(values)
    turned = merged(times().where(np.array([True, True, True])), np.array([3, 3, -1]))
    assert turned.get(*column).tolist() == pytest.approx(values[::-1])
    assert rolled_up(times(), 14.0).at.tolist() == [10.0, 14.0]


def test_parts_that_one_of_two_tables_lacks_took_no_time() -> None:
    whole = joined([times(), of_times([interval(18.0, 7, 1, own=(1, 1.0, 1.0, 1.0, 1.0))])])
    assert whole.at.tolist() == [10.0, 12.0, 14.0, 16.0]
    for statistic in ("num", "total", "max", "low", "high"):
        assert whole.get("own", statistic).tolist() == [0, 0, 0, 1]
        assert whole.get("forward", statistic).tolist()[3] == 0
    assert joined([]).columns == {}


@pytest.mark.parametrize("is_measured", [True, False])
def test_bytes_keep_sums_exactly_and_the_rest_nearly(is_measured: bool) -> None:
    third = 1 / 3
    table = of_times(
        [interval(12.0 + third, 2**25 + 1, 3, forward=(2, third, third, third, third))]
    )
    again = from_bytes(to_bytes(table, is_measured=is_measured))
    assert again.at.tolist() == table.at.tolist()
    assert again.columns.keys() == table.columns.keys()
    for column, values in table.columns.items():
        is_exact = column[1] in ("num", "total", "batches", "samples", "seconds", "first")
        is_exact = is_exact or (is_measured and column[1] in ("low", "high"))
        rounded = values.astype(np.float32).astype(float)
        assert again.columns[column].tolist() == (values if is_exact else rounded).tolist()


def test_bytes_do_not_have_what_follows_from_the_rest() -> None:
    assert len(to_bytes(times(), is_measured=True)) < len(to_bytes(times(), is_measured=False))


def test_all_values_of_a_step_are_in_the_data_but_a_repeated_one_once() -> None:
    records = [
        validation(4, 0.5, 5.0), validation(8, 0.25, 6.0), validation(8, 0.5, 7.0),
        validation(8, 0.5, 8.0), validation(4, 0.125, 9.0),
    ]  # fmt: skip
    (curve,) = to_curves(records, repeats=True)
    assert curve.steps == [4, 4, 8, 8]
    assert curve.values == [0.5, 0.125, 0.25, 0.5]
    assert curve.times == [5.0, 9.0, 6.0, 8.0]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([[0.5, 0.99], [0.5, 0.99]], [0.5, 0.99]),
        ([["NaN"], ["NaN"], ["NaN"]], [None]),
        ([[0.5, "NaN"], [0.5], [0.5, "NaN", 0.25]], [0.5, None, 0.25]),
        ([[0.5, 0.99, 0.5, 0.5]], [0.5, 0.99, 0.5, 0.5]),  # it means each of them
        ([[0.5, 0.99, 0.5], [0.5, 0.99, 0.5]], [0.5, 0.99, 0.5]),
        ([[0.5], [0.75]], [0.5, 0.75]),
    ],
)
def test_what_a_later_run_reports_again_at_a_step_is_there_once(
    runs: list[list[Any]], expected: list[float | None]
) -> None:
    records = [
        validation(8, value, run=number) for number, run in enumerate(runs, 1) for value in run
    ]
    others = [validation(4, 0.125, run=1), validation(12, 0.125, run=len(runs))]
    (curve,) = to_curves([*others, *records], repeats=True)
    assert curve.values == [0.125, *expected, 0.125]
    assert curve.steps == [4, *[8] * len(expected), 12]


def test_of_runs_that_are_not_known_equal_values_of_a_step_are_one() -> None:
    values = [0.5, 0.99, 0.5, 0.99, "NaN", "NaN"]
    (curve,) = to_curves([validation(8, value) for value in values], repeats=True)
    assert curve.values == [0.5, 0.99, None]
