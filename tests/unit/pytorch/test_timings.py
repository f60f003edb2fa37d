"""Timings of batches: each part gets its own time, and a run without them has nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from det_jupyter.client.timings import to_columns
from det_jupyter.config.sections import Profiling
from det_jupyter.pytorch.metrics.timings import Timings
from det_jupyter.records import BatchTimings, parse_line, to_line
from det_jupyter.wire import TimingsView

CPU = torch.device("cpu")
GPU = torch.device("cuda:0")  # only its name is used


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def takes(self, duration: int) -> Callable[..., Any]:
        """Return a function that takes so long and gives back its argument."""

        def run(value: Any = None, **_: Any) -> Any:
            self.now += duration
            return value

        return run


class Context:
    """The part of a trial's context that is timed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def to_device(self, batch: Any) -> Any:
        return self.clock.takes(20)(batch)

    def backward(self, loss: Any, retain_graph: bool = False) -> None:
        self.clock.now += 300

    def step_optimizer(self, optimizer: Any) -> None:
        self.clock.now += 40


def loaded(clock: Clock, num: int) -> Iterator[int]:
    for batch in range(num):
        clock.now += 10
        yield batch


def train(
    num: int, *, first: int = 0, device: torch.device = CPU, report: bool = False, **profiling: Any
) -> list[BatchTimings]:
    """Train so many batches as the loop does, with a flush after every second one."""
    clock = Clock()
    timings = Timings(Profiling(enabled=True, **profiling), device, clock=clock)
    context = Context(clock)
    timings.watch(context)

    def train_batch(batch: int) -> None:
        for _ in range(2):
            context.backward(batch, retain_graph=True)
        clock.now += 5
        context.step_optimizer(None)

    timed = timings.timed("train_batch", train_batch)
    step = timings.timed("step_lr_schedulers", clock.takes(3))
    reduce = timings.timed("reduce_metrics", clock.takes(7))
    found = []
    for done, batch in enumerate(timings.over(loaded(clock, num), first), start=1):
        timed(context.to_device(batch))
        step()
        timings.end_batch(32)
        if done % 2 == 0:
            if report:
                reduce()
            found.append(timings.flush())
            context.to_device("of a validation, which counts for no batch")
            reduce()
            clock.now += 1_000_000
    return [record for record in (*found, timings.flush()) if record]


def test_each_part_has_its_time_and_what_is_called_twice_is_summed() -> None:
    first, second = train(3, first=10)
    assert first.durations_ns == {
        "dataloader_next": [10, 10],
        "train_batch": [645, 645],
        "to_device": [20, 20],
        "train_batch.backward": [600, 600],
        "train_batch.sync_optimizers": [40, 40],
        "step_lr_schedulers": [3, 3],
        "batch": [678, 678],
    }
    assert (first.first, first.records) == (11, [32, 32])
    assert (second.first, second.records) == (13, [32])
    assert second.durations_ns["batch"] == [678]


def test_what_a_report_does_belongs_to_the_batch_before_it() -> None:
    record, *_ = train(2, report=True)
    assert record.durations_ns["reduce_metrics"] == [None, 7]
    assert parse_line(to_line(record)) == record


def test_only_the_wanted_batches_are_recorded() -> None:
    records = train(9, first=100, begin_on_batch=103, end_after_batch=106)
    assert [(record.first, len(record.records)) for record in records] == [
        (104, 1),
        (105, 2),
        (107, 1),
    ]
    assert {batch for record in records for batch in record.durations_ns["batch"]} == {678}


def test_nothing_is_recorded_before_the_first_wanted_batch() -> None:
    assert train(4, begin_on_batch=4) == []


@pytest.mark.parametrize(("enabled", "is_chief"), [(False, True), (True, False)])
def test_without_profiling_and_beside_the_chief_there_are_no_timings(
    enabled: bool, is_chief: bool
) -> None:
    assert Timings.open(Profiling(enabled=enabled), CPU, is_chief=is_chief) is None


def test_the_chief_has_timings_where_they_are_wanted() -> None:
    assert Timings.open(Profiling(enabled=True), CPU, is_chief=True) is not None


def test_each_timer_waits_for_the_gpu_within_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    train(6, device=GPU, begin_on_batch=2, end_after_batch=3)
    per_batch = 6  # to_device, 2 backward, sync_optimizers, train_batch, step_lr_schedulers
    assert waits == [GPU] * (2 * per_batch + 2)  # and, before the next batch, a validation


def test_a_gpu_that_nobody_waits_for_has_only_the_times_of_its_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: pytest.fail("waited"))
    record, *_ = train(2, device=GPU, sync_timings=False, report=True)
    assert list(record.durations_ns) == ["dataloader_next", "train_batch", "batch"]


def test_columns_are_in_seconds_and_have_gaps_where_a_batch_has_no_such_part() -> None:
    views = [
        TimingsView(id=1, first=1, records=[32, 16], durations_ns={"batch": [2_000, 1_000]}),
        TimingsView(
            id=2,
            first=3,
            records=[32],
            durations_ns={"batch": [4_000], "reduce_metrics": [500]},
        ),
        TimingsView(id=3, first=4, records=[32], durations_ns={"batch": [0]}),
    ]
    assert to_columns(views) == {
        "batch_idx": [0, 1, 2, 3],
        "samples_per_second": [16e6, 16e6, 8e6, None],
        "batch": [2e-6, 1e-6, 4e-6, 0.0],
        "reduce_metrics": [None, None, 5e-7, None],
    }


def test_no_timings_are_no_columns() -> None:
    assert to_columns([]) == {}
