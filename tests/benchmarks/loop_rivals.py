"""The rivals of loop_overhead.py, each with metrics logged as is usual for it; all optional.

It does not import det_jupyter: it may run in an environment of its own, as pins conflict.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch

from tests.benchmarks.loop_contender import Cost
from tests.benchmarks.loop_steps import (
    BATCH_SIZE,
    REPORT_EVERY,
    Step,
    Stopwatch,
    loss_of,
    make_dataset,
    make_loader,
    make_model,
    make_optimizer,
)

Contender = Callable[[Step, int], Cost]


def open_accelerate() -> Contender:
    """Return Accelerate: every batch's loss goes to a TensorBoard tracker, as in its examples."""
    from accelerate import Accelerator

    def train(step: Step, batches: int) -> Cost:
        with tempfile.TemporaryDirectory(prefix="det-bench-") as folder:
            accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=folder)
            accelerator.init_trackers("run")
            watch = Stopwatch(batches)
            model = make_model(step)
            loader = make_loader()
            model, optimizer, loader = accelerator.prepare(model, make_optimizer(model), loader)
            done = 0
            while done < watch.num_trained:
                for batch in loader:
                    watch.begin(done)
                    with accelerator.accumulate(model):
                        loss = loss_of(model, batch)
                        accelerator.backward(loss)
                        optimizer.step()
                        optimizer.zero_grad()
                    accelerator.log({"loss": loss.item()}, step=done)
                    done += 1
                    if done == watch.num_trained:
                        break
            accelerator.end_training()
            accelerator.free_memory()
        return watch.us_per_batch

    return train


def open_lightning() -> Contender:
    """Return Lightning: `self.log` in every batch, CSV logger, no progress bar, no checkpoints."""
    import lightning
    from lightning.pytorch.loggers import CSVLogger

    class Module(lightning.LightningModule):  # type: ignore[misc]  # it is untyped
        def __init__(self, step: Step, watch: Stopwatch) -> None:
            super().__init__()
            self.model = make_model(step)
            self.watch = watch
            self.done = 0

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.watch.begin(self.done)
            self.done += 1
            loss = loss_of(self.model, batch)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return make_optimizer(self.model)

    def train(step: Step, batches: int) -> Cost:
        watch = Stopwatch(batches)
        loader = make_loader()
        with tempfile.TemporaryDirectory(prefix="det-bench-") as folder:
            trainer = lightning.Trainer(
                max_steps=watch.num_trained,
                max_epochs=-1,
                accelerator="cpu",
                logger=CSVLogger(folder),
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=folder,
            )
            trainer.fit(Module(step, watch), loader)
        return watch.us_per_batch

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return train


def open_determined(*, tensorboard: bool) -> Contender:
    """Return Determined's Trainer without a cluster, with a report every 100 batches (default)."""
    from determined import pytorch

    # Type-checked against compat/, but measured with the real package.
    class Trial(pytorch.PyTorchTrial):
        step: Step
        watch: Stopwatch

        def __init__(self, context: Any) -> None:
            self.context = context
            self.model = context.wrap_model(make_model(self.step))
            self.optimizer = context.wrap_optimizer(make_optimizer(self.model))

        def build_training_data_loader(self) -> Any:
            return pytorch.DataLoader(make_dataset(), batch_size=BATCH_SIZE, shuffle=True)

        def build_validation_data_loader(self) -> Any:
            return pytorch.DataLoader(make_dataset(), batch_size=4096)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            self.watch.begin(batch_idx)
            loss = loss_of(self.model, batch)
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

        def evaluate_batch(self, batch: Any) -> dict[str, Any]:  # type: ignore[override]
            return {"error": loss_of(self.model, batch)}

    def train(step: Step, batches: int) -> Cost:
        Trial.step, Trial.watch = step, Stopwatch(batches)
        with pytorch.init(enable_tensorboard_logging=tensorboard) as context:
            trainer = pytorch.Trainer(Trial(context), context)
            trainer.fit(
                max_length=pytorch.Batch(Trial.watch.num_trained),
                reporting_period=pytorch.Batch(REPORT_EVERY),
                checkpoint_policy="none",
            )
        return Trial.watch.us_per_batch

    return train


_OPENERS: dict[str, Callable[[], Contender]] = {
    "accelerate": open_accelerate,
    "lightning": open_lightning,
    "determined": lambda: open_determined(tensorboard=False),
    "determined_tensorboard": lambda: open_determined(tensorboard=True),
}


def open_rival(name: str) -> Contender:
    """Return the contender of this name.

    Raises:
        ImportError: It is not installed.
    """
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    return _OPENERS[name]()
