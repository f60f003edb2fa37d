"""Artificial series, as the kernel would answer them: timings of ranks, and samples of agents."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any

from det_jupyter.contract.messages import Series, SeriesPage
from det_jupyter.contract.values.measures import GPU, HOST, PARTS, PROCESS, Measure
from tests.unit.view.view_samples import CREATED_AT

PER_BATCH = {
    "dataloader_next": 0.0008, "to_device": 0.0011, "forward": 0.0083, "backward": 0.0152,
    "exchange_wait": 0.0009, "exchange_transfer": 0.0034, "optimizer": 0.0021,
    "step_lr_schedulers": 0.0001, "from_device": 0.0002, "average_training_metrics": 0.0003,
    "checkpoint": 0.0004, "validation": 0.0016, "rest": 0.0006,
}  # fmt: skip
LEVELS = {
    "cpu_util_simple": 46.0, "memory_free": 412e9, "disk_iops": 1800.0,
    "disk_throughput_read": 640e6, "disk_throughput_write": 12e6, "net_throughput_sent": 1.4e6,
    "net_throughput_recv": 2.2e6, "net_gang_sent": 0.9e6,
    "net_gang_recv": 1.1e6, "gpu_util": 91.0, "gpu_free_memory": 21e9, "gpu_power": 512.0,
    "gpu_temperature": 61.0, "gpu_clock": 1755.0, "pcie_sent": 310e6, "pcie_received": 2.1e9,
    "nvlink_sent": 41e9, "nvlink_received": 41e9, "cpu_util": 118.0, "memory_rss": 6.2e9,
    "memory_pss": 3.1e9, "gpu_memory": 58e9, "disk_read": 80e6, "disk_write": 1.5e6,
    "num_threads": 61.0, "num_processes": 1.0,
}  # fmt: skip

Course = Callable[[float], float]


def timings(num_ranks: int, num: int, *, slow_rank: int | None = None) -> SeriesPage:
    """Return timings of ranks; after a third of the time, one rank waits for its data."""
    series = [
        _series(f"rank:{rank}", name, PARTS[name], num, _part(name, rank, slow_rank))
        for rank in range(num_ranks)
        for name in PER_BATCH
    ]
    for rank in range(num_ranks):
        source = f"rank:{rank}"
        augment = Measure("augment", "s")
        series += [
            _series(source, "section.augment", augment, num, lambda t: 0.0005 + 0.0002 * t),
            _series(source, "counter.tokens", Measure("tokens"), num, lambda t: 4096.0),
            _series(
                source, "samples_per_second", Measure("records per second, all ranks", "1/s"), num,
                lambda t: 7400.0 if slow_rank is None or t < 1 / 3 else 4100.0,
            ),
        ]  # fmt: skip
    return SeriesPage(series=series, began_at=CREATED_AT)


def _part(name: str, rank: int, slow_rank: int | None) -> Course:
    def course(t: float) -> float:
        value = PER_BATCH[name]
        is_slow = slow_rank is not None and t > 1 / 3
        if is_slow and name == ("dataloader_next" if rank == slow_rank else "exchange_wait"):
            value += 0.021
        return value

    return course


def summary(page: SeriesPage, *, with_percentiles: bool) -> SeriesPage:
    """Return the page reduced to one column, as it is requested for tables."""
    series = []
    for one in page.series:
        mean = sum(one.mid) / len(one.mid)
        statistics = {"": mean, ".p50": mean * 0.96, ".p95": mean * 1.4, ".max": mean * 5.2}
        for suffix, value in statistics.items():
            if not suffix or with_percentiles:
                new = {"name": one.name + suffix, "x": one.x[:1]}
                numbers = {key: [value] for key in ("low", "mid", "high")}
                series.append(one.model_copy(update=new | numbers))
    return page.model_copy(update={"series": series})


def system(num_gpus: int, num: int, *, missing: str = "") -> SeriesPage:
    """Return samples of a computer, its GPUs, and a rank on each GPU."""
    gpus = [f"gpu:GPU-{i:08x}" for i in range(num_gpus)]
    series = [_series("host", name, measure, num, _level(name)) for name, measure in HOST.items()]
    for gpu in gpus:
        for name in (name for name in GPU if name in LEVELS):
            if missing and name in ("gpu_power", "nvlink_sent", "nvlink_received"):
                series.append(_nothing(gpu, name, GPU[name], missing))
            else:
                series.append(_series(gpu, name, GPU[name], num, _level(name)))
    for rank in range(max(1, num_gpus)):
        for kind in ("rank", "workers"):
            for name in ("cpu_util", "memory_pss", "disk_read"):
                series.append(_series(f"{kind}:{rank}", name, PROCESS[name], num, _level(name)))
    return SeriesPage(series=series, began_at=CREATED_AT)


def nothing_measured(reason: str) -> SeriesPage:
    """Return a page of a computer without GPUs."""
    page = system(0, 200)
    page.series.extend(_nothing("gpu", name, measure, reason) for name, measure in GPU.items())
    return page


def _level(name: str) -> Course:
    phase = random.Random(name).random() * 6
    return lambda t: LEVELS[name] * (0.9 + 0.1 * math.sin(9 * t + phase))


def _nothing(source: str, name: str, measure: Measure, reason: str) -> Series:
    return Series(source=source, name=name, title=measure.title, unit=measure.unit, missing=reason)


def _series(source: str, name: str, measure: Measure, num: int, course: Course) -> Series:
    noise = random.Random(f"{source} {name}")
    mid = [course(i / num) * noise.uniform(0.93, 1.07) for i in range(num)]
    return Series(
        source=source,
        name=name,
        title=measure.title,
        unit=measure.unit,
        x=[CREATED_AT + 2.0 * i for i in range(num)],
        low=[float(f"{value * noise.uniform(0.8, 1):.6g}") for value in mid],
        mid=[float(f"{value:.6g}") for value in mid],
        high=[float(f"{value * noise.uniform(1, 1.25):.6g}") for value in mid],
    )


def answers(pages: Iterable[SeriesPage]) -> dict[str, Any]:
    """Return the answers of the gallery's page, by the kind of question (gallery.py)."""
    timed, sampled = pages
    return {
        "timings": timed.model_dump(),
        "timings.ranks": summary(timed, with_percentiles=False).model_dump(),
        "timings.parts": summary(timed, with_percentiles=True).model_dump(),
        "system": sampled.model_dump(),
    }
