"""Followers get all items after their number, first stored ones, then new ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import Curve, FeedItem
from det_jupyter.contract.run.journal import to_line
from det_jupyter.errors import Conflict
from det_jupyter.master.service.feed import follow
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


def lines_of(bench: Bench, *, after: int = 0, experiment: int | None = 1) -> AsyncIterator[bytes]:
    return follow(
        bench.store.feed,
        bench.service.commits,
        after=after,
        experiment_id=experiment,
        is_endless=True,
        heartbeat_s=0.01,
    )


async def next_items(lines: AsyncIterator[bytes]) -> list[FeedItem]:
    async for part in lines:
        if part != b"\n":
            return [FeedItem.model_validate(json.loads(line)) for line in part.splitlines()]
    return []


def test_a_follower_can_begin_anywhere(bench: Bench) -> None:
    everything = bench.store.feed.after(0, None, 1000)
    for after in range(len(everything) + 1):
        last = everything[after - 1].seq if after else 0
        found = bench.store.feed.after(last, 1, 1000)
        assert [item.seq for item in found] == [item.seq for item in everything[after:]]


def test_what_was_and_what_comes_is_heard_once_each(bench: Bench) -> None:
    async def scenario() -> tuple[list[FeedItem], list[FeedItem]]:
        lines = lines_of(bench)
        before = await next_items(lines)
        waiting = asyncio.create_task(next_items(lines))
        await asyncio.sleep(0)
        bench.report(
            make_chunk([batches(3, [0.3])], offset=bench.store.offset("1.1.1", "journal-0"))
        )
        after = await waiting
        bench.service.end_streams()
        assert await next_items(lines) == []
        return before, after

    before, after = asyncio.run(scenario())
    assert [item.data["first"] for item in before if item.kind == "metrics"] == [1, 2]
    assert [item.data["first"] for item in after if item.kind == "metrics"] == [3]
    assert after[0].seq > before[-1].seq
    assert len({item.seq for item in before + after}) == len(before + after)


def test_a_quiet_feed_gives_signs_of_life(bench: Bench) -> None:
    async def first_line() -> bytes:
        return await anext(lines_of(bench, after=bench.store.feed.last_seq))

    assert asyncio.run(first_line()) == b"\n"


def test_a_follower_hears_of_its_experiment_alone(bench: Bench) -> None:
    asyncio.run(bench.service.submit(make_request()))
    heard = {item.experiment_id for item in bench.store.feed.after(0, 2, 1000)}
    assert heard == {0, 2}  # 0: slots or queues have changed, which all followers get


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
