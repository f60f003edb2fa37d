"""Timings on a real GPU: parts are times of the device, and nothing waits for it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch

from det_jupyter.config.sections import Profiling
from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.core import DistributedContext, ProfilerContext
from det_jupyter.core.timings.rank_timings import Timings, open_timings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
BATCHES = 20


def train(loads_s: float, products: int) -> tuple[StepTimes, float]:
    """Return the timings of a loop, and the seconds it took by the host's clock."""
    context = SimpleNamespace(
        device=torch.device("cuda:0"),
        distributed=DistributedContext(),
        profiler=ProfilerContext(),
    )
    timings = open_timings(Profiling(), context, 0)
    assert isinstance(timings, Timings)
    matrix = torch.randn(2048, 2048, device="cuda:0")

    def load(index: int) -> int:
        time.sleep(loads_s)
        return index

    def work() -> None:
        for _ in range(products):
            matrix @ matrix

    work()
    torch.cuda.synchronize()
    timings.start()
    began_at = time.perf_counter()
    forward = timings.timed("forward", work)
    read = timings.timed("from_device", lambda: matrix.sum().item())

    for _ in timings.timed_batches(map(load, range(BATCHES))):
        forward()
        timings.end_batch(1)
    read()
    took_s = time.perf_counter() - began_at
    timings.flush()
    (record,) = timings._reader.take_pending()
    assert isinstance(record, StepTimes)
    return record, took_s


def test_a_busy_device_does_not_wait_for_data() -> None:
    record, took_s = train(loads_s=0.0, products=50)
    assert record.batches == BATCHES
    assert record.parts["forward"].total > 0.8 * record.seconds
    assert record.seconds == pytest.approx(took_s, rel=0.2)


def test_an_idle_device_waits_for_data() -> None:
    record, took_s = train(loads_s=0.02, products=1)
    assert record.parts["dataloader_next"].total == pytest.approx(BATCHES * 0.02, rel=0.2)
    assert record.seconds == pytest.approx(took_s, rel=0.2)
