"""A rehearsal measures a run: when it begins, what it reports, and when it is over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.contract.run.journal import MetricsReported
from det_jupyter.core import RecordList
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import DataLoader
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.training.rehearsal import Rehearsal, RehearsalPlan, Replay


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def rehearse(text: str, durations: list[float]) -> tuple[Rehearsal, int, dict[str, Any]]:
    """Train batches of 8 records; return after which the run was over, and the report."""
    sink, clock = RecordList(), Clock()
    context = core.init(distributed=core.DistributedContext(), sink=sink)
    rehearsal = Rehearsal(RehearsalPlan.parse(text), context, clock=clock)
    batches = 0
    for batches, duration in enumerate(durations, 1):  # noqa: B007  # the last counts
        clock.now += duration
        rehearsal.after_batch(Share(4, 8))
        if rehearsal.is_over():
            break
    rehearsal.end(batches)
    reported = [record for record in sink.records if isinstance(record, MetricsReported)]
    return rehearsal, batches, reported[0].metrics if reported else {}


def test_what_is_measured_begins_after_a_second_and_some_batches() -> None:
    _, batches, metrics = rehearse("seconds=2.5 warmup=3", [5.0, 0.5, 0.5, *[0.125] * 100])
    assert batches == 3 + 20
    assert metrics["records_per_s"] == 64


def test_one_slow_batch_among_many_is_no_slower_training() -> None:
    slow = [0.1] * 12 + [1.0] + [0.1] * 100
    _, _, metrics = rehearse("seconds=3 warmup=1", slow)
    assert metrics["records_per_s"] == pytest.approx(80)
    assert metrics["low"] <= metrics["records_per_s"] <= metrics["high"]


def test_batches_that_differ_in_turns_are_measured_in_whole_turns() -> None:
    turns = [0.1, 0.1, 0.1, 0.5] * 50
    _, _, metrics = rehearse("seconds=4 warmup=1 every=4", turns)
    assert metrics["records_per_s"] == pytest.approx(4 * 8 / 0.8)


def test_slow_batches_are_measured_for_three_slices_at_least() -> None:
    _, batches, metrics = rehearse("seconds=1 warmup=1", [10.0] * 20)
    assert batches == 2 + 3
    assert metrics["records_per_s"] == pytest.approx(0.8)


def test_a_run_that_leaves_before_reports_nothing() -> None:
    _, _, metrics = rehearse("seconds=100 warmup=1", [0.1] * 30)
    assert metrics == {}


@pytest.mark.parametrize("text", ["seconds", "seconds=x", "minutes=1"])
def test_a_variable_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="DET_JUPYTER_REHEARSAL: got "):
        RehearsalPlan.parse(text)


@pytest.mark.parametrize(
    ("processors", "before", "workers"),
    [(16, 0, 4), (2, 0, 2), (1, 0, 1), (None, 0, 1), (16, 3, 6), (4, 4, 5), (16, 1, 4)],
)
def test_more_workers_are_for_our_own_loader_and_are_reported(
    processors: int | None, before: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    loader = DataLoader([1, 2, 3], 1, num_workers=before)
    rehearsal = rehearse("workers=1 seconds=1 warmup=1", [10.0] * 20)[0]
    rehearsal.prepare(loader)
    rehearsal.end(9)
    assert loader.num_workers == workers
    assert isinstance(rehearsal.core.sink, RecordList)
    report = rehearsal.core.sink.records[-1]
    assert isinstance(report, MetricsReported)
    assert (report.metrics["workers_before"], report.metrics["workers"]) == (before, workers)
    with pytest.raises(ConfigError, match=r"the loader is a list; only a det_jupyter.pytorch"):
        rehearsal.prepare([1])


class Stream:
    """Three batches, and then an error."""

    batches_per_epoch = 7
    smallest_share = None
    is_closed = False

    def __iter__(self) -> Iterator[tuple[Any, Share]]:
        yield from ((name, Share(1, 2)) for name in "abc")
        raise AssertionError("more was loaded than is recorded")

    def close(self) -> None:
        self.is_closed = True


def names(replay: Replay, number: int) -> str:
    return "".join(batch for batch, _ in islice(replay, number))


def test_recorded_batches_come_again_and_nothing_more_is_loaded() -> None:
    stream = Stream()
    replay = Replay(stream, 3)
    assert replay.batches_per_epoch == 7
    assert names(replay, 8) == "abcabcab"
    assert replay.is_recorded
    assert stream.is_closed


def test_recording_slow_batches_ends_early() -> None:
    ticks = iter((0.0, 2.0, 4.0))
    assert names(Replay(Stream(), 3, clock=lambda: next(ticks)), 5) == "ababa"
