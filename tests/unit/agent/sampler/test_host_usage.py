"""Values of the computer, and reasons for those that the system does not count."""

from __future__ import annotations

import sys
import time
from collections import namedtuple
from collections.abc import Callable
from io import BytesIO
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from det_jupyter.agent.sampler import host_usage
from det_jupyter.agent.sampler.host_usage import HostReader

DISKS = """\
   8  0 sda {0} 9 {1} 9 {2} 9 {3} 9 0 9 9
   8  1 sda1 7 7 7 7 7 7 7 7 7 7 7
 259  0 nvme0n1 10 9 20 9 30 9 40 9 0 9 9
 253  0 dm-0 {0} 9 {1} 9 {2} 9 {3} 9 0 9 9
"""
Card = namedtuple("Card", "bytes_sent bytes_recv")


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
            "the system does not report it: [Errno 13] Permission denied",
        ),
    }


def test_network_of_gangs_is_that_of_their_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = {"lo": Card(0, 0), "eth0": Card(0, 0), "ib0": Card(0, 0)}
    times = count(0.0)

    def of_network(*, pernic: bool, nowrap: bool) -> dict[str, Card]:
        assert (pernic, nowrap) == (True, False)
        return cards

    monkeypatch.setattr(psutil, "net_io_counters", of_network)
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
        ((100, 50, 10, 0, 0), (103, 51, 10, 0, 0), {"cpu_util_simple": 75.0}),
        ((100, 50, 10, 5, 1), (103, 51, 10, 8, 2), {"cpu_util_simple": 75.0}),  # within the first
        ((100, 50, 10, 0, 0), (100, 60, 9, 0, 0), {"cpu_util_simple": 0.0}),  # iowait went back
        ((100, 50, 10, 0, 0), (103, 50, 9, 0, 0), {"cpu_util_simple": 100.0}),
        ((100, 50, 10, 0, 0), (100, 50, 10, 0, 0), {}),
        # the computer slept, or a core was taken away
        ((100, 50, 10, 0, 0), (90, 50, 10, 0, 0), {}),
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
        guest = property(lambda self: self[3])
        guest_nice = property(lambda self: self[4])

    times = iter([Times(before), Times(after)])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(times))
    reader = HostReader()
    reader.read()
    assert {k: v for k, v in reader.read().values.items() if k == "cpu_util_simple"} == share


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_disks_and_networks_have_rates_from_the_second_reading_on(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    now, counts, sent = [5.0], (100, 200, 300, 400), 1000

    def of_network(*, pernic: bool, nowrap: bool) -> dict[str, Card]:
        assert (pernic, nowrap) == (True, False)
        return {"lo": Card(sent, sent), "eth0": Card(sent, 2 * sent), "ib0": Card(sent, 0)}

    def of_disks(*, nowrap: bool) -> SimpleNamespace | None:
        assert not nowrap
        reads, read, writes, written = counts
        return SimpleNamespace(
            read_count=reads, write_count=writes,
            read_bytes=512 * read, write_bytes=512 * written,
        )  # fmt: skip

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(host_usage, "_disks", lambda: {b"sda", b"nvme0n1"})
    monkeypatch.setattr(
        host_usage, "open", lambda *_: BytesIO(DISKS.format(*counts).encode()), raising=False
    )
    monkeypatch.setattr(psutil, "disk_io_counters", of_disks)
    monkeypatch.setattr(psutil, "net_io_counters", of_network)
    reader = HostReader()
    assert reader.read().values.keys() == {"memory_free"}
    now[0], counts, sent = 7.0, (110, 220, 330, 440), 3000
    values = reader.read().values
    assert values == values | {
        "disk_iops": 20.0, "disk_throughput_read": 5120.0, "disk_throughput_write": 10240.0,
        "net_throughput_sent": 2000.0, "net_throughput_recv": 2000.0,
    }  # fmt: skip
    monkeypatch.setattr(psutil, "disk_io_counters", lambda *, nowrap: None)
    monkeypatch.setattr(host_usage, "_disks", lambda: frozenset())
    assert reader.read().missing.keys() == {
        "disk_iops", "disk_throughput_read", "disk_throughput_write"
    }  # fmt: skip


def test_disks_are_devices_and_no_partitions_or_volumes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("sda/device", "nvme0n1/device", "dm-0", "loop0"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(host_usage, "Path", lambda _: tmp_path)
    assert host_usage._disks.__wrapped__() == {b"sda", b"nvme0n1"}


def _raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail
