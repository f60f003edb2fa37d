"""Samples of the machine: rates of odd counters, what is missing and why, what waits."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.agent.sampler import box as box_module
from det_jupyter.agent.sampler import host, processes
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.agent.sampler.host import HostReader
from det_jupyter.agent.sampler.processes import SharedMemory
from det_jupyter.agent.sampler.rates import Rates

# rates


def rate(rates: Rates, count: int, now: float) -> float | None:
    return rates.of({"count": count}, now).get("count")


def test_a_rate_is_growth_over_time_and_begins_with_the_second_reading() -> None:
    rates = Rates()
    assert rate(rates, 1000, 50.0) is None
    assert rate(rates, 1000, 51.0) == 0
    assert rate(rates, 1500, 53.0) == 250


def test_a_counter_that_wraps_has_no_rate_once_and_then_goes_on() -> None:
    rates = Rates()
    found = [rate(rates, count, now) for now, count in enumerate([2**32 - 10, 5, 15, 25])]
    assert found == [None, None, 10, 10]


def test_readings_close_together_count_as_one() -> None:
    rates = Rates()
    rate(rates, 0, 10.0)
    assert rate(rates, 500, 10.001) is None
    assert rate(rates, 1000, 11.0) == 1000


@given(st.lists(st.tuples(st.integers(0, 2**64), st.floats(-1e6, 1e6)), max_size=30))
def test_no_rate_is_negative_or_above_what_was_counted(readings: list[tuple[int, float]]) -> None:
    rates = Rates()
    for count, now in readings:
        found = rate(rates, count, now)
        assert found is None or 0 <= found <= 100 * count


# the computer


def test_what_the_system_does_not_count_is_missing_with_the_reason_and_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "_disk_counts", lambda: None)
    monkeypatch.setattr(psutil, "net_io_counters", _raising(OSError(13, "Permission denied")))
    reading = HostReader().read()
    assert set(reading.values) == {"memory_free"}  # the CPU's share begins with the second
    assert reading.missing == {
        **dict.fromkeys(
            ["disk_iops", "disk_throughput_read", "disk_throughput_write"],
            "the system counts no disk operations here, as in many containers",
        ),
        **dict.fromkeys(
            ["net_throughput_sent", "net_throughput_recv"],
            "the system does not say: [Errno 13] Permission denied",
        ),
    }


def test_a_computer_with_loopback_alone_has_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "net_io_counters", lambda **_: {"lo": None})
    reason = HostReader().read().missing["net_throughput_sent"]
    assert reason == "the system lists no network interface but loopback"


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ((100, 50, 10), (103, 51, 10), {"cpu_util_simple": 75.0}),
        ((100, 50, 10), (100, 60, 9), {"cpu_util_simple": 0.0}),  # iowait went back
        ((100, 50, 10), (100, 50, 10), {}),
        ((100, 50, 10), (90, 50, 10), {}),  # the computer slept, or a core was taken away
    ],
)
def test_the_cpu_s_share_stays_between_0_and_100(
    monkeypatch: pytest.MonkeyPatch,
    before: tuple[int, ...],
    after: tuple[int, ...],
    share: dict[str, float],
) -> None:
    class Times(tuple[float, ...]):
        idle = property(lambda self: self[1])
        iowait = property(lambda self: self[2])

    times = iter([Times(before), Times(after)])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(times))
    reader = HostReader()
    reader.read()
    assert {k: v for k, v in reader.read().values.items() if k == "cpu_util_simple"} == share


def _raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


# shared memory


def test_pss_is_read_process_by_process_and_told_when_its_source_is_complete() -> None:
    memory = SharedMemory(read=lambda pid: pid, cpu_time=lambda: 0.0)
    members = {"rank:a:0": [1], "workers:a:0": [10, 20], "workers:a:1": []}
    steps = [memory.step(members, float(now)) for now in range(8)]
    assert steps == [{"rank:a:0": 1}, {}, {"workers:a:0": 30}, {}, {}, {}, {}, {}]
    assert memory.step(members, 10.0) == {"rank:a:0": 1}


def test_pss_that_takes_long_is_read_rarely() -> None:
    spent = [0.0]

    def read(pid: int) -> int:
        spent[0] += 0.05
        return 1

    memory = SharedMemory(read=read, cpu_time=lambda: spent[0])
    for now in range(1000):
        memory.step({"rank:a:0": [1]}, float(now))
    assert 0.05 < spent[0] <= 0.0005 * 1000 + 0.05


@pytest.mark.parametrize(
    ("error", "problems"),
    [
        (psutil.AccessDenied(1), {"rank:a:0": processes.NO_PERMISSION}),
        (psutil.NoSuchProcess(1), {}),
        (AttributeError("pss"), {"rank:a:0": processes.NO_PSS}),
    ],
)
def test_pss_that_cannot_be_read_has_a_reason(error: Exception, problems: dict[str, str]) -> None:
    memory = SharedMemory(read=_raising(error), cpu_time=lambda: 0.0)
    assert memory.step({"rank:a:0": [os.getpid()]}, 1.0) == {}
    assert memory.problems == problems


# what waits to be sent


def test_samples_are_sent_once_at_most_once_a_second_and_without_digits_of_noise() -> None:
    box = SampleBox(clock=iter([5.0, 6.0]).__next__)
    assert not box.is_due(100.0)
    box.put({"host": {"cpu_util_simple": 12.3456}, "gpu:a": {}})
    assert box.is_due(100.0)
    report = box.take(100.0)
    assert [(s.at, s.values) for s in report.samples] == [
        (5.0, {"host": {"cpu_util_simple": 12.35}})
    ]
    box.put({"host": {"cpu_util_simple": 1.0}})
    assert not box.is_due(100.9)
    assert [sample.at for sample in box.take(101.0).samples] == [6.0]
    assert not box.is_due(200.0)


def test_without_a_master_the_oldest_samples_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_module, "MAX_VALUES", 10)
    monkeypatch.setattr(box_module, "REPORT_VALUES", 6)
    box = SampleBox(clock=map(float, range(1000)).__next__)
    for _ in range(1000):
        box.put({"host": {"memory_free": 1.0, "cpu_util_simple": 2.0}})
    first = box.take(0.0)
    assert box.is_due(0.0)  # the rest follows at once
    samples = first.samples + box.take(0.0).samples
    assert [sample.at for sample in samples] == [995, 996, 997, 998, 999]


def test_a_reason_is_sent_when_it_is_new_and_all_to_a_new_master() -> None:
    box = SampleBox()
    box.note_missing("host", {"disk_iops": "a container"})
    box.note_missing("rank:1.1.1:0", {"gpu_memory": "no GPU"})
    assert box.take(0.0).missing == {
        "host": {"disk_iops": "a container"},
        "rank:1.1.1:0": {"gpu_memory": "no GPU"},
    }
    box.note_missing("host", {"disk_iops": "a container"})
    assert not box.is_due(100.0)
    box.note_missing("host", {"disk_iops": "no permission"})
    assert box.take(100.0).missing == {"host": {"disk_iops": "no permission"}}
    box.forget({"rank:1.1.1:0"})
    box.reconnected()
    assert box.take(200.0).missing == {"host": {"disk_iops": "no permission"}}
    box.note_missing("host", {})
    box.reconnected()
    assert not box.is_due(300.0)
