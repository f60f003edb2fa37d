"""Names, titles and units of what is measured while a trial trains.

system metrics    HOST, GPU (one each), PROCESS (one for each rank and one for its workers)
timings           PARTS: each second of a rank's time belongs to exactly one
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["%", "bytes", "bytes/s", "1/s", "W", "°C", "MHz", "s", ""]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measured quantity."""

    title: str
    unit: Unit = ""


HOST = {
    "cpu_util_simple": Measure("CPU, mean over cores", "%"),
    "memory_free": Measure("memory available", "bytes"),
    "disk_iops": Measure("disk operations", "1/s"),
    "disk_throughput_read": Measure("disk read", "bytes/s"),
    "disk_throughput_write": Measure("disk written", "bytes/s"),
    "net_throughput_sent": Measure("network sent", "bytes/s"),
    "net_throughput_recv": Measure("network received", "bytes/s"),
    # Of the interfaces over which a trial's ranks here reach those of other computers.
    "net_gang_sent": Measure("trial's network, sent", "bytes/s"),
    "net_gang_recv": Measure("trial's network, received", "bytes/s"),
}
GPU = {
    "gpu_util": Measure("GPU utilization", "%"),
    "gpu_free_memory": Measure("GPU memory free", "bytes"),
    "gpu_power": Measure("GPU power", "W"),
    "gpu_temperature": Measure("GPU temperature", "°C"),
    "gpu_clock": Measure("GPU clock", "MHz"),
    # 1 while the clock is lowered for this reason, else 0: the mean is a share of the time.
    "gpu_throttled_power": Measure("clock lowered: power limit"),
    "gpu_throttled_thermal": Measure("clock lowered: temperature"),
    "gpu_throttled_hardware": Measure("clock lowered: hardware"),
    "pcie_sent": Measure("PCIe sent", "bytes/s"),
    "pcie_received": Measure("PCIe received", "bytes/s"),
    "nvlink_sent": Measure("NVLink sent", "bytes/s"),
    "nvlink_received": Measure("NVLink received", "bytes/s"),
}
PROCESS = {
    "cpu_util": Measure("CPU, 100 is one core", "%"),
    # Share of the time; of ranks only.
    "cpu_wait": Measure("training thread waits for a core", "%"),
    "memory_rss": Measure("memory, shared pages whole", "bytes"),
    "memory_pss": Measure("memory, shared pages in shares", "bytes"),
    "gpu_memory": Measure("GPU memory", "bytes"),
    "disk_read": Measure("disk read", "bytes/s"),
    "disk_write": Measure("disk written", "bytes/s"),
    "num_threads": Measure("threads"),
    "num_processes": Measure("processes"),
}
SYSTEM = HOST | GPU | PROCESS
MIN_SAMPLING_INTERVAL_S, MAX_SAMPLING_INTERVAL_S = 0.1, 3600

PARTS = {
    "dataloader_next": Measure("waiting for data", "s"),
    "to_device": Measure("moving data to the device", "s"),
    "forward": Measure("forward, with the loss", "s"),
    "backward": Measure("backward", "s"),
    "exchange_wait": Measure("waiting for other ranks", "s"),
    "exchange_transfer": Measure("exchanging gradients", "s"),
    # The sum of both, where they cannot be measured separately (ranks on several machines).
    "exchange": Measure("exchanging gradients, or waiting for other ranks", "s"),
    "optimizer": Measure("optimizer", "s"),
    "step_lr_schedulers": Measure("learning rate schedulers", "s"),
    "from_device": Measure("reading metrics from the device", "s"),
    "average_training_metrics": Measure("averaging metrics over ranks", "s"),
    "reduce_metrics": Measure("custom reducers", "s"),
    "checkpoint": Measure("checkpoint", "s"),
    "validation": Measure("validation", "s"),
    "callbacks": Measure("callbacks", "s"),
    "rest": Measure("the rest", "s"),
}
WHOLE = "batch"  # from the end of one batch to the end of the next; the sum of the parts
RATE = "samples_per_second"  # records per second, of all ranks together
SECTION = "section."  # prefix of a section that the user times, which overlaps with the parts
COUNTER = "counter."  # prefix of a user's counter
# Of the single durations of a part in an interval: `forward.p95`.
STATISTICS = {"p50": "median", "p95": "95th percentile", "max": "longest"}
_NAMED = (
    SYSTEM
    | PARTS
    | {
        WHOLE: Measure("a batch, from end to end", "s"),
        RATE: Measure("records per second, all ranks", "1/s"),
    }
)


def measure_of(name: str) -> Measure:
    """Return title and unit of a name."""
    if name.startswith(SECTION):
        return Measure(name.removeprefix(SECTION), "s")
    return _NAMED.get(name, Measure(name.removeprefix(COUNTER)))
