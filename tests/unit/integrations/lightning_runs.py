"""Trains a small module with Lightning, whose import takes seconds and sets variables."""

from __future__ import annotations

import logging
from typing import Any

import lightning.pytorch as L
import torch
from torch.utils.data import DataLoader, TensorDataset

from det_jupyter import core
from det_jupyter.integrations.lightning import (
    DetCallback,
    DetLogger,
    DetModelParallelStrategy,
    DetStrategy,
)

__all__ = ["DetLogger", "DetModelParallelStrategy", "DetStrategy"]

NUM_EPOCHS, NUM_BATCHES = 4, 4
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.2))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", self.net(batch[0]).square().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


class ByHand(Net):
    """Steps after every third batch itself, also over the end of an epoch.

    Without validations: Lightning drops gradients before each one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.register_buffer("num", torch.tensor(0))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        optimizer: Any = self.optimizers()
        loss = self.net(batch[0]).square().mean()
        if self.num % 3 == 0:
            optimizer.zero_grad()
        self.manual_backward(loss)
        self.num += 1
        if self.num % 3 == 0:
            optimizer.step()
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def early_stopping() -> Any:
    return L.callbacks.EarlyStopping("val_loss", patience=1, mode="max")


def fit(
    context: core.Context,
    callbacks: list[Any] | None = None,
    limit_val_batches: int = NUM_BATCHES,
    module: L.LightningModule | None = None,
    logger: Any = False,
    window: int = 1,
    log_every: int = 2,
    max_epochs: int = NUM_EPOCHS,
    **arguments: Any,
) -> Any:
    L.seed_everything(5, verbose=False)
    data = TensorDataset(torch.randn(16 * NUM_BATCHES, 8))
    with context:
        callbacks = [DetCallback()] if callbacks is None else callbacks
        for each in callbacks:
            if isinstance(each, DetCallback) and "ckpt_path" not in arguments:
                arguments["ckpt_path"] = each.ckpt_path
        trainer = L.Trainer(
            max_epochs=max_epochs,
            callbacks=callbacks,
            accelerator="cpu",
            logger=logger,
            enable_checkpointing=bool(callbacks),
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=log_every,
            accumulate_grad_batches=window,
            limit_val_batches=limit_val_batches,
        )
        trainer.fit(
            module or Net(), DataLoader(data, 16, shuffle=True), DataLoader(data, 16), **arguments
        )
    return trainer


def weights(trainer: Any) -> Any:
    return torch.cat([each.detach().flatten() for each in trainer.lightning_module.parameters()])
