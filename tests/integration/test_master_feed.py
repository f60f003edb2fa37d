"""What is read of the feed after a number, and the curves in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import Curve
from det_jupyter.contract.run.journal import to_line
from det_jupyter.errors import Conflict
from det_jupyter.master.service.stored_rows import read_metrics
from det_jupyter.master.views.metric_curves import to_curves
from tests.integration.master_support import (
    AGENT,
    Bench,
    batches,
    bench_with_trial,
    make_chunk,
    make_request,
    validation,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a master with a trial that has reported two batches."""
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        bench.report(make_chunk([batches(1, [0.5]), batches(2, [0.4])]))
        yield bench


def test_the_feed_is_read_from_any_number(bench: Bench) -> None:
    asyncio.run(bench.service.submit(make_request()))
    everything = bench.store.feed.news_after(0, 1000)
    assert {item.experiment_id for item in everything} == {0, 1, 2}
    for after in range(len(everything) + 1):
        last = everything[after - 1].seq if after else 0
        assert bench.store.feed.news_after(last, 1000) == everything[after:]
        own = [item.seq for item in everything[after:] if item.experiment_id == 2]
        assert [item.seq for item in bench.store.feed.after(last, 2, 1000)] == own
    assert bench.store.feed.news_after(0, 2) == everything[:2]


def test_an_agent_hears_commands_in_between_signs_of_life(bench: Bench) -> None:
    link = bench.service.links.open(AGENT, "first")

    async def scenario() -> list[bytes]:
        lines = link.stream(0.01)
        heard = [await anext(lines), await anext(lines)]
        assert bench.service.links.is_connected(AGENT)
        with pytest.raises(Conflict, match="register again"):
            link.stream(0.01)
        link.close()
        return heard + [line async for line in lines]

    assert asyncio.run(scenario()) == [b"\n", b"\n"]
    assert not bench.service.links.is_connected(AGENT)


def test_curves_are_whole(bench: Bench) -> None:
    offset = bench.store.offset("1.1.1", "journal-0")
    bench.report(make_chunk([batches(3, ["NaN", 0.1]), validation(4, 0.9)], offset=offset))
    curves = list(to_curves(read_metrics(bench.store.path, 1)))
    assert [(c.group, c.name, c.steps, c.values) for c in curves] == [
        ("batches", "loss", [1, 2, 3, 4], [0.5, 0.4, None, 0.1]),
        ("validation", "error", [4], [0.9]),
    ]
    assert all(len(curve.times) == len(curve.steps) for curve in curves)


def thinned(values: list[Any], max_points: int) -> Curve:
    (curve,) = to_curves([(1, json.loads(to_line(batches(1, values))))], max_points=max_points)
    return curve


def test_a_thinned_curve_keeps_its_ends_and_extremes() -> None:
    values = [float(i % 10) for i in range(1000)]
    values[537], values[211] = 99.0, -99.0
    few = thinned(values, 50)
    assert len(few.steps) <= 50
    assert (few.steps[0], few.steps[-1]) == (1, 1000)
    assert few.steps == sorted(set(few.steps))
    assert {99.0, -99.0} <= set(few.values)
    assert thinned(values, 1000).values == values


def test_a_thinned_curve_keeps_its_gaps() -> None:
    assert set(thinned([1.0, *["NaN"] * 99], 10).values) == {1.0, None}
