"""The computer as a whole: CPU, memory, disks, network."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from det_jupyter.agent.sampler.rates import Rates, Reading, Values

_LOOPBACK = ("lo", "lo0")
_NO_DISKS = "the system counts no disk operations here, as in many containers"
_NO_NETWORK = "the system lists no network interface but loopback"
_DISK = ("disk_iops", "disk_throughput_read", "disk_throughput_write")
_NETWORK = ("net_throughput_sent", "net_throughput_recv")


class NotCounted(Exception):
    """The system does not count this; the message is for users."""


class HostReader:
    """Reads the computer's use by psutil."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._times: list[float] | None = None  # of the CPUs, all before idle ones

    def read(self) -> Reading:
        """Return what was measured since the last call; rates have none at the first."""
        reading = Reading()
        groups: list[tuple[tuple[str, ...], Callable[[], Values]]] = [
            (("cpu_util_simple",), self._cpu),
            (("memory_free",), _memory),
            (_DISK, self._disk),
            (_NETWORK, self._network),
        ]
        for names, read in groups:
            try:
                reading.values |= read()
            except NotCounted as error:
                reading.missing |= dict.fromkeys(names, str(error))
            except (OSError, psutil.Error, RuntimeError, NotImplementedError) as error:
                reading.missing |= dict.fromkeys(names, f"the system does not say: {error}")
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
        counts = psutil.disk_io_counters(nowrap=False)
        if counts is None:
            raise NotCounted(_NO_DISKS)
        numbers = (counts.read_count + counts.write_count, counts.read_bytes, counts.write_bytes)
        return self._rates.of_all(dict(zip(_DISK, numbers, strict=True)), time.monotonic())

    def _network(self) -> Values:
        cards = psutil.net_io_counters(pernic=True, nowrap=False)
        real = [card for name, card in cards.items() if name not in _LOOPBACK]
        if not real:
            raise NotCounted(_NO_NETWORK)
        numbers = (sum(card.bytes_sent for card in real), sum(card.bytes_recv for card in real))
        return self._rates.of_all(dict(zip(_NETWORK, numbers, strict=True)), time.monotonic())


def _memory() -> Values:
    return {"memory_free": float(psutil.virtual_memory().available)}
