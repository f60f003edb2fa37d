"""Batches: counting their records, and moving them to a device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy
import torch
from torch.nn.utils.rnn import PackedSequence

TorchData: TypeAlias = dict[str, torch.Tensor] | Sequence[torch.Tensor] | torch.Tensor


def data_length(data: Any) -> int:
    """Return how many records a batch has: the length of the first tensor or array in it.

    >>> data_length({"name": "train", "x": torch.zeros(3, 5)}), data_length(["a", "b"])
    (3, 2)

    Raises:
        ValueError: There is nothing in it that has a length.
    """
    length = _length(data)
    if length is None:
        raise ValueError(
            f"get_batch_length: got a batch of type {type(data).__name__}, expected tensors, or "
            "dicts, lists and tuples of them; override get_batch_length(batch) in the trial"
        )
    return length


def _length(data: Any) -> int | None:
    if isinstance(data, PackedSequence):
        return int(data.batch_sizes[0])
    if isinstance(data, (torch.Tensor, numpy.ndarray)):
        return len(data) if data.ndim else None
    if isinstance(data, (Mapping, list, tuple)):
        items = data.values() if isinstance(data, Mapping) else data
        found = next((length for item in items if (length := _length(item)) is not None), None)
        is_listed = isinstance(data, (list, tuple)) and data  # of texts or numbers, one a record
        return len(data) if found is None and is_listed else found
    return len(data) if hasattr(data, "__len__") and not isinstance(data, (str, bytes)) else None


def to_device(data: Any, device: torch.device, warn: Callable[[type], None] | None = None) -> Any:
    """Return the data on the device: tensors, arrays and what has `.to`, in dicts, lists, tuples.

    Copies from pinned memory to a GPU do not wait for it.

    Args:
        data: Anything a data loader yields.
        device: Where to.
        warn: Told the type of what cannot be moved and stays where it is; by default a Python
            warning says so.
    """
    kind = type(data)
    if kind is torch.Tensor:  # `to` costs 1 us even if there is nothing to do
        return data if data.device == device else data.to(device, non_blocking=True)
    if kind is list:
        return [to_device(item, device, warn) for item in data]
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if callable(getattr(data, "to", None)):  # first: it may be a mapping or a tuple as well
        return data.to(device)
    if isinstance(data, dict):
        return {name: to_device(item, device, warn) for name, item in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*(to_device(item, device, warn) for item in data))
    if isinstance(data, (list, tuple)):
        return kind(to_device(item, device, warn) for item in data)
    if isinstance(data, numpy.ndarray) and data.dtype.kind in "fciub":
        return torch.from_numpy(data).to(device, non_blocking=True)
    if not isinstance(data, (str, int, float)):
        (warn or _warn)(kind)
    return data


def pin(data: Any) -> Any:
    """Return the data in pinned memory, from where a GPU can fetch it while others compute."""
    if callable(getattr(data, "pin_memory", None)):
        return data.pin_memory()
    if isinstance(data, dict):
        return {name: pin(item) for name, item in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(pin, data))
    if type(data) in (list, tuple):
        return type(data)(map(pin, data))
    return data


def _warn(kind: type) -> None:
    warnings.warn(
        f"to_device: cannot move a {kind.__module__}.{kind.__qualname__}; it stays as it is",
        stacklevel=3,
    )
