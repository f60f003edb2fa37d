"""The benchmark of timings: its table, and what its numbers are of."""

from __future__ import annotations

import pytest

from tests.benchmarks.loop_contender import Cost
from tests.benchmarks.profiler_overhead import show


def test_the_cost_is_the_median_of_differences_and_the_difference_of_the_least(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = [
        (Cost(110.0, 100.0), Cost(116.0, 105.0)),
        (Cost(150.0, 101.0), Cost(140.0, 104.0)),
        (Cost(120.0, 140.0), Cost(130.0, 150.0)),
    ]
    numbers = show({("raw_rows", "tiny"): pairs})
    assert numbers == {
        "raw_rows_tiny_us": 6.0,
        "raw_rows_tiny_least_us": 6.0,
        "raw_rows_tiny_percent": 5.0,
        "raw_rows_tiny_us_cpu": 5.0,
        "raw_rows_tiny_least_us_cpu": 4.0,
        "raw_rows_tiny_percent_cpu": 4.95,
    }
    assert "timings, and raw rows" in capsys.readouterr().out
