"""Which batches of a dataset a rank loads, and what a dataset must be for that.

    batch of the dataset     0  1  2  3  4  5  6  7        rows [i * batch_size, ...), in order
    rank, of three           0  1  2  0  1  2  0  1        in the third round rank 2 has none
                             └ round ┘

A position is a number of batches of the dataset, so it means the same to any number of ranks.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

_ORDER = "the records are taken in their order, so that any number of ranks can go on"
_REFUSED = {
    "dataset": "give it as the dataset argument",
    "batch_size": "give it as the batch_size argument",
    "sampler": f"{_ORDER}; to leave records out, give a torch.utils.data.Subset",
    "batch_sampler": f"{_ORDER}; give a batch_size instead",
}
_KNOWN = inspect.signature(DataLoader.__init__).parameters.keys() - {"self"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The batches of a dataset."""

    records: int  # in the dataset
    batch_size: int  # records of a batch; the last one may have fewer
    total: int  # batches to be processed

    @classmethod
    def of(
        cls, dataset: Any, batch_size: int, most: int | None, arguments: Mapping[str, Any]
    ) -> Batches:
        """Return the batches, `most` at most, of a dataset that `find_problems` accepts."""
        records = len(dataset)
        whole, rest = divmod(records, batch_size)
        total = whole + (rest > 0 and not arguments.get("drop_last"))
        total = total if most is None else min(total, most)
        return cls(records=records, batch_size=batch_size, total=total)

    def rows(self, index: int) -> range:
        """Return the records of a batch."""
        return range(index * self.batch_size, min(self.records, (index + 1) * self.batch_size))


class _RankRows:
    """The rows of one rank's batches, as torch's loader takes them."""

    def __init__(self, batches: Batches, indices: range) -> None:
        self._batches = batches
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[list[int]]:
        return (list(self._batches.rows(index)) for index in self._indices)


def make_loader(
    dataset: Any, batches: Batches, indices: range, arguments: Mapping[str, Any]
) -> DataLoader[Any]:
    """Return a torch loader of the batches with these indices, in this order."""
    kept = {key: value for key, value in arguments.items() if key not in ("shuffle", "drop_last")}
    # Without a generator torch would draw the workers' base seed from the global one.
    kept.setdefault("generator", torch.Generator().manual_seed(0))
    return DataLoader(dataset, batch_sampler=_RankRows(batches, indices), **kept)


def find_problems(dataset: Any, arguments: Mapping[str, Any]) -> list[str]:
    """Return why the dataset cannot be divided among ranks, or the loader cannot be so."""
    problems = [problem] if (problem := _dataset_problem(dataset)) else []
    for key, value in arguments.items():
        where = f"dataloader_kwargs[{key!r}]"
        if key == "shuffle" and value:
            problems.append(f"{where}: got {value!r}, expected it to be left out: {_ORDER}")
        elif key in _REFUSED and value is not None:
            problems.append(f"{where}: {_REFUSED[key]}")
        elif key not in _KNOWN:
            problems.append(f"{where}: torch.utils.data.DataLoader has no such argument")
    return problems


def _dataset_problem(dataset: Any) -> str:
    kind = type(dataset).__name__
    missing = [name for name in ("__len__", "__getitem__") if not hasattr(dataset, name)]
    if missing or isinstance(dataset, IterableDataset):
        lacks = f" without {' and '.join(missing)}" if missing else ", which can only be iterated"
        return (
            f"dataset: got a {kind}{lacks}; its records must have numbers, so that each can be "
            "told from what is done: give a map-style dataset, or a list of the records"
        )
    return "" if len(dataset) else f"dataset: the {kind} has no records"
