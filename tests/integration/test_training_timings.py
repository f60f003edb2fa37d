"""A training with `profiling` on records each of its batches once, from one run to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from det_jupyter import core, pytorch
from det_jupyter.contract.run.journal import BatchTimings
from det_jupyter.core import RecordList
from det_jupyter.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext

DATA = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))


class SmallTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(4, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        context.wrap_lr_scheduler(scheduler, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(DATA, 8)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(DATA, 64)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        return {"loss": nn.functional.mse_loss(self.model(x), y)}


def train(folder: Path, *, profiling_enabled: bool) -> list[BatchTimings]:
    distributed = core.DistributedContext()
    with pytorch.init(distributed=distributed, seed=1, checkpoint_storage=folder) as context:
        trainer = pytorch.Trainer(SmallTrial(context), context)
        trainer.fit(
            max_length=pytorch.Batch(20),
            reporting_period=pytorch.Batch(5),
            profiling_enabled=profiling_enabled,
        )
        assert context.core is not None
        sink = context.core.sink
    assert isinstance(sink, RecordList)
    return [record for record in sink.records if isinstance(record, BatchTimings)]


def test_every_batch_of_a_training_is_timed_once(tmp_path: Path) -> None:
    records = train(tmp_path, profiling_enabled=True)
    steps = [r.first + i for r in records for i in range(len(r.records))]
    assert steps == list(range(1, 21))
    for record in records:
        assert record.records == [8] * len(record.records)
        assert set(record.durations_ns) >= {
            "batch",
            "dataloader_next",
            "to_device",
            "train_batch",
            "train_batch.backward",
            "train_batch.sync_optimizers",
            "step_lr_schedulers",
        }
        parts = record.durations_ns
        for i, whole in enumerate(parts["batch"]):
            trained, moved = parts["train_batch"][i], parts["to_device"][i]
            assert whole is not None
            assert trained is not None
            assert moved is not None
            assert trained + moved < whole


def test_a_training_without_profiling_records_no_timings(tmp_path: Path) -> None:
    assert train(tmp_path, profiling_enabled=False) == []
