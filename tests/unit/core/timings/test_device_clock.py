"""Timings of a GPU, played by a stream that lags behind its host: read later, never waited for."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy
import pytest

from det_jupyter.config.sections import Profiling
from det_jupyter.contract.run.journal import BatchTimings, StepTimes
from det_jupyter.core import ProfilerContext
from det_jupyter.core.timings import arrivals
from det_jupyter.core.timings.arrivals import RING, Arrivals
from det_jupyter.core.timings.clocks import DeviceClock
from det_jupyter.core.timings.intervals import UNKNOWN
from det_jupyter.core.timings.rank_timings import Timings

MS = 1_000_000


class Device:
    """A host's clock, and a stream that works on what it is given, in order."""

    def __init__(self) -> None:
        self.now = 5 * MS
        self.free_at = 0
        self.made = 0
        self.waits = 0
        self.captures = False  # its stream, for a CUDA graph

    def host(self, ms: float) -> None:
        self.now += int(ms * MS)

    def work(self, ms: float) -> None:
        self.free_at = max(self.free_at, self.now) + int(ms * MS)

    def synchronize(self) -> None:
        self.waits += 1
        self.now = max(self.now, self.free_at)

    def make_event(self) -> Event:
        self.made += 1
        return Event(self)

    def clock(self) -> DeviceClock:
        return DeviceClock(
            self.make_event, self.synchronize, lambda: self.now, is_capturing=lambda: self.captures
        )


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device

    def record(self) -> None:
        assert not self.device.captures
        self.at = max(self.device.free_at, self.device.now)

    def query(self) -> bool:
        assert not self.device.captures
        return self.at <= self.device.now

    def elapsed_time(self, other: Event) -> float:
        assert self.query()
        assert other.query()
        return (other.at - self.at) / MS


class Run:
    """Trains batches: the host is quick, or the device is."""

    def __init__(self, device: Device, **options: Any) -> None:
        self.device = device
        profiling = options.pop("profiling", Profiling())
        self.timings = Timings(profiling, 0, clock=device.clock(), **options)
        self.forward = self.timings.timed("forward", device.work)
        self.backward = self.timings.timed("backward", device.work)
        self.read = self.timings.timed("from_device", device.synchronize)

    def train(self, num: int, *, loads_ms: float, works_ms: float) -> None:
        def loaded() -> Any:
            for index in range(num):
                self.device.host(loads_ms)
                yield index

        for _ in self.timings.timed_batches(loaded()):
            self.forward(works_ms)
            self.backward(2 * works_ms)
            self.device.host(0.1)
            self.timings.end_batch(8)

    def flush(self) -> list[StepTimes | BatchTimings]:
        """Read metrics off the device, as a flush does, which waits for it."""
        self.read()
        return self.timings.flush()

    def end(self) -> list[StepTimes | BatchTimings]:
        return [*self.flush(), *self.timings._reader.take_pending()]


def shares(record: StepTimes | BatchTimings) -> dict[str, float]:
    assert isinstance(record, StepTimes)
    assert sum(part.total for part in record.parts.values()) == pytest.approx(record.seconds)
    return {name: round(part.total * 1e3, 2) for name, part in record.parts.items()}


def test_a_busy_device_does_not_wait_for_data_that_is_loaded_meanwhile() -> None:
    device = Device()
    run = Run(device)
    run.train(10, loads_ms=1.0, works_ms=5.0)
    (record,) = run.end()
    parts = shares(record)
    assert parts["forward"] == 50.0
    assert parts["backward"] == 100.0
    assert parts["dataloader_next"] == 1.0, "the first batch: there was nothing to do before"
    assert parts["from_device"] == 0.0, "what the host waits for is the work before"


def test_an_idle_device_waits_for_data() -> None:
    device = Device()
    run = Run(device)
    run.train(10, loads_ms=6.0, works_ms=1.0)
    (record,) = run.end()
    parts = shares(record)
    assert parts["forward"] == 10.0
    assert parts["backward"] == 20.0
    assert parts["dataloader_next"] == pytest.approx(6 + 9 * 3.1, abs=0.2)


def test_nothing_waits_for_the_device_and_events_are_used_again() -> None:
    device = Device()
    run = Run(device)
    run.train(10, loads_ms=1.0, works_ms=5.0)
    run.timings.flush()
    assert device.waits == 0
    for _ in range(5):
        run.flush()
        run.train(10, loads_ms=1.0, works_ms=5.0)
    assert device.made < 250


def test_what_is_not_done_yet_is_read_at_the_next_flush() -> None:
    device = Device()
    run = Run(device)
    run.train(4, loads_ms=1.0, works_ms=5.0)
    device.host(40)
    found = run.timings.flush() + run.end()
    batches = [record.batches for record in found if isinstance(record, StepTimes)]
    assert sum(batches) == 4
    assert 0 < batches[0] < 4
    assert sum(shares(record)["forward"] for record in found) == 20.0


