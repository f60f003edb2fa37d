"""Trains a small module with the Core API only, and gradients of several batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from det_jupyter import core

WINDOW, NUM_BATCHES = 3, 12


def train(
    context: core.Context,
    lengths: Callable[[core.Context], Iterable[int]] = lambda context: [NUM_BATCHES],
) -> Any:
    """Train as docs/core-api.md has it: the request to leave waits for the end of a window.

    Args:
        lengths: Returns the batches up to which it trains.
    """
    torch.manual_seed(5)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    latest = context.info.latest_checkpoint if context.info else None
    first = 0
    with context:
        if latest:
            with context.checkpoint.restore_path(latest) as folder:
                state = torch.load(folder / "state.pt")
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            first = state["batch"]
        has_gradients = False
        context.preempt.hold_while(lambda: has_gradients)
        for length in lengths(context):
            for batch in range(first + 1, length + 1):
                data = torch.randn(4, 8, generator=torch.Generator().manual_seed(batch))
                loss = model(data).square().mean()
                loss.backward()
                context.train.report_training_metrics(batch, {"loss": loss.item()})
                has_gradients = batch % WINDOW > 0
                if not has_gradients:
                    optimizer.step()
                    optimizer.zero_grad()
                leaves = context.preempt.should_preempt()
                if leaves or batch == length:
                    with context.checkpoint.store_path({"steps_completed": batch}) as (folder, _):
                        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                        torch.save({**state, "batch": batch}, folder / "state.pt")
                if leaves:
                    return model
            first = length
    return model


def weights(model: Any) -> Any:
    return torch.cat([each.detach().flatten() for each in model.parameters()])
