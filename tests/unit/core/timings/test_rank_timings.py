"""Timings: every nanosecond is in one part, and the parts of a batch make raw rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import numpy
import pytest
import torch

from det_jupyter.client.handles.exports import timing_columns
from det_jupyter.config.sections import Profiling
from det_jupyter.contract.messages import TimingsView
from det_jupyter.contract.run.journal import BatchTimings, StepTimes, parse_line, to_line
from det_jupyter.core import DistributedContext, ProfilerContext, RecordList
from det_jupyter.core.timings import rank_timings
from det_jupyter.core.timings.clocks import HostClock
from det_jupyter.core.timings.intervals import UNKNOWN
from det_jupyter.core.timings.rank_timings import NO_TIMINGS, Timings, open_timings


class Now:
    """A clock that goes on when it is told to."""

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

    distributed = DistributedContext()
    stepping = SimpleNamespace(set_timer=bool)
    profiler = ProfilerContext()

    def __init__(self, clock: Now) -> None:
        self.clock = clock

    def to_device(self, batch: Any) -> Any:
        return self.clock.takes(20)(batch)

    def backward(self, loss: Any, retain_graph: bool = False) -> None:
        self.clock.now += 300

    def step_optimizer(self, optimizer: Any) -> None:
        self.clock.now += 40


def loaded(clock: Now, num: int) -> Iterator[int]:
    for batch in range(num):
        clock.now += 10
        yield batch


def train(
    num: int, *, first: int = 0, has_report: bool = False, has_rows: bool = True, **window: Any
) -> list[StepTimes | BatchTimings]:
    """Train so many batches as the loop does, with a flush after every second one."""
    clock = Now()
    profiling = Profiling(enabled=True, **window)
    timings = Timings(profiling, first, clock=HostClock(clock), has_rows=has_rows)
    context = Context(clock)

    def train_batch(batch: int) -> None:
        for _ in range(2):
            context.backward(batch, retain_graph=True)
        clock.now += 5
        context.step_optimizer(None)

    timed = timings.timed("forward", train_batch)
    step = timings.timed("step_lr_schedulers", clock.takes(3))
    reduce = timings.timed("reduce_metrics", clock.takes(7))
    found = []
    with timings.timing_context(context):
        for done, batch in enumerate(timings.timed_batches(loaded(clock, num)), start=1):
            timed(context.to_device(batch))
            step()
            timings.end_batch(32)
            if done % 2 == 0:
                if has_report:
                    reduce()
                found += timings.flush()
                with timings.timed_block("validation"):
                    context.to_device("of a validation, of which it is a part")
                    reduce()
                clock.now += 1_000_000
    return [*found, *timings.flush()]


def rows(num: int, **options: Any) -> list[BatchTimings]:
    return [record for record in train(num, **options) if isinstance(record, BatchTimings)]


def times(num: int, **options: Any) -> list[StepTimes]:
    found = train(num, has_rows=False, **options)
    return [record for record in found if isinstance(record, StepTimes)]


def totals(record: StepTimes) -> dict[str, int]:
    return {part: round(times.total * 1e9) for part, times in record.parts.items()}


def test_only_exchanges_of_a_backward_pass_are_in_the_raw_row_of_training() -> None:
    clock = Now()
    timings = Timings(Profiling(enabled=True), 0, clock=HostClock(clock), has_rows=True)
    meet, exchange = (timings.timed_exchange(clock.takes(duration)) for duration in (1_000, 50))

    def compute() -> None:
        clock.now += 300
        exchange()
        exchange()
        clock.now += 7

    backward = timings.timed("backward", compute)
    train_batch = timings.timed("forward", lambda: (clock.takes(100)(), backward()))
    for _ in timings.timed_batches(loaded(clock, 2)):
        meet()  # buffers
        train_batch()
        timings.end_batch(32)
        meet()  # whether to leave
    [row] = [record for record in timings.flush() if isinstance(record, BatchTimings)]
    assert row.durations_ns["train_batch.backward"] == [407, 407]
    assert row.durations_ns["train_batch"] == [507, 507]
    assert row.durations_ns["batch"] == [1517, 1517]


def test_each_part_has_its_time_and_what_is_called_twice_is_summed() -> None:
    first, second = rows(3, first=10)
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


def test_each_nanosecond_of_an_interval_is_in_one_part() -> None:
    first, second, third = times(5, has_report=True)
    batch = {"to_device": 40, "forward": 10, "backward": 1200, "optimizer": 80}
    assert totals(first) == batch | {
        "dataloader_next": 20,
        "step_lr_schedulers": 6,
        "reduce_metrics": 7,
        "rest": 0,
    }
    assert totals(second) == totals(first) | {"validation": 27, "rest": 1_000_000}
    assert third.parts["backward"] == (1, 6e-7, 6e-7, 6e-7, 6e-7)
    for record in (first, second, third):
        assert sum(totals(record).values()) == round(record.seconds * 1e9)
    assert [(it.first, it.batches, it.samples) for it in (first, second, third)] == [
        (1, 2, 64),
        (3, 2, 64),
        (5, 1, 32),
    ]
    assert parse_line(to_line(first)) == first


def test_what_was_before_the_start_is_in_no_record() -> None:
    clock, profiler = Now(), ProfilerContext()
    timings = Timings(Profiling(), 0, clock=HostClock(clock), profiler=profiler)
    profiler.count("tokens", 3)
    timings.timed("backward", clock.takes(500))()
    timings.start()
    clock.now += 7
    timings.timed("forward", clock.takes(20))()
    (record,) = timings.flush()
    assert isinstance(record, StepTimes)
    assert (totals(record), record.counters) == ({"forward": 20, "rest": 7}, {})
    assert round(record.seconds * 1e9) == 27


def test_an_interval_without_batches_is_all_what_was_done_instead() -> None:
    clock = Now()
    timings = Timings(Profiling(), 7, clock=HostClock(clock))
    with timings.timed_block("checkpoint"):
        clock.now += 2_000
    (record,) = timings.flush()
    assert isinstance(record, StepTimes)
    assert (record.first, record.batches, totals(record)) == (
        7,
        0,
        {"checkpoint": 2_000, "rest": 0},
    )


def test_what_is_left_of_a_validation_belongs_to_the_next_batches() -> None:
    clock, sink = Now(), RecordList()
    timings = Timings(Profiling(), 0, clock=HostClock(clock))
    for _ in timings.timed_batches(loaded(clock, 2)):
        timings.end_batch(32)
        with timings.timed_block("validation"):
            clock.now += 500
            timings.journal(sink)  # as it takes long
            clock.now += 70
        timings.journal_batches(sink)
        timings.journal_batches(sink)
    assert [record.batches for record in sink.records if isinstance(record, StepTimes)] == [1, 1]
    (record,) = timings.flush()
    assert isinstance(record, StepTimes)
    assert totals(record) == {"dataloader_next": 0, "validation": 70, "rest": 0}


def test_exchanges_of_a_validation_are_forgotten_also_when_it_is_journaled_in_its_midst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rank_timings, "PERIOD_NS", 0)
    clock, sink, asked = Now(), RecordList(), []

    class Page:
        def write(self, exchange: int, at: int) -> None:
            pass

        def last(self, exchanges: Any) -> Any:
            asked.append(exchanges.tolist())
            return numpy.full(len(exchanges), UNKNOWN)

    timings = Timings(Profiling(), 0, clock=HostClock(clock), arrivals=cast(Any, Page()))
    exchange = timings.timed_exchange(clock.takes(5))
    exchange()
    with timings.timed_block("validation"):
        exchange()
        timings.journal_if_due(sink)
        exchange()
    exchange()
    timings.journal(sink)
    assert asked == [[0], [3]]


def test_a_part_that_raises_ends_there() -> None:
    clock = Now()
    timings = Timings(Profiling(), 0, clock=HostClock(clock))

    def fail() -> None:
        clock.now += 3
        raise ValueError("out of memory")

    with pytest.raises(ValueError, match="memory"):
        timings.timed("backward", fail)()
    clock.now += 5
    (record,) = timings.flush()
    assert isinstance(record, StepTimes)
    assert totals(record) == {"backward": 3, "rest": 5}


def test_a_time_without_a_code_spoils_one_record_alone() -> None:
    clock = Now()
    timings = Timings(Profiling(), 0, clock=HostClock(clock))
    timings.marks.at.append(clock())  # an interrupt came before its code
    clock.now += 5
    timings.flush()
    timings.timed("backward", clock.takes(300))()
    clock.now += 7
    (record,) = timings.flush()
    assert isinstance(record, StepTimes)
    assert totals(record) == {"backward": 300, "rest": 7}


def test_what_a_trial_does_in_a_thread_of_its_own_has_no_part() -> None:
    clock = Now()
    timings = Timings(Profiling(), 0, clock=HostClock(clock))
    context = Context(clock)
    with timings.timing_context(context):
        thread = Thread(target=context.to_device, args=("a batch ahead",))
        thread.start()
        thread.join()
    (record,) = timings.flush()
    assert isinstance(record, StepTimes)
    assert totals(record) == {"rest": 20}


def test_an_exchange_ends_with_its_backward_pass_also_where_that_has_no_timer() -> None:
    clock = Now()
    timings = Timings(Profiling(), 0, clock=HostClock(clock))

    def train_batch() -> None:
        clock.now += 3
        timings.end_own_backward()
        clock.now += 5
        timings.end_backward()
        clock.now += 7

    timings.timed("forward", train_batch)()
    (record,) = timings.flush()
    assert isinstance(record, StepTimes)
    assert totals(record) == {"forward": 10, "exchange": 5, "rest": 0}


@pytest.mark.parametrize(("is_exchanged", "exchange"), [(True, 50), (False, 0)])
def test_an_exchange_begins_when_the_gradients_of_this_rank_are_there(
    is_exchanged: bool, exchange: int
) -> None:
    clock = Now()
    timings = Timings(Profiling(), 0, clock=HostClock(clock))
    weights = [torch.ones(1, requires_grad=True) for _ in range(2)]

    def note(_: Any) -> None:
        clock.now += 3
        timings.within_backward()

    def compute() -> None:
        timings.begin_backward(is_exchanged)
        sum(weight.sum() for weight in weights).backward()  # type: ignore[union-attr]
        clock.now += 50
        timings.end_exchange()

    for weight in weights:
        weight.register_post_accumulate_grad_hook(note)
    backward = timings.timed("backward", compute)
    backward()
    clock.now += 7
    backward()
    (record,) = timings.flush()
    assert isinstance(record, StepTimes)
    found = {part: ns for part, ns in totals(record).items() if ns}
    both = {"backward": 2 * (56 - exchange), "exchange": 2 * exchange, "rest": 7}
    assert found == {part: ns for part, ns in both.items() if ns}


def test_a_context_has_no_timers_after_the_run() -> None:
    timings = Timings(Profiling(), 0)
    context = Context(Now())
    written: list[Any] = []
    with timings.journaling(context, SimpleNamespace(write=written.append), lambda: None):
        assert "backward" in vars(context)
    assert vars(context).keys() == {"clock"}
    assert len(written) == 1


def test_what_a_report_does_belongs_to_the_batch_before_it() -> None:
    record, *_ = rows(2, has_report=True)
    assert record.durations_ns["reduce_metrics"] == [None, 7]
    assert parse_line(to_line(record)) == record


def test_only_the_wanted_batches_have_raw_rows() -> None:
    records = rows(9, first=100, begin_on_batch=103, end_after_batch=106)
    assert [(record.first, len(record.records)) for record in records] == [
        (104, 1),
        (105, 2),
        (107, 1),
    ]
    assert {batch for record in records for batch in record.durations_ns["batch"]} == {678}


def test_there_are_no_raw_rows_before_the_first_wanted_batch() -> None:
    assert rows(4, begin_on_batch=4) == []


def test_timings_are_on_unless_they_are_turned_off() -> None:
    context = SimpleNamespace(
        distributed=DistributedContext(), profiler=ProfilerContext(), device=torch.device("cpu")
    )
    assert open_timings(Profiling(enabled=False), context, 0) is NO_TIMINGS
    assert open_timings(Profiling(), context, 0) is not NO_TIMINGS


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
    assert timing_columns(views) == {
        "batch_idx": [0, 1, 2, 3],
        "samples_per_second": [16e6, 16e6, 8e6, None],
        "batch": [2e-6, 1e-6, 4e-6, 0.0],
        "reduce_metrics": [None, None, 5e-7, None],
    }


def test_no_timings_are_no_columns() -> None:
    assert timing_columns([]) == {}
