"""The buffers of models in the memory of a step page: one after the other, each aligned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

_MOST_BYTES = 2**24  # more are not written at each step
_ALIGNED = 16


def buffers_of(models: Iterable[nn.Module]) -> list[torch.Tensor]:
    """Return the buffers of models that have elements."""
    return [buffer for model in models for buffer in model.buffers() if buffer.numel()]


def size_in_page(buffers: Sequence[torch.Tensor]) -> int:
    """Return the size of buffers in a slot; 0 if they are too large, or not plain memory."""
    if any(buffer.layout != torch.strided or buffer.is_quantized for buffer in buffers):
        return 0
    size = sum(_aligned(buffer.nbytes) for buffer in buffers)
    return size if size <= _MOST_BYTES else 0


def in_page(buffers: Sequence[torch.Tensor], memory: memoryview) -> list[torch.Tensor]:
    """Return tensors in the memory of a slot, for these buffers; [] if it has none."""
    found, at = list[torch.Tensor](), 0
    for buffer in buffers if memory else ():
        part = memory[at : at + buffer.nbytes]
        flat = torch.frombuffer(part, dtype=torch.uint8).view(buffer.dtype)
        found.append(flat.view(buffer.shape))
        at += _aligned(buffer.nbytes)
    return found


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNED) * _ALIGNED
