"""The size of buckets: which sizes are tried, for how long, and which one is chosen."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch.parallel import DistributedModel
from det_jupyter.pytorch.parallel.tuning import MEASURED, ROUNDS, UNMEASURED, BucketTuner


class FakeModel(DistributedModel):
    """A model of 4 MB that records the sizes of its buckets, without other ranks."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.zeros(1 << 20))
        self.sizes: list[float | None] = []

    def set_bucket_size(self, bucket_mb: float | None) -> None:
        self.sizes.append(bucket_mb)


class Clock:
    """A clock that only `train` advances: by the time of a batch at the present size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, milliseconds: dict[float, int]) -> None:
        self.now = 0.0
        self.milliseconds = milliseconds
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        self.model = FakeModel()

    def tuner(self, *sizes_mb: float) -> BucketTuner:
        device = torch.device("cpu")
        return BucketTuner([self.model], DistributedContext(), device, sizes_mb=sizes_mb)

    def train(self, tuner: BucketTuner, *, exchanged: bool = True) -> None:
        size = self.model.sizes[-1] if self.model.sizes else None
        self.now += self.milliseconds.get(size or 0, 50) / 1000
        tuner.after_batch(exchanged=exchanged)


def test_the_fastest_size_is_chosen_after_all_were_tried_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, {1: 30, 2: 10, 5: 20})
    tuner = clock.tuner(1, 2, 5)
    batches = 1
    clock.train(tuner)
    while tuner.decision is None:
        clock.train(tuner)
        batches += 1
    assert clock.model.sizes == [1, 2, 5, 1, 2, 5, 2]
    assert batches == 1 + ROUNDS * 3 * (UNMEASURED + MEASURED)
    assert tuner.decision == {
        "sizes_mb": [1, 2, 5],
        "median_ms": [30.0, 10.0, 20.0],
        "chosen_mb": 2,
        "batches": ROUNDS * MEASURED,
    }


def test_of_sizes_that_hold_all_gradients_only_the_first_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, {})
    tuner = clock.tuner(100, 50, 1, 5)
    while tuner.decision is None:
        clock.train(tuner)
    assert tuner.decision["sizes_mb"] == [1, 5]


def test_batches_without_an_exchange_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {1: 30, 5: 10})
    tuner = clock.tuner(1, 5)
    while tuner.decision is None:
        clock.milliseconds = {1: 30, 5: 10}
        clock.train(tuner)
        clock.milliseconds = {1: 1, 5: 1000}
        clock.train(tuner, exchanged=False)
    assert tuner.decision["median_ms"] == [30.0, 10.0]


def test_a_later_run_keeps_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {})
    tuner = clock.tuner(1, 5)
    tuner.restore({"chosen_mb": 5})
    clock.train(tuner)
    assert clock.model.sizes == [5]
    assert tuner.state() == {"chosen_mb": 5}
