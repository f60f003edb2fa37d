"""Copies of the state that `torch.load(weights_only=True)` can read, independent of the training.

Tensors are copied to CPU memory, and lists and dicts are copied. Numpy's arrays become tensors,
and their paths are stored. Values that `torch.load(weights_only=True)` would refuse are found
here, by their paths, before anything is written.
"""

from __future__ import annotations

import copy
import io
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from det_jupyter.contract.values.text import class_name

Path = tuple[Hashable, ...]  # keys and indices that lead to a value, from the outermost on

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, torch.Size, torch.dtype})
_DICTS = (dict, OrderedDict, Counter)
_STILL = (("models",), ("optimizers",))  # what only the training changes


class SnapshotMemory:
    """CPU memory that is reused from one snapshot to the next.

    Copying 400 MB into memory that is mapped already took 0.06 s, into new memory 0.6 s and more;
    page-locked memory, which a GPU fills asynchronously, takes even longer to allocate. So the
    memory of a snapshot is kept for the next one.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[object, ...], list[torch.Tensor]] = {}
        self._used: list[tuple[tuple[object, ...], torch.Tensor]] = []
        self._devices: set[torch.device] = set()

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy on the CPU. Copies from a GPU are complete only after `wait`."""
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return tensor.detach().cpu().clone()
        is_pinned = tensor.is_cuda
        key = (tensor.dtype, tuple(tensor.shape), tensor.stride(), is_pinned)
        free = self._free.get(key)
        if free:
            memory = free.pop()
        else:
            memory = torch.empty_like(
                tensor, device="cpu", pin_memory=is_pinned, requires_grad=False
            )
        self._used.append((key, memory))
        if is_pinned:
            self._devices.add(tensor.device)
        return memory.copy_(tensor.detach(), non_blocking=is_pinned)

    def wait(self) -> None:
        """Wait until all copies from GPUs are complete."""
        for device in self._devices:
            torch.cuda.current_stream(device).synchronize()
        self._devices.clear()

    def release(self) -> None:
        """Release this snapshot's memory for the next one; free the rest of the earlier memory.

        Without a snapshot since the last call, nothing changes.
        """
        if self._used:
            self._free = {}
        for key, memory in self._used:
            self._free.setdefault(key, []).append(memory)
        self._used = []


class OwnMemory:
    """The training's own memory on the CPU, for a snapshot of a training that stands still."""

    def __init__(self) -> None:
        self._dtypes: dict[int, torch.dtype] = {}

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor itself, or its copy on the CPU, or of a part of other memory."""
        own = tensor.detach().cpu()
        if own.layout is not torch.strided:
            return own
        memory = own.untyped_storage()  # which torch saves whole, and of one type only
        dtype = self._dtypes.setdefault(memory.data_ptr(), own.dtype)
        return own.clone() if memory.nbytes() > own.nbytes or dtype != own.dtype else own


@dataclass(slots=True)
class StateSnapshot:
    """One snapshot.

    Args:
        memory: For the copies.
        is_still: Whether the training stands still, so that models and optimizers need no copy.
            States of callbacks do: the user's threads may change them while they are written, and
            the file would not be what its checksums say.

    Attributes:
        arrays: The dtype of each numpy array and number, by path.
        unsafe: Path and type of each value that cannot be saved.
    """

    memory: SnapshotMemory
    is_still: bool = False
    arrays: dict[Path, str] = field(default_factory=dict)
    unsafe: list[tuple[Path, str]] = field(default_factory=list)
    _copies: dict[tuple[object, ...], torch.Tensor] = field(default_factory=dict)
    _own: OwnMemory = field(default_factory=OwnMemory)

    def take(self, value: Any, path: Path = ()) -> Any:
        """Return a copy of the value, with None for parts that cannot be saved (see `unsafe`)."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value, is_own=self.is_still and path[:1] in _STILL)
        if kind in _DICTS:
            return self._dict(value, path)
        if kind in (list, tuple):
            return kind(self.take(item, (*path, index)) for index, item in enumerate(value))
        if isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._numpy(value, path)
        if not _is_safe(value):
            self.unsafe.append((path, class_name(kind)))
            return None
        return copy.deepcopy(value)

    def _tensor(self, tensor: torch.Tensor, *, is_own: bool) -> torch.Tensor:
        memory = self._own if is_own else self.memory
        if tensor.layout is not torch.strided or tensor.numel() == 0:
            return memory.copy(tensor)
        # Tied weights share memory under two names; the copies share memory too.
        memory_key = (
            is_own,
            tensor.data_ptr(),
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
            tensor.device,
        )
        if memory_key not in self._copies:
            self._copies[memory_key] = memory.copy(tensor)
        return self._copies[memory_key]

    def _dict(self, value: Any, path: Path) -> Any:
        copied = copy.copy(value)  # keeps attributes, which a model's OrderedDict has
        for key, item in value.items():
            if not _is_safe_key(key):
                self.unsafe.append(((*path, repr(key)), f"{class_name(type(key))} as a key"))
            copied[key] = self.take(item, (*path, key))
        return copied

    def _numpy(self, value: Any, path: Path) -> Any:
        taken: Any = value
        try:
            if isinstance(value, numpy.generic):
                taken = value.item()
            elif type(value) is numpy.ndarray:
                taken = torch.from_numpy(value.copy())
        except (TypeError, ValueError):  # an array of objects, or of the other byte order
            pass
        if type(taken) not in _PLAIN and not isinstance(taken, torch.Tensor):
            self.unsafe.append((path, f"numpy.{type(value).__name__} of {value.dtype}"))
            return None
        self.arrays[path] = str(value.dtype)
        return taken


def restore_arrays(value: Any, arrays: Mapping[Path, str], path: Path = ()) -> Any:
    """Return the value with numpy's arrays and numbers restored; dicts are changed in place."""
    if not arrays:
        return value
    if dtype := arrays.get(path):
        return (
            value.cpu().numpy()
            if isinstance(value, torch.Tensor)
            else numpy.dtype(dtype).type(value)
        )
    if type(value) in _DICTS:
        for key, item in value.items():
            value[key] = restore_arrays(item, arrays, (*path, key))
    elif type(value) in (list, tuple):
        items = (restore_arrays(item, arrays, (*path, i)) for i, item in enumerate(value))
        return type(value)(items)
    return value


def _is_safe_key(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_safe_key, key))
    return type(key) in _PLAIN or _is_safe(key)


def _is_safe(value: Any) -> bool:
    """Return whether torch loads a value with `weights_only`.

    Saves and loads the value to find out, as users can register types with torch.
    """
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        buffer.seek(0)
        torch.load(buffer, weights_only=True)
    except Exception:  # pickling, and torch's unpickler, may raise anything
        return False
    return True
