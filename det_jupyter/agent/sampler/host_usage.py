"""Reads the use of the whole computer: CPU, memory, disks, network."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from functools import cache, partial
from pathlib import Path

import psutil

from det_jupyter.agent.sampler.readings import Rates, Reading, Values

_SECTOR_BYTES = 512  # unit of /proc/diskstats, independent of the disk
_LOOPBACK = ("lo", "lo0")
_NO_DISKS = "the system counts no disk operations here, as in many containers"
_NO_NETWORK = "the system lists no network interface but loopback"
_DISK = ("disk_iops", "disk_throughput_read", "disk_throughput_write")
_NETWORK = ("net_throughput_sent", "net_throughput_recv")
_GANG_NETWORK = ("net_gang_sent", "net_gang_recv")


class NotCounted(Exception):
    """The system does not count this; the message is shown to users."""


class HostReader:
    """Reads the use of the computer since the last reading."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._times: list[float] | None = None  # CPU seconds: all, idle

    def read(self, interfaces: Collection[str] = ()) -> Reading:
        """Return the values since the last call; the first call returns no rates.

        Args:
            interfaces: The interfaces over which gangs reach other computers.
        """
        reading = Reading()
        groups: list[tuple[tuple[str, ...], Callable[[], Values]]] = [
            (("cpu_util_simple",), self._cpu),
            (("memory_free",), _memory),
            (_DISK, self._disk),
            (_NETWORK, self._network),
        ]
        if interfaces:
            groups.append((_GANG_NETWORK, partial(self._gang_network, interfaces)))
        for names, read in groups:
            try:
                reading.values |= read()
            except NotCounted as error:
                reading.missing |= dict.fromkeys(names, str(error))
            except (OSError, psutil.Error, RuntimeError, NotImplementedError) as error:
                reading.missing |= dict.fromkeys(names, f"the system does not report it: {error}")
        return reading

    def _cpu(self) -> Values:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # `guest` and `guest_nice` are within `user` and `nice`.
        whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        before, self._times = self._times, [whole, idle]
        if before is None or whole <= before[0]:
            return {}
        share = 1 - (idle - before[1]) / (whole - before[0])
        return {"cpu_util_simple": 100 * min(1.0, max(0.0, share))}  # iowait may go back

    def _disk(self) -> Values:
        numbers = _disk_counts() if sys.platform == "linux" else _other_disk_counts()
        if numbers is None:
            raise NotCounted(_NO_DISKS)
        return self._rates.of(dict(zip(_DISK, numbers, strict=True)), time.monotonic())

    def _network(self) -> Values:
        cards = psutil.net_io_counters(pernic=True, nowrap=False)
        real = [card for name, card in cards.items() if name not in _LOOPBACK]
        if not real:
            raise NotCounted(_NO_NETWORK)
        numbers = (sum(card.bytes_sent for card in real), sum(card.bytes_recv for card in real))
        return self._rates.of(dict(zip(_NETWORK, numbers, strict=True)), time.monotonic())

    def _gang_network(self, interfaces: Collection[str]) -> Values:
        cards = psutil.net_io_counters(pernic=True, nowrap=False)
        if missing := sorted(set(interfaces) - cards.keys()):
            raise NotCounted(f"the system lists no network interface {', '.join(missing)}")
        counts = {name: (cards[name].bytes_sent, cards[name].bytes_recv) for name in interfaces}
        rates = self._rates.of(
            {f"{name} {way}": pair[way] for name, pair in counts.items() for way in (0, 1)},
            time.monotonic(),
        )
        sums = {}
        for way, measure in enumerate(_GANG_NETWORK):
            found = [rates.get(f"{name} {way}") for name in interfaces]
            if None not in found:  # a counter began anew, or the interface is new
                sums[measure] = sum(filter(None, found), 0.0)
        return sums


def _disk_counts() -> tuple[float, float, float] | None:
    """Return operations, bytes read and bytes written of all disks; None without disks.

    Partitions, LVM, RAID and loop devices are left out, because the disks count the same
    operations. psutil counts LVM and RAID too, and takes ten times as long.
    """
    disks = _disks()
    if not disks:
        return None
    with open("/proc/diskstats", "rb") as file:
        lines = [words for words in map(bytes.split, file) if words[2] in disks]
    reads, read, writes, written = (sum(int(ws[i]) for ws in lines) for i in (3, 5, 7, 9))
    return reads + writes, read * _SECTOR_BYTES, written * _SECTOR_BYTES


@cache
def _disks() -> frozenset[bytes]:
    folder = Path("/sys/block")
    return frozenset(disk.name.encode() for disk in folder.glob("*") if (disk / "device").exists())


def _other_disk_counts() -> tuple[float, float, float] | None:
    counts = psutil.disk_io_counters(nowrap=False)
    if counts is None:
        return None
    return counts.read_count + counts.write_count, counts.read_bytes, counts.write_bytes


def _memory() -> Values:
    return {"memory_free": float(psutil.virtual_memory().available)}
