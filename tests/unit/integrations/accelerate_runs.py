"""Trains a small module with Accelerate, whose import takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import DistributedType
from torch.utils.data import DataLoader, TensorDataset

from det_jupyter import core
from det_jupyter.integrations.accelerate import DetTracker

__all__ = ["Accelerator", "DataLoader", "DetTracker", "torch"]

STEPS_PER_EPOCH, NUM_STEPS = 4, 10
FSDP = DistributedType.FSDP


def new_model() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.2))


def train(
    context: core.Context,
    window: int = 1,
    by_hand: int = 0,
    save_every: int = NUM_STEPS,
    lengths: Callable[[core.Context], Iterable[int]] = lambda context: [NUM_STEPS],
) -> Any:
    """Train as users do, and return the model.

    Args:
        window: Batches whose gradients `accumulate` sums up.
        by_hand: The same, without telling the Accelerator; 0: leave it to the Accelerator.
        save_every: Batches between two checkpoints.
        lengths: Returns the batches up to which it trains.
    """
    torch.manual_seed(5)
    data = TensorDataset(torch.randn(4 * STEPS_PER_EPOCH, 8))
    with context:
        det = DetTracker()
        seeded = DataLoaderConfiguration(use_seedable_sampler=True)
        accelerator = Accelerator(
            cpu=True,
            log_with=det,
            dataloader_config=seeded,
            gradient_accumulation_steps=window,
        )
        model = new_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        loader = DataLoader(data, 4, shuffle=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        accelerator.init_trackers("test", config={"lr": 0.01})
        step = det.load_state(accelerator)
        for length in lengths(context):
            while step < length:
                for (batch,) in det.batches(loader):
                    with accelerator.accumulate(model):
                        if by_hand and step % by_hand == 0:
                            optimizer.zero_grad()
                        loss = model(batch).square().mean()
                        accelerator.backward(loss)
                        if not by_hand or step % by_hand == by_hand - 1:
                            optimizer.step()
                        if not by_hand:
                            optimizer.zero_grad()
                    step += 1
                    accelerator.log({"loss": loss.item()}, step=step)
                    if det.leaves(step):
                        return model
                    if step == length:
                        break
                    if step % save_every == 0:
                        det.save_state(step)
        accelerator.log({"val_loss": 0.5}, step=step)
        det.save_state(step)
        accelerator.end_training()
    return model


def weights(model: Any) -> Any:
    return torch.cat([each.detach().flatten() for each in model.parameters()])
