"""Timings of two ranks of which one is slow: the other waits; the exchange takes no longer."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from det_jupyter import core, pytorch
from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.contract.values.measures import PARTS
from det_jupyter.core import DistributedContext
from det_jupyter.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext
from tests.integration.parallel_ranks import RankRunner

BATCHES = 10
DELAY_S = 0.05  # long beside what a busy computer takes to go on with a process
WIDTH = 64


class SlowData(TensorDataset):
    """Loads slowly, on one rank."""

    delay_s = 0.0

    def __getitem__(self, index: Any) -> Any:
        time.sleep(self.delay_s / 4)  # a rank has 4 records of a batch
        return tuple(tensor[index] for tensor in self.tensors)


class SlowTrial(PyTorchTrial):
    """Is slow on rank 1, in one of its parts."""

    slow = "nothing"

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        norm = [nn.BatchNorm1d(WIDTH)] if self.slow == "buffers" else []
        model = nn.Sequential(nn.Linear(4, WIDTH), *norm, nn.ReLU(), nn.Linear(WIDTH, 1))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        self.delay_s = DELAY_S if context.distributed.rank == 1 else 0.0

    def build_training_data_loader(self) -> DataLoader:
        data = SlowData(torch.randn(64, 4), torch.randn(64, 1))
        data.delay_s = self.delay_s if self.slow == "data" else 0.0
        return DataLoader(data, 4)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), 64)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        if self.slow in ("forward", "buffers"):
            with self.context.profiler.section("slow"):
                time.sleep(self.delay_s)
        self.context.profiler.count("tokens", 10)
        loss = nn.functional.mse_loss(self.model(x), y)
        if self.slow == "backward":
            loss.register_hook(lambda gradient: time.sleep(self.delay_s))
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        return {"loss": nn.functional.mse_loss(self.model(x), y)}


def train(
    distributed: DistributedContext, slow: str, window: int, compression: str | bool, folder: Path
) -> dict[str, float]:
    """Train on this rank, and return the seconds of each part."""
    SlowTrial.slow = slow
    torch.set_num_threads(1)
    with (
        redirect_stdout(StringIO()),  # the real one is the runner's
        pytorch.init(
            distributed=distributed,
            seed=1,
            checkpoint_storage=folder,
            aggregation_frequency=window,
            hparams={"global_batch_size": 8},
            exp_conf={"optimizations": {"gradient_compression": compression}},
        ) as context,
    ):
        assert context.core is not None
        sink = core.RecordList()
        context.core = replace(context.core, sink=sink)
        trainer = pytorch.Trainer(SlowTrial(context), context)
        trainer.fit(max_length=pytorch.Batch(BATCHES), checkpoint_policy="none")
        records = [it for it in sink.records if isinstance(it, StepTimes)]
    seconds: defaultdict[str, float] = defaultdict(float)
    for record in records:
        parts = [part.total for name, part in record.parts.items() if name in PARTS]
        assert sum(parts) == pytest.approx(record.seconds, abs=1e-8)
        for name, part in record.parts.items():
            seconds[name] += part.total
        seconds["tokens"] += record.counters.get("tokens", 0)
    assert sum(record.batches for record in records) == BATCHES
    assert sum(record.samples for record in records) == 8 * BATCHES
    return dict(seconds)


@pytest.mark.parametrize(
    ("slow", "part", "window", "compression"),
    [
        ("data", "dataloader_next", 1, False),
        ("forward", "forward", 1, False),
        ("backward", "backward", 1, False),
        ("buffers", "forward", 1, False),
        ("forward", "forward", 10, False),
        ("forward", "forward", 1, "powersgd"),
    ],
)
def test_a_rank_that_waits_for_a_slow_one_is_not_exchanging(
    run: RankRunner, tmp_path: Path, slow: str, part: str, window: int, compression: str | bool
) -> None:
    fast, slowed = run(train, 2, slow, window, compression, tmp_path)
    assert slowed[part] >= 0.99 * DELAY_S * BATCHES
    assert fast["exchange_wait"] == pytest.approx(slowed[part] - fast.get(part, 0.0), rel=0.5)
    assert slowed["exchange_wait"] < 0.4 * fast["exchange_wait"]
    assert fast["exchange_transfer"] < slowed["exchange_transfer"] + 0.4 * fast["exchange_wait"]
    assert "exchange" not in fast
    assert fast["tokens"] == slowed["tokens"] == 10 * BATCHES
    if part == "forward":
        assert slowed["section.slow"] == pytest.approx(slowed[part], rel=0.25)


class TimedAtCheckpoints(pytorch.PyTorchCallback):
    """Notes how many batches have times in the journal when a checkpoint begins."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records
        self.found: list[tuple[int, int]] = []

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        timed = sum(it.batches for it in self.records if isinstance(it, StepTimes))
        self.found.append((checkpoint["steps_completed"], timed))


def test_the_times_up_to_a_checkpoint_are_journaled_before_it(tmp_path: Path) -> None:
    SlowTrial.slow = "nothing"
    with pytorch.init(checkpoint_storage=tmp_path, hparams={"global_batch_size": 8}) as context:
        assert context.core is not None
        sink = core.RecordList()
        context.core = replace(context.core, sink=sink)
        trial = SlowTrial(context)
        timed = TimedAtCheckpoints(sink.records)
        trial.build_callbacks = lambda: {"timed": timed}  # type: ignore[method-assign]
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(7), checkpoint_period=pytorch.Batch(3)
        )
    assert timed.found == [(3, 3), (6, 6), (7, 7)]
