"""What is read of the feed after a number, and the curves in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.errors import Conflict
from det_jupyter.master.service.storing.stored_rows import read_metrics
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
