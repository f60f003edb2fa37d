"""Merging rows of measured numbers loses no extreme and no sum, however often it is done."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.messages import SeriesQuery
from det_jupyter.contract.messages.queries import MAX_POINTS
from det_jupyter.contract.run.journal import PartTimes
from det_jupyter.master.views.metric_curves import to_curves, to_tables
from det_jupyter.master.views.series_pages import rounded, to_series
from det_jupyter.master.views.series_tables import (
    Table,
    from_bytes,
    joined,
    merged,
    of_samples,
    of_times,
    rolled_up,
    to_bytes,
)

values = st.floats(-1e6, 1e6, allow_nan=False, width=32)
moments = st.floats(0, 1e5, allow_nan=False)
samples = st.lists(
    st.tuples(moments, st.dictionaries(st.sampled_from("ab"), values)), min_size=1, max_size=80
)


def of(*names: str, **others: object) -> SeriesQuery:
    return SeriesQuery.model_validate({"of": "system", "names": list(names) or None, **others})


@given(samples, st.sampled_from([1.0, 10.0, 60.0]))
def test_rolling_up_keeps_number_sum_and_extremes(
    taken: list[tuple[float, dict[str, float]]], step_s: float
) -> None:
    table = rolled_up(rolled_up(of_samples(taken), step_s), 5 * step_s)
    for name in {name for _, own in taken for name in own}:
        known = [own[name] for _, own in taken if name in own]
        assert table.get(name, "num").sum() == len(known)
        assert table.get(name, "total").sum() == pytest.approx(sum(known), rel=1e-9, abs=1e-6)
        assert np.nanmin(table.get(name, "low")) == min(known)
        assert np.nanmax(table.get(name, "high")) == max(known)
    assert table.at.min() == min(at for at, _ in taken)


@given(samples)
def test_bytes_give_the_same_table(taken: list[tuple[float, dict[str, float]]]) -> None:
    measured = of_samples(taken)
    rolled = rolled_up(measured, 10.0)
    for table, is_measured in ((measured, True), (rolled, False)):
        again = from_bytes(to_bytes(table, is_measured=is_measured))
        assert again.columns.keys() == table.columns.keys()
        np.testing.assert_array_equal(again.at, table.at)
        for column, kept in table.columns.items():
            np.testing.assert_array_equal(again.columns[column], kept)


@given(samples, st.integers(1, 40))
def test_each_column_of_a_picture_has_its_extremes_and_its_mean(
    taken: list[tuple[float, dict[str, float]]], columns: int
) -> None:
    for series in to_series([("host", of_samples(taken))], of("a", columns=columns)):
        known = [own["a"] for _, own in taken if "a" in own]
        assert len(series.x) <= columns
        assert min(series.low) == pytest.approx(min(known), rel=1e-5)
        assert max(series.high) == pytest.approx(max(known), rel=1e-5)
        assert all(
            low <= mid + 1e-5 * abs(mid) + 1e-9 and mid <= high + 1e-5 * abs(high) + 1e-9
            for low, mid, high in zip(series.low, series.mid, series.high, strict=True)
        )


@given(st.lists(st.one_of(values, st.just(math.nan)), min_size=1, max_size=300), st.integers(1, 9))
def test_metrics_of_a_picture_have_every_extreme(given: list[float], columns: int) -> None:
    record = {"kind": "batch_metrics", "at": 5.0, "first": 1, "values": {"loss": given}}
    query = SeriesQuery(of="metrics", axis="batches", columns=columns)
    finite = [value for value in given if math.isfinite(value)]
    found = to_series(to_tables([(1, record)], query), query)
    assert [one.name for one in found] == (["loss"] if finite else [])
    for series in found:
        assert len(series.x) <= columns
        assert min(series.low) == pytest.approx(min(finite), rel=1e-5)
        assert max(series.high) == pytest.approx(max(finite), rel=1e-5)


def interval(at: float, batches: int, total: float, longest: float) -> dict[str, object]:
    part = PartTimes(num=2 * batches, total=total, p50=0.1, p95=0.2, max=longest)
    return {
        "at": at,
        "first": int(at),
        "batches": batches,
        "samples": 8 * batches,
        "seconds": 1.0,
        "parts": {"forward": part},
        "counters": {"tokens": 10.0 * batches},
    }


def test_times_are_summed_and_the_longest_stays() -> None:
    table = of_times([interval(11, 10, 0.5, 0.07), interval(12, 30, 0.9, 0.05)])
    rolled = rolled_up(table, 10.0)
    assert rolled.at.tolist() == [10.0], "where the first interval began"
    assert rolled.get("forward", "num").tolist() == [80]
    assert rolled.get("forward", "total").tolist() == [1.4]
    assert rolled.get("forward", "max").tolist() == [0.07]
    assert rolled.get("", "batches").tolist() == [40]
    query = SeriesQuery(of="timings", columns=1)
    found = {one.name: one for one in to_series([("rank:0", rolled)], query)}
    assert found["forward"].mid == [0.035]  # 1.4 s in 40 batches
    assert (found["forward"].low, found["forward"].high) == ([0.03], [0.05])
    assert found["samples_per_second"].mid == [160.0]
    assert found["batch"].mid == [0.05]
    assert found["counter.tokens"].mid == [10.0]
    asked = SeriesQuery(of="timings", columns=1, names=["forward.p95", "forward.max"])
    assert [one.mid for one in to_series([("rank:0", rolled)], asked)] == [[0.2], [0.07]]
    # What follows the last batch has no pace.
    late = of_times([interval(11, 10, 0.5, 0.07), interval(12, 0, 0.0, 0.0)])
    asked = SeriesQuery(of="timings", names=["samples_per_second"])
    assert [len(one.x) for one in to_series([("rank:0", late)], asked)] == [1]
    of_none = SeriesQuery(of="timings", names=["batch.max", "samples_per_second.p50"])
    assert to_series([("rank:0", rolled)], of_none) == []


def test_a_part_that_did_not_occur_took_no_time() -> None:
    with_part = of_times([interval(11, 10, 0.5, 0.1)])
    without = of_times([{**interval(12, 10, 0.0, 0.0), "parts": {}}])
    (series,) = to_series(
        [("rank:0", joined([with_part, without]))],
        SeriesQuery(of="timings", columns=1, names=["forward"]),
    )
    assert (series.low, series.mid, series.high) == ([0.0], [0.025], [0.05])


def test_validation_alone_counts_as_one_batch() -> None:
    record = {**interval(11, 0, 0.5, 0.1)}
    (series,) = to_series(
        [("rank:0", of_times([record]))], SeriesQuery(of="timings", names=["forward"])
    )
    assert series.mid == [0.5]


def test_five_thousand_names_share_the_points_of_a_page() -> None:
    taken = [(float(at), {f"name{i}": float(at) for i in range(5000)}) for at in range(90)]
    found = to_series([("host", of_samples(taken))], of(columns=600))
    assert len(found) == 5000
    assert sum(len(one.x) for one in found) <= MAX_POINTS
    assert {max(one.high) for one in found} == {89.0}


def test_curves_of_five_thousand_names_have_few_points_each() -> None:
    values = {f"name{i}": [float(j) for j in range(250)] for i in range(5000)}
    record = {"kind": "batch_metrics", "at": 5.0, "first": 1, "values": values}
    curves = list(to_curves([(1, record)], max_points=4000))
    assert {len(curve.steps) for curve in curves} == {200}
    assert {max(value or 0 for value in curve.values) for curve in curves} == {249.0}


def test_nothing_gives_no_series() -> None:
    nothing = Table(np.zeros(0), {})
    assert to_series([("host", nothing)], of()) == []
    assert to_series([], of()) == []
    assert len(merged(nothing, np.zeros(0, dtype=np.int64)).at) == 0
    assert len(joined([]).at) == 0


def test_damaged_bytes_are_a_value_error() -> None:
    good = to_bytes(of_samples([(1.0, {"a": 2.0})]), is_measured=True)
    for blob in (b"", b"no", good[:-4]):
        with pytest.raises(ValueError, match="stored numbers"):
            from_bytes(blob)


@given(st.lists(st.floats(-1e30, 1e30, allow_nan=False), min_size=1))
def test_values_in_short_are_those_with_six_digits(values: list[float]) -> None:
    expected = [float(f"{value:.6g}") for value in values]
    assert rounded(np.array(values)) == pytest.approx(expected, rel=1e-6, abs=1e-300)