def test_what_is_done_of_a_long_validation_is_read_though_the_rest_is_not() -> None:
    device = Device()
    run = Run(device)
    validate = run.timings.timed("validation", device.work)
    for _ in run.timings.timed_batches(iter([0])):
        run.forward(5)
        run.timings.end_batch(8)
        for _ in range(3):
            validate(10)
        device.host(26)
        assert run.timings.flush() == []  # it is pending until the next
        first, *_ = run.end()
        assert isinstance(first, StepTimes)
        assert (first.batches, shares(first)["forward"]) == (1, 5.0)
        assert shares(first)["validation"] == 20.0


def test_raw_rows_wait_for_the_device_in_their_window_only() -> None:
    device = Device()
    window = Profiling(enabled=True, begin_on_batch=2, end_after_batch=3)
    run = Run(device, profiling=window, has_rows=True)
    run.train(6, loads_ms=1.0, works_ms=5.0)
    assert device.waits == 2 * 7  # marks of a batch: next, loaded, two of each part, the end
    rows = [record for record in run.end() if isinstance(record, BatchTimings)]
    assert [len(record.records) for record in rows] == [2]
    assert rows[0].first == 3
    assert rows[0].durations_ns["train_batch.backward"] == [10 * MS, 10 * MS]
    assert rows[0].durations_ns["dataloader_next"] == [1 * MS, 1 * MS]


def test_raw_rows_that_wait_for_nothing_have_the_times_of_the_device() -> None:
    device = Device()
    profiling = Profiling(enabled=True, sync_timings=False)
    run = Run(device, profiling=profiling, has_rows=True)
    run.train(3, loads_ms=1.0, works_ms=5.0)
    assert device.waits == 0
    rows = [record for record in run.end() if isinstance(record, BatchTimings)]
    assert rows[0].durations_ns["train_batch.backward"] == [10 * MS] * 3


def test_a_stream_that_is_captured_has_no_events_and_none_is_queried() -> None:
    device = Device()
    run = Run(device)
    run.train(2, loads_ms=1.0, works_ms=5.0)
    device.captures = True
    run.train(1, loads_ms=1.0, works_ms=0.0)
    assert run.flush() == []
    device.captures = False
    run.train(1, loads_ms=1.0, works_ms=5.0)
    (record,) = run.end()
    assert isinstance(record, StepTimes)
    assert record.batches == 4
    assert shares(record)["forward"] == 15.0


def test_a_section_lasts_as_long_as_the_device_works_on_it() -> None:
    device = Device()
    profiler = ProfilerContext()
    run = Run(device, profiler=profiler)
    with profiler.driven(mark=run.timings._now):
        device.work(50)
        with profiler.section("attention"):
            device.work(30)
        for record in run.end():
            assert shares_of_sections(record) == {"section.attention": 30.0}


def shares_of_sections(record: Any) -> dict[str, float]:
    return {
        name: round(part.total * 1e3, 0)
        for name, part in record.parts.items()
        if name.startswith("section.")
    }


def test_without_room_for_a_page_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write to a mapped file that has no room left would kill the rank by SIGBUS."""
    monkeypatch.setattr(arrivals, "_MEMORY", str(tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert arrivals._create(2) == ""
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    page = Path(arrivals._create(2))
    assert page.stat().st_size == 8 * RING * 2
    assert page.stat().st_blocks * 512 >= 8 * RING * 2


def pages(path: Path, size: int) -> list[Arrivals]:
    with path.open("w+b") as file:
        file.truncate(8 * RING * size)
        return [Arrivals(file.fileno(), rank, size, base=0) for rank in range(size)]


def test_ranks_know_of_each_other_one_flush_later(tmp_path: Path) -> None:
    devices = [Device(), Device()]
    runs = [
        Run(device, arrivals=page)
        for device, page in zip(devices, pages(tmp_path / "page", 2), strict=True)
    ]
    for run, device, ms in zip(runs, devices, (1.0, 9.0), strict=True):

        def finish(device: Device = device) -> None:
            device.free_at = (5 + 9 + 3) * MS  # the last one's work, and the transfer

        device.work(ms)
        run.timings.timed_exchange(finish)()
    assert [run.flush() for run in runs] == [[], []]
    fast, slow = (shares(run.timings._reader.take_pending()[0]) for run in runs)
    assert (fast["exchange_wait"], fast["exchange_transfer"]) == (8.0, 3.0)
    assert (slow["exchange_wait"], slow["exchange_transfer"]) == (0.0, 3.0)


def test_arrivals_that_are_not_there_or_of_another_lap_are_unknown(tmp_path: Path) -> None:
    first, second = pages(tmp_path / "page", 2)
    exchanges = numpy.array([3, 4])
    first.write(3, 100)
    first.write(4, 110)
    second.write(3, 130)
    assert first.last(exchanges).tolist() == [130, UNKNOWN]
    second.write(4, 90)
    assert second.last(exchanges).tolist() == [130, 110]
    second.write(3 + (1 << 15), 500)
    assert first.last(exchanges).tolist() == [UNKNOWN, 110]
