"""A trial's own sections and counters: what they record, where, and what they refuse."""

from __future__ import annotations

import os
import pickle
import time
from threading import Thread
from typing import Any

import pytest

from det_jupyter.contract.run.journal import StepTimes, parse_line, to_line
from det_jupyter.core import ProfilerContext, RecordList
from det_jupyter.core.profiler import MAX_NAMES
from det_jupyter.core.timings.intervals import PERIOD_NS


def written(sink: RecordList) -> list[StepTimes]:
    assert all(parse_line(to_line(record)) == record for record in sink.records)
    return [record for record in sink.records if isinstance(record, StepTimes)]


def test_a_function_has_its_sections_and_counters_in_records_of_its_own() -> None:
    sink = RecordList()
    profiler = ProfilerContext(sink, lambda: 7)
    with profiler.section("outer"):
        for _ in range(3):
            with profiler.section("inner"):
                time.sleep(0.002)
            profiler.count("tokens", 512)
    profiler.flush()
    profiler.flush()
    (record,) = written(sink)
    assert (record.first, record.batches, record.counters) == (7, 0, {"tokens": 1536})
    inner, outer = record.parts["section.inner"], record.parts["section.outer"]
    assert (inner.num, outer.num) == (3, 1)
    assert 0.006 <= inner.total <= outer.total <= record.seconds
    assert record.parts["rest"].total == record.seconds


def test_a_function_writes_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5 * PERIOD_NS]
    monkeypatch.setattr("det_jupyter.core.profiler.perf_counter_ns", lambda: now[0])
    sink = RecordList()
    profiler = ProfilerContext(sink)
    for after_ns in (0, PERIOD_NS - 1, 1, PERIOD_NS - 1, 2):
        now[0] += after_ns
        profiler.count("steps")
    first, second = written(sink)
    assert (first.counters, first.seconds) == ({"steps": 3}, 1.0)
    assert (second.counters, second.seconds) == ({"steps": 2}, 1.000000001)


def test_a_section_that_raises_is_timed_and_the_error_goes_on() -> None:
    profiler = ProfilerContext(RecordList())
    with pytest.raises(ZeroDivisionError), profiler.section("augment"):
        1 / 0  # noqa: B018
    ((name, duration, *marks),) = profiler.take()[0]
    assert (name, marks) == ("augment", [0, 0])
    assert duration > 0


def test_threads_count_together() -> None:
    profiler = ProfilerContext()

    def work() -> None:
        for _ in range(1000):
            with profiler.section("work"):
                profiler.count("items", 2)

    with profiler.driven():
        threads = [Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        num, total = 0, 0.0
        while any(thread.is_alive() for thread in threads) or num < 4000:
            sections, counters = profiler.take()
            num += len(sections)
            total += counters.get("items", 0)
        for thread in threads:
            thread.join()
    assert (num, total + profiler.take()[1].get("items", 0)) == (4000, 8000)


def test_where_nothing_is_recorded_sections_do_nothing() -> None:
    profiler = ProfilerContext()
    with profiler.section("a"):
        profiler.count("b")
    assert profiler.take() == ([], {})
    with profiler.driven(is_on=False), profiler.section("a"):
        profiler.count("b")
    assert profiler.take() == ([], {})


def test_a_copy_in_another_process_records_nothing() -> None:
    profiler = ProfilerContext(RecordList())
    copy = pickle.loads(pickle.dumps(profiler))
    copy.count("items")
    assert copy.take() == ([], {})
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        with profiler.section("load"):
            profiler.count("items")
        os.write(write, bytes([len(profiler._sections) + len(profiler._counts)]))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 1) == b"\0"
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    ("name", "amount", "message"),
    [
        ("", 1, "profiler.count: got '' as name, expected 1 to 100 characters"),
        (3, 1, "profiler.count: got 3 as name"),
        (["a"], 1, r"profiler.count: got \['a'\] as name"),
        ("x" * 101, 1, "expected 1 to 100 characters"),
        ("tokens", "many", "profiler.count: tokens: got str 'many', expected a finite number"),
        ("tokens", float("nan"), "got float nan, expected a finite number"),
        ("tokens", True, "got bool True"),
    ],
)
def test_what_cannot_be_counted_is_refused(name: Any, amount: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProfilerContext().count(name, amount)


def test_names_are_not_without_end() -> None:
    profiler = ProfilerContext()
    for index in range(MAX_NAMES):
        profiler.section(f"step {index}")
    profiler.section("step 0")
    with pytest.raises(ValueError, match="one name more than the 64 that a trial can have"):
        profiler.section("step 64")
