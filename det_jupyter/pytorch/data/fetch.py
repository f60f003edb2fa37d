"""Loading one batch, with random draws that depend on the batch alone.

What a dataset or its collate function draws from the global generators (Python's, numpy's,
torch's on the CPU) comes from streams seeded for (seed, global batch, first row of the rank's
part). So it depends neither on the number of loader workers, nor on which of them loads the batch,
nor on where a run was paused; and without workers the rank's own generators are unaffected. On a
different number of ranks the parts begin at other rows, so the draws differ there (the records do
not). Generators that the dataset makes itself are not affected.

Swapping the generators costs about 10 us per batch, and twice that in a training loop with cold
caches (generators.py). It is omitted for datasets of types that draw nothing. Records of plain
tensors are selected in one operation per batch, and several small batches of them are loaded at a
time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy
import torch
from torch.utils.data import (
    ConcatDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    get_worker_info,
)
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from det_jupyter.pytorch.data.division import Indices
from det_jupyter.pytorch.data.generators import (
    batch_start,
    restore_generators,
    save_generators,
    start_generators,
)
from det_jupyter.pytorch.rng import derive_seed

_AT_ONCE, _AT_ONCE_BYTES = 32, 1 << 16

# The types in the table of torch's collate function; users may add more.
_KINDS = {
    *(torch.Tensor, numpy.ndarray, float, int, str, bytes),
    (numpy.bool_, numpy.number, numpy.object_),
}

Collate = Callable[[list[Any]], Any]


class BatchIndices(list[int]):
    """Record indices that are sent to a worker, with the position of their batch in the stream."""

    step = 0
    begin = 0

    @classmethod
    def of(cls, indices: Indices, step: int, begin: int = 0) -> BatchIndices:
        """Return the rows of a batch, from any kind of indices."""
        rows = cls(_listed(indices))
        rows.step, rows.begin = step, begin
        return rows


class Fetch:
    """Stands in for the dataset in torch's loader: `__getitems__` returns a whole batch.

    Args:
        dataset: The user's dataset, with `__getitem__`, and perhaps `__getitems__`.
        collate_fn: The user's collate function; None: torch's.
        seed: The seed of random draws while loading.
    """

    def __init__(self, dataset: Any, collate_fn: Collate | None, seed: int) -> None:
        self.dataset = dataset
        self.seed = derive_seed("workers", seed)
        self._collate = collate_fn or default_collate
        is_plain = self._collate is default_collate
        self._draws_nothing = is_plain and draws_nothing(dataset)
        self._columns = TensorColumns.of(dataset) if is_plain else None
        if is_plain and default_collate_fn_map.keys() <= _KINDS:
            self._collate = collate_records

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, rows: BatchIndices) -> Any:
        return self.load(rows, rows.step, rows.begin)

    def __getattr__(self, name: str) -> Any:
        # Users access attributes of their dataset through the loader's `dataset`.
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def batches_at_once(self, batch_size: int) -> int:
        """Return how many batches to load at a time: several if they are small, of plain tensors.

        Training steps leave cold caches: [m] selecting a batch takes 6 to 10 us between steps, and
        3 us directly after another.
        """
        if self._columns is None:
            return 1
        batch_bytes = batch_size * self._columns.record_bytes
        return max(1, min(_AT_ONCE, _AT_ONCE_BYTES // max(1, batch_bytes)))

    def load(self, indices: Indices, step: int, begin: int) -> Any:
        """Load and collate the records `indices`: global batch `step`, from its row `begin` on."""
        if self._columns is not None:
            return self._columns.select(indices)
        if self._draws_nothing:
            return self._load(_listed(indices))
        start = batch_start(self.seed, step, begin)
        if get_worker_info() is not None:  # a worker has generators of its own
            start_generators(start)
            return self._load(_listed(indices))
        outside = save_generators()  # not `with drawing_from(start)`: [m] 2 us less
        try:
            start_generators(start)
            return self._load(_listed(indices))
        finally:
            restore_generators(outside)

    def _load(self, indices: list[int]) -> Any:
        fetch = getattr(self.dataset, "__getitems__", None)
        records = fetch(indices) if fetch else [self.dataset[index] for index in indices]
        return self._collate(records)


def collate_records(records: Any) -> Any:
    """Return what `default_collate` returns; for tuples it takes three quarters of the time.

    `default_collate` itself is called in workers, where it puts tensors into shared memory, and
    where users have replaced its treatment of tensors.
    """
    if (
        type(records[0]) is tuple
        and get_worker_info() is None
        and len(default_collate_fn_map) == len(_KINDS)
        and default_collate_fn_map[torch.Tensor] is collate_tensor_fn
    ):
        with suppress(ValueError):  # tuples of different lengths: torch's own message is better
            columns: list[Any] = list(zip(*records, strict=True))
            return [
                torch.stack(column) if _is_simple(column[0]) else default_collate(column)
                for column in columns
            ]
    return default_collate(records)


class TensorColumns:
    """The tensors of a TensorDataset, or of a Subset of one."""

    def __init__(self, tensors: tuple[torch.Tensor, ...], chosen: torch.Tensor | None) -> None:
        self._tensors = tensors
        self._chosen = chosen  # index in the tensors of each record of the subset
        self.record_bytes = sum(tensor[:1].nbytes for tensor in tensors)
        self._is_simple = chosen is None and all(tensor.is_cpu for tensor in tensors)

    @classmethod
    def of(cls, dataset: Any) -> TensorColumns | None:
        """Return the columns of a dataset; None if it is of another type."""
        chosen: torch.Tensor | None = None
        while type(dataset) is Subset:
            try:
                inner = torch.as_tensor(dataset.indices, dtype=torch.int64)
            except (TypeError, ValueError, RuntimeError):
                return None  # the indices are not numbers
            inner = inner.where(inner >= 0, inner + len(dataset.dataset))  # type: ignore[arg-type]  # it is sized
            chosen = inner if chosen is None else inner[chosen]
            dataset = dataset.dataset
        if type(dataset) is not TensorDataset or not all(map(_is_simple, dataset.tensors)):
            return None
        return cls(dataset.tensors, chosen)

    def select(self, indices: Indices) -> list[torch.Tensor]:
        """Return the batch with these rows, copied, as torch's collate function would make it."""
        if self._is_simple and type(indices) is torch.Tensor:  # shuffled: the usual case
            return [tensor.index_select(0, indices) for tensor in self._tensors]
        if isinstance(indices, range) and self._chosen is None and indices.step == 1:
            rows = slice(indices.start, indices.stop)
            return [tensor[rows].clone() for tensor in self._tensors]
        rows_at = torch.as_tensor(indices, dtype=torch.int64)
        if self._chosen is not None:
            rows_at = self._chosen[rows_at]
        are_ours = isinstance(indices, torch.Tensor)  # a user's sampler may yield negative ones
        return [
            tensor.index_select(0, rows_at) if are_ours and tensor.is_cpu else tensor[rows_at]
            for tensor in self._tensors
        ]


def draws_nothing(dataset: Any) -> bool:
    """Return whether the dataset's type guarantees that loading draws no random numbers."""
    kind = type(dataset)
    if kind is Subset:
        return draws_nothing(dataset.dataset)
    if kind in (ConcatDataset, StackDataset):
        parts = dataset.datasets
        return all(map(draws_nothing, parts.values() if isinstance(parts, dict) else parts))
    return kind in (TensorDataset, torch.Tensor, numpy.ndarray, list, tuple, range)


def as_is(batch: Any) -> Any:
    """Return the batch unchanged: the collate function for data that is already batched."""
    return batch


def _is_simple(value: Any) -> bool:
    """Return whether this is a torch.Tensor that is strided, not quantized and not nested."""
    return (
        type(value) is torch.Tensor
        and value.layout == torch.strided
        and not value.is_quantized
        and not value.is_nested
    )


def _listed(indices: Indices) -> list[int]:
    if isinstance(indices, list):
        return indices
    return indices.tolist() if isinstance(indices, torch.Tensor) else list(indices)
