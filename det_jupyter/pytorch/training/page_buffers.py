"""Tensors, such as a model's buffers, in the memory of a step page: each aligned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from det_jupyter.pytorch.parallel import is_sharded

_MOST_BYTES = 2**24  # more are not written at each step
_ALIGNED = 16


def buffers_of(models: Iterable[nn.Module]) -> list[torch.Tensor]:
    """Return the buffers, with elements, of models that are not sharded."""
    whole = (model for model in models if not is_sharded(model))
    return [buffer for model in whole for buffer in model.buffers() if buffer.numel()]


def size_in_page(buffers: Sequence[torch.Tensor]) -> int:
    """Return the size of buffers in a slot; 0 if they are too large, or not plain memory."""
    size = total_bytes(buffers) if is_plain(buffers) else 0
    return size if size <= _MOST_BYTES else 0


def is_plain(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether the tensors are plain memory."""
    return all(one.layout == torch.strided and not one.is_quantized for one in tensors)


def total_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the size of memory for these tensors."""
    return sum(_aligned(tensor.nbytes) for tensor in tensors)


def in_page(buffers: Sequence[torch.Tensor], memory: memoryview) -> list[torch.Tensor]:
    """Return tensors in the memory of a slot, for these buffers; [] if it has none."""
    found, at = list[torch.Tensor](), 0
    for buffer in buffers if memory else ():
        flat = torch.empty(0, dtype=buffer.dtype)  # torch makes none of no memory
        if buffer.nbytes:
            part = memory[at : at + buffer.nbytes]
            flat = torch.frombuffer(part, dtype=torch.uint8).view(buffer.dtype)
        found.append(flat.view(buffer.shape))
        at += _aligned(buffer.nbytes)
    return found


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNED) * _ALIGNED
