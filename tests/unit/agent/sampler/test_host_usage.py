"""Values of the computer, and reasons for those that the system does not count."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import psutil
import pytest

from det_jupyter.agent.sampler import host_usage
from det_jupyter.agent.sampler.host_usage import HostReader


def test_what_the_system_does_not_count_is_missing_with_the_reason_and_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_usage, "_disk_counts", lambda: None)
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


def test_network_of_gangs_is_that_of_their_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    class Card(NamedTuple):
        bytes_sent: int
        bytes_recv: int

    cards = {"lo": Card(0, 0), "eth0": Card(0, 0), "ib0": Card(0, 0)}
    times = count(0.0)
    monkeypatch.setattr(psutil, "net_io_counters", lambda **_: cards)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    reader = HostReader()
    assert reader._gang_network(["eth0"]) == {}
    cards |= {"eth0": Card(500, 300), "ib0": Card(7, 7), "lo": Card(9, 9)}
    assert reader._gang_network(["eth0"]) == {"net_gang_sent": 500.0, "net_gang_recv": 300.0}
    assert reader._gang_network(["eth0", "ib0"]) == {}  # one of them is new
    reading = HostReader().read(["eth9"])
    assert reading.missing["net_gang_sent"] == "the system lists no network interface eth9"
    assert "net_gang_sent" not in HostReader().read().missing


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
