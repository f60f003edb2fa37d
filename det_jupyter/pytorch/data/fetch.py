"""Loading one batch, with random draws that depend on the batch alone.

What a dataset or its collate function draws from the global generators (Python's, numpy's,
torch's on the CPU) comes from streams seeded for (seed, global batch, first row of the rank's
part). So it depends neither on the number of loader workers, nor on which of them loads the batch,
nor on where a run was paused; and with no workers it leaves the rank's own generators alone. On a
different number of ranks the parts begin at other rows, so the draws differ there (the records do
not). Generators that the dataset makes itself are not affected.

Exchanging the generators costs about 10 us per batch, and twice that in a training loop with cold
caches (see draws.py). Datasets that are known to draw nothing are exempt. Records of plain tensors
are selected in one operation per batch, and several small batches of them are loaded at a time.
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

from det_jupyter.pytorch.data import generator_states
from det_jupyter.pytorch.data.division import Indices
from det_jupyter.pytorch.data.draws import beginning
from det_jupyter.pytorch.rng import derive_seed

_AT_ONCE, _AT_ONCE_BYTES = 32, 1 << 16

# Of records and their parts, in the table of torch's collate function; users may add more.
_KINDS = {
    *(torch.Tensor, numpy.ndarray, float, int, str, bytes),
    (numpy.bool_, numpy.number, numpy.object_),
}

Collate = Callable[[list[Any]], Any]


class Rows(list[int]):
    """Record indices on their way to a worker, with the place of their batch in the stream."""

    step = 0
    begin = 0

    @classmethod
    def of(cls, indices: Indices, step: int, begin: int = 0) -> Rows:
        """Return rows of any indices."""
        rows = cls(_listed(indices))
        rows.step, rows.begin = step, begin
        return rows


class Fetch:
    """A dataset as torch's loader sees it: asked for rows, it returns a whole batch.

    Args:
        dataset: The user's, with `__getitem__`, and perhaps `__getitems__`.
        collate_fn: The user's; None for torch's.
        seed: What is drawn while loading depends on it.
    """

    def __init__(self, dataset: Any, collate_fn: Collate | None, seed: int) -> None:
        self.dataset = dataset
        self.seed = derive_seed("workers", seed)
        self._collate = collate_fn or default_collate
        is_plain = self._collate is default_collate
        self._is_quiet = is_plain and draws_nothing(dataset)
        self._columns = Columns.of(dataset) if is_plain else None
        if is_plain and default_collate_fn_map.keys() <= _KINDS:
            self._collate = collate_records

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, rows: Rows) -> Any:
        return self.load(rows, rows.step, rows.begin)

    def __getattr__(self, name: str) -> Any:
        # Users reach for attributes of their dataset through the loader's `dataset`.
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def batches_at_once(self, batch_size: int) -> int:
        """Return how many batches to load at a time: several, if they are small and of tensors.

        The steps between them empty the caches: [m] picking a batch takes 3 us by itself and 6 to
        10 us between steps.
        """
        if self._columns is None:
            return 1
        batch_bytes = batch_size * self._columns.record_bytes
        return max(1, min(_AT_ONCE, _AT_ONCE_BYTES // max(1, batch_bytes)))

    def load(self, indices: Indices, step: int, begin: int) -> Any:
        """Return the batch of these records, at this place in the stream."""
        if self._columns is not None:
            return self._columns.pick(indices)
        if self._is_quiet:
            return self._load(_listed(indices))
        states = beginning(self.seed, step, begin)
        if get_worker_info() is not None:  # a worker has generators of its own
            generator_states.begin(states)
            return self._load(_listed(indices))
        outside = generator_states.take()  # not `with drawing_from(states)`: [m] 2 us less
        try:
            generator_states.begin(states)
            return self._load(_listed(indices))
        finally:
            generator_states.put(outside)

    def _load(self, indices: list[int]) -> Any:
        fetch = getattr(self.dataset, "__getitems__", None)
        records = fetch(indices) if fetch else [self.dataset[index] for index in indices]
        return self._collate(records)


def collate_records(records: Any) -> Any:
    """Return what `default_collate` returns, of tuples in three quarters of its time.

    In workers it puts tensors into shared memory, and users may replace what it does with tensors:
    it is called in all but the usual case.
    """
    if (
        type(records[0]) is tuple
        and get_worker_info() is None
        and len(default_collate_fn_map) == len(_KINDS)
        and default_collate_fn_map[torch.Tensor] is collate_tensor_fn
    ):
        with suppress(ValueError):  # of different lengths: its own message is better
            columns: list[Any] = list(zip(*records, strict=True))
            return [
                torch.stack(column) if _is_simple(column[0]) else default_collate(column)
                for column in columns
            ]
    return default_collate(records)


class Columns:
    """The tensors of a TensorDataset, perhaps of a subset of one."""

    def __init__(self, tensors: tuple[torch.Tensor, ...], chosen: torch.Tensor | None) -> None:
        self._tensors = tensors
        self._chosen = chosen  # where each record of the subset is
        self.record_bytes = sum(tensor[:1].nbytes for tensor in tensors)
        self._is_simple = chosen is None and all(tensor.is_cpu for tensor in tensors)

    @classmethod
    def of(cls, dataset: Any) -> Columns | None:
        """Return the dataset's columns; None if it is of another kind."""
        chosen: torch.Tensor | None = None
        while type(dataset) is Subset:
            try:
                inner = torch.as_tensor(dataset.indices, dtype=torch.int64)
            except (TypeError, ValueError, RuntimeError):
                return None  # they are no numbers
            inner = inner.where(inner >= 0, inner + len(dataset.dataset))  # type: ignore[arg-type]  # it is sized
            chosen = inner if chosen is None else inner[chosen]
            dataset = dataset.dataset
        if type(dataset) is not TensorDataset or not all(map(_is_simple, dataset.tensors)):
            return None
        return cls(dataset.tensors, chosen)

    def pick(self, indices: Indices) -> list[torch.Tensor]:
        """Return copies of the rows, as torch's collate function puts them together."""
        if self._is_simple and type(indices) is torch.Tensor:  # shuffled, the usual case
            return [tensor.index_select(0, indices) for tensor in self._tensors]
        if isinstance(indices, range) and self._chosen is None and indices.step == 1:
            rows = slice(indices.start, indices.stop)
            return [tensor[rows].clone() for tensor in self._tensors]
        places = torch.as_tensor(indices, dtype=torch.int64)
        if self._chosen is not None:
            places = self._chosen[places]
        are_ours = isinstance(indices, torch.Tensor)  # a user's may be negative
        return [
            tensor.index_select(0, places) if are_ours and tensor.is_cpu else tensor[places]
            for tensor in self._tensors
        ]


def draws_nothing(dataset: Any) -> bool:
    """Return whether loading a record is known to draw no random numbers."""
    kind = type(dataset)
    if kind is Subset:
        return draws_nothing(dataset.dataset)
    if kind in (ConcatDataset, StackDataset):
        parts = dataset.datasets
        return all(map(draws_nothing, parts.values() if isinstance(parts, dict) else parts))
    return kind in (TensorDataset, torch.Tensor, numpy.ndarray, list, tuple, range)


def as_is(batch: Any) -> Any:
    """Collate nothing: the batch is one already."""
    return batch


def _is_simple(value: Any) -> bool:
    """Return whether this is a tensor of the usual kind."""
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
