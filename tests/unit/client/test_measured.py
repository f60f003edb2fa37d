"""Measured numbers as columns: what the system did, and where the time of ranks went."""

from __future__ import annotations

from typing import cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.measured import by_trial
from det_jupyter.client.trial import Trial
from det_jupyter.contract.messages import Series, SeriesPage, SeriesQuery
from det_jupyter.errors import ConfigError


def series(source: str, name: str, mid: list[float], unit: str = "s") -> Series:
    return Series(
        source=source, name=name, title="", unit=unit, mid=mid,
        x=[float(i) for i in range(len(mid))], low=mid, high=[10 * value for value in mid],
    )  # fmt: skip


class Master:
    """Has some series, of which it answers those that are named."""

    def __init__(self, *series: Series) -> None:
        self._series = series

    def series(self, trial_id: int, query: SeriesQuery) -> SeriesPage:
        def is_asked(name: str) -> bool:
            return name in query.names if query.names else "." not in name

        return SeriesPage(series=[s for s in self._series if is_asked(s.name)], began_at=0.0)


def trial_with(*series: Series) -> Trial:
    return Trial(cast("Client", Master(*series)), 1)


def test_system_metrics_are_a_row_for_each_point() -> None:
    columns = trial_with(
        series("host", "memory_free", [1.0, 2.0], unit="bytes"), series("rank:0", "cpu", [3.0])
    ).system_metrics()
    assert list(zip(*columns.values(), strict=True)) == [
        (0.0, "host", "memory_free", "bytes", 1.0, 1.0, 10.0),
        (1.0, "host", "memory_free", "bytes", 2.0, 2.0, 20.0),
        (0.0, "rank:0", "cpu", "s", 3.0, 3.0, 30.0),
    ]


def test_step_times_have_the_statistics_of_their_part() -> None:
    columns = trial_with(
        series("rank:1", "forward", [0.1, 0.2]),
        series("rank:1", "forward.p50", [0.1]),
        series("rank:1", "forward.max", [0.3, 0.4]),
        series("rank:1", "samples_per_second", [5.0], unit="1/s"),
    ).step_times()
    assert list(zip(*columns.values(), strict=True)) == [
        (0.0, 1, "forward", 0.1, 0.1, None, 0.3),
        (1.0, 1, "forward", 0.2, None, None, 0.4),
    ]


def test_rows_of_several_trials_say_whose_they_are() -> None:
    one, other = (trial_with(series("rank:0", "forward", [x])).step_times() for x in (0.1, 0.2))
    columns = by_trial({3: one, 5: other})
    assert (columns["trial"], columns["per_batch"]) == ([3, 5], [0.1, 0.2])
    assert list(columns)[:3] == ["trial", "time", "rank"]
    assert by_trial({}) == {"trial": []}


def test_without_timings_there_are_columns_without_rows() -> None:
    assert set(map(tuple, trial_with().step_times().values())) == {()}
    assert "per_batch" in trial_with().step_times()


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="since: got 'soon'"):
        trial_with().system_metrics(since="soon")
