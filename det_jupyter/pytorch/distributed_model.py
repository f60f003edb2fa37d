"""The old names of `det_jupyter.pytorch.parallel`, until nothing imports them from here."""

from __future__ import annotations

import torch
from torch import nn

from det_jupyter.pytorch.parallel import DistributedModel, share_buffers, unwrap

__all__ = ["DistributedModel", "distribute", "share_buffers", "unwrap"]


def distribute(
    model: nn.Module, device: torch.device, *, find_unused_parameters: bool
) -> nn.Module:
    """Return the model so that all ranks train it together."""
    return DistributedModel(model, device, find_unused_parameters=find_unused_parameters)
