"""Batches: counting their records, moving them to a device, and pinning them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy
import torch
from torch.nn.utils.rnn import PackedSequence

from det_jupyter.contract.values.text import class_name

logger = logging.getLogger(__name__)
_logged_types: set[type] = set()

TorchData: TypeAlias = dict[str, torch.Tensor] | Sequence[torch.Tensor] | torch.Tensor


def data_length(data: Any) -> int:
    """Return how many records a batch has: the length of the first tensor or array in it.

    >>> data_length({"name": "train", "x": torch.zeros(3, 5)}), data_length(["a", "b"])
    (3, 2)

    Raises:
        TypeError: The batch is no container: a number, a text, None.
        ValueError: The batch is a container, but nothing in it has a length.
    """
    length = _length(data)
    if length is None:
        is_batch = isinstance(data, (torch.Tensor, numpy.ndarray, Mapping, list, tuple))
        raise (ValueError if is_batch else TypeError)(
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
        is_listed = isinstance(data, (list, tuple)) and data  # a text or a number per record
        return len(data) if found is None and is_listed else found
    return len(data) if hasattr(data, "__len__") and not isinstance(data, (str, bytes)) else None


def to_device(data: Any, device: torch.device, warned_types: set[type] | None = None) -> Any:
    """Return the data on the device: tensors, arrays and objects with `.to` in containers.

    Containers are dicts, lists and tuples. Copies from pinned memory to a GPU are asynchronous.
    Other objects stay as they are, and their type is logged once.

    Args:
        data: Whatever a data loader yields.
        device: The device.
        warned_types: Types that were logged already; by default those of this process.
    """
    kind = type(data)
    if kind is torch.Tensor:  # `to` costs 1 us even if there is nothing to do
        return data if data.device == device else data.to(device, non_blocking=True)
    if kind is list:  # [m] a call per tensor that is on the device already would double the cost
        return [
            item
            if type(item) is torch.Tensor and item.device == device
            else to_device(item, device, warned_types)
            for item in data
        ]
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if callable(getattr(data, "to", None)):  # first: it may be a mapping or a tuple as well
        return data.to(device)
    if isinstance(data, dict):
        return {name: to_device(item, device, warned_types) for name, item in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*(to_device(item, device, warned_types) for item in data))
    if isinstance(data, (list, tuple)):
        return kind(to_device(item, device, warned_types) for item in data)
    if isinstance(data, numpy.ndarray) and data.dtype.kind in "fciub":
        return torch.from_numpy(data).to(device, non_blocking=True)
    logged = _logged_types if warned_types is None else warned_types
    if not isinstance(data, (str, int, float)) and kind not in logged:
        logged.add(kind)
        logger.warning("to_device: cannot move a %s; it stays as it is", class_name(kind))
    return data


def pin(data: Any) -> Any:
    """Return the data in pinned memory, from which a GPU copies asynchronously."""
    if callable(getattr(data, "pin_memory", None)):
        return data.pin_memory()
    if isinstance(data, dict):
        return {name: pin(item) for name, item in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(pin, data))
    if type(data) in (list, tuple):
        return type(data)(map(pin, data))
    return data
