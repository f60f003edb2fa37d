"""Our training loop as a contender of loop_overhead.py: metrics into a journal, as in a rank."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from det_jupyter import core
from det_jupyter.config import Length, parse_config
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import Capsule, GangPlan, SlotView
from det_jupyter.core.journal import Journal
from det_jupyter.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext
from det_jupyter.pytorch.training.trial_run import TrialRun
from tests.benchmarks.loop_contender import Cost
from tests.benchmarks.loop_rivals import Contender
from tests.benchmarks.loop_steps import (
    BATCH_SIZE,
    REPORT_EVERY,
    Step,
    Stopwatch,
    loss_of,
    make_dataset,
    make_model,
    make_optimizer,
)


class Trial(PyTorchTrial):
    step: Step
    watch: Stopwatch
    dataset: Any

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(make_model(self.step))
        self.optimizer = context.wrap_optimizer(make_optimizer(self.model))

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(self.dataset, BATCH_SIZE, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(make_dataset(), 4096)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.watch.begin(batch_idx)
        loss = loss_of(self.model, batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {"error": 0.0}


def open_ours(
    profiling: bool | None = None, *, dataset: Any = None, check_ranks: str = "report"
) -> Contender:
    """Return a contender that trains with our loop, on this process's rank.

    Args:
        profiling: `profiling.enabled`.
        dataset: The dataset to train on, instead of tensors.
        check_ranks: `optimizations.check_ranks`.
    """
    distributed = _distributed()

    def train(step: Step, batches: int) -> Cost:
        Trial.step, Trial.watch = step, Stopwatch(batches)
        Trial.dataset = dataset or make_dataset()
        length = Length("batches", Trial.watch.num_trained)
        with tempfile.TemporaryDirectory(prefix="det-bench-") as folder:
            options = {
                "profiling": {"enabled": profiling},
                "optimizations": {"check_ranks": check_ranks},
            }
            run(Path(folder), length, distributed, options)
        return Trial.watch.us_per_batch

    return train


def _distributed() -> core.DistributedContext:
    if not dist.is_initialized():
        return core.DistributedContext()
    rank, size = dist.get_rank(), dist.get_world_size()
    return core.DistributedContext(
        rank=rank,
        size=size,
        local_rank=rank,
        local_size=size,
        cross_rank=0,
        cross_size=1,
    )


def run(
    folder: Path, length: Length, distributed: core.DistributedContext, options: dict[str, Any]
) -> None:
    """Train with these options of the configuration, with journals in the folder."""
    document = {
        "entrypoint": "Trial",
        "hyperparameters": {"global_batch_size": BATCH_SIZE * distributed.size},
        "searcher": {"name": "single", "metric": "error", "max_length": length.to_document()},
        "scheduling_unit": REPORT_EVERY,
        **options,
    }
    config = parse_config(document, default_seed=1)
    plan = GangPlan(
        allocation_id="1.1.1",
        experiment_id=1,
        trial_id=1,
        run=1,
        python=sys.executable,
        cwd=str(folder),
        slots=[SlotView(id=0, kind="cpu", index=0, name="CPU")] * distributed.size,
        config=config.to_document(),
        hparams=config.hyperparameters,
        seed=1,
        capsule=Capsule(entrypoint="Trial", payload="", sources=""),
        target=length,
    )
    context = core.init(
        distributed=distributed,
        checkpoint_storage=folder / "checkpoints",
        sink=Journal(folder / f"journal-{distributed.rank}"),
        length=length,
    )
    info = core.TrialInfo(
        plan=plan, config=config, folder=RunDir(folder), data_dir=folder, rank=distributed.rank
    )
    TrialRun(Trial, replace(context, info=info)).run()
