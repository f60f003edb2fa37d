"""What the training loop costs per batch, against a bare PyTorch loop over the same data.

    python -m tests.benchmarks.loop_overhead [batches]

One CPU rank, one thread, a tiny model, metrics and journal on; validation and checkpoint left out.
The last line is JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from det_jupyter import core
from det_jupyter.config import Length, parse_config
from det_jupyter.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext, Trainer
from det_jupyter.records import FirstStep, Progress
from det_jupyter.wire import Capsule, GangPlan
from det_jupyter.worker.journal import Journal

ROUNDS = 7
BATCH_SIZE = 32
DATA = torch.utils.data.TensorDataset(torch.randn(4096, 16), torch.randn(4096, 1))


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))


class TinyTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(make_model())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(DATA, BATCH_SIZE, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(DATA, 4096)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {"error": 0.0}


class TimedJournal(Journal):
    """A journal that knows when training began and ended."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.first_step_at = self.last_progress_at = 0.0

    def write(self, record: Any) -> None:
        super().write(record)
        if isinstance(record, FirstStep):
            self.first_step_at = time.perf_counter()
        elif isinstance(record, Progress):
            self.last_progress_at = time.perf_counter()


def ours(batches: int) -> float:
    """Return microseconds per batch in our loop, from the first step to the last report."""
    with tempfile.TemporaryDirectory(prefix="det-bench-") as folder:
        journal = train(batches, Path(folder))
    return (journal.last_progress_at - journal.first_step_at) / batches * 1e6


def train(batches: int, folder: Path) -> TimedJournal:
    """Train one batch more than is timed, and return the journal."""
    length = Length("batches", batches + 1)
    document = {
        "entrypoint": "TinyTrial",
        "hyperparameters": {"global_batch_size": BATCH_SIZE},
        "searcher": {"name": "single", "metric": "error", "max_length": length.to_document()},
    }
    config = parse_config(document, default_seed=1)
    plan = GangPlan(
        allocation_id="1.1.1",
        experiment_id=1,
        trial_id=1,
        run=1,
        python=sys.executable,
        cwd=str(folder),
        slots=[],
        config=config.to_document(),
        hparams=config.hyperparameters,
        seed=1,
        capsule=Capsule(entrypoint="TinyTrial", payload="", sources=""),
        target=length.to_document(),
    )
    journal = TimedJournal(folder / "journal-0")
    context = core.init(checkpoint_storage=folder / "checkpoints", sink=journal, length=length)
    Trainer(TinyTrial, plan, config, context, torch.device("cpu")).run()
    return journal


def bare(batches: int) -> float:
    """Return microseconds per batch in a loop without anything around it."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(DATA, BATCH_SIZE, shuffle=True)
    done, began = 0, time.perf_counter()
    while done < batches:
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            if done == batches:
                break
    return (time.perf_counter() - began) / batches * 1e6


def main() -> None:
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    torch.set_num_threads(1)
    bare(200)
    ours(200)
    pairs = [(bare(batches), ours(batches)) for _ in range(ROUNDS)]
    bare_us, ours_us = (median(times) for times in zip(*pairs, strict=True))
    print(f"bare loop  {bare_us:6.1f} us per batch\nours       {ours_us:6.1f} us per batch")
    ratio = median(mine / plain for plain, mine in pairs)
    print(json.dumps({"bare_us": bare_us, "ours_us": ours_us, "ratio": ratio}))


if __name__ == "__main__":
    main()
