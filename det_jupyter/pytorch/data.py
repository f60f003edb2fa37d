"""The data loader: a recipe that each rank makes its own torch loader from.

    one pass        the dataset's batches: in order, shuffled, or as the user's sampler has them
    [repeat]        pass after pass (training)
    [shard]         batch i of that stream is rank `i % num_replicas`'s
    [skip]          what this rank trained before a pause

The stream is a function of the seed alone. A shuffled pass is a permutation drawn for (seed,
pass), and a user's sampler draws from generators seeded for (seed, pass), the same on every rank.
So any position can be found again by counting, whatever the number of workers, and making an
iterator draws nothing from the global generators. Workers are seeded for each batch, by its
position: what a dataset draws there (augmentation) does not depend on which worker got the batch,
or when it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any

import numpy
import torch
from torch.utils.data import BatchSampler, IterableDataset, Sampler, get_worker_info
from torch.utils.data import DataLoader as TorchDataLoader

from det_jupyter.pytorch.rng import RngStream, derive_seed, seed_cpu
from det_jupyter.pytorch.samplers import shard_length

# Swapping generator states costs 0.1 ms, so a user's sampler is asked for this many batches at
# once.
_BATCHES_PER_SWAP = 64


class DataLoader:
    """Describes how to load a dataset, with the arguments of torch's own DataLoader.

    Outside of a training run it can be iterated like any loader: one pass, all of it.

    Raises:
        ValueError: The arguments contradict each other, or the dataset cannot be sharded.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Sampler[int] | Iterable[int] | None = None,
        batch_sampler: Sampler[list[int]] | Iterable[list[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
    ) -> None:
        _check(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.batch_size = batch_size
        self._shuffle = shuffle
        self._sampler = sampler
        self._batch_sampler = batch_sampler
        self._drop_last = drop_last
        self._generator = generator
        self._num_workers = num_workers
        self._torch_arguments: dict[str, Any] = {
            "num_workers": num_workers,
            "collate_fn": collate_fn,
            # Pinning is for copies to a device; without one torch would only warn.
            "pin_memory": pin_memory and torch.cuda.is_available(),
            "timeout": timeout,
            "worker_init_fn": worker_init_fn,
            "multiprocessing_context": multiprocessing_context,
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
        }
        self._passes_begun = 0

    def __len__(self) -> int:
        """Return the number of batches in one pass."""
        if self._batch_sampler is not None:
            return len(self._batch_sampler)  # type: ignore[arg-type]  # as sized as the user's
        records = len(self.dataset if self._sampler is None else self._sampler)  # type: ignore[arg-type]
        batches, rest = divmod(records, self.batch_size)
        return batches + (rest > 0 and not self._drop_last)

    def __iter__(self) -> Iterator[Any]:
        seed = derive_seed("pass", torch.initial_seed(), self._passes_begun)
        self._passes_begun += 1
        return iter(self.get_data_loader(seed=seed))

    def get_data_loader(
        self,
        repeat: bool = False,
        skip: int = 0,
        num_replicas: int = 1,
        rank: int = 0,
        seed: int = 0,
    ) -> TorchDataLoader[Any]:
        """Return the torch loader of one rank.

        Args:
            repeat: Go on with the next pass when one ends, for ever.
            skip: Batches of this rank to leave out.
            num_replicas: How many ranks share the stream.
            rank: Which of them this is.
            seed: Determines the order (a `generator` given to the recipe does so instead).
        """
        if self._generator is not None:
            seed = self._generator.initial_seed()
        batches = _RankBatches(
            self, seed=seed, repeat=repeat, skip=skip, num_replicas=num_replicas, rank=rank
        )
        dataset = self.dataset
        if self._num_workers > 0:
            dataset = _SeededDataset(dataset, derive_seed("workers", seed))
        # Without a generator torch would draw the workers' base seed from the global one.
        generator = torch.Generator().manual_seed(derive_seed("loader", seed))
        return TorchDataLoader(
            dataset, batch_sampler=batches, generator=generator, **self._torch_arguments
        )

    def batches_of_pass(self, seed: int, pass_idx: int) -> Iterator[list[int]]:
        """Return the batches, as lists of record indices, of one pass over the dataset."""
        indices: Iterable[int]
        if self._batch_sampler is not None:
            return _draw(self._batch_sampler, RngStream(derive_seed("order", seed, pass_idx)))
        if self._sampler is not None:
            grouped = BatchSampler(self._sampler, self.batch_size, self._drop_last)
            return _draw(grouped, RngStream(derive_seed("order", seed, pass_idx)))
        if self._shuffle:
            generator = torch.Generator().manual_seed(derive_seed("order", seed, pass_idx))
            indices = torch.randperm(len(self.dataset), generator=generator).tolist()
        else:
            indices = range(len(self.dataset))
        return iter(BatchSampler(indices, self.batch_size, self._drop_last))

    def batches_per_pass(self) -> int | None:
        """Return the number of batches in a pass; None if the user's sampler does not tell."""
        try:
            return len(self)
        except TypeError:
            return None

    @property
    def can_jump(self) -> bool:
        """Whether a pass can be made without those before it: a user's sampler may count them."""
        return self._sampler is None and self._batch_sampler is None


class _Batch(list[int]):
    """The record indices of a batch, and the batch's position in the stream of all ranks."""

    position = 0


class _RankBatches(Sampler[list[int]]):
    """The batches of one rank. Its length is that of its share of one pass."""

    def __init__(
        self,
        recipe: DataLoader,
        *,
        seed: int,
        repeat: bool,
        skip: int,
        num_replicas: int,
        rank: int,
    ) -> None:
        self._recipe = recipe
        self._seed = seed
        self._repeat = repeat
        self._first = skip * num_replicas + rank  # position in the stream of all ranks
        self._num_replicas = num_replicas
        self._rank = rank

    def __len__(self) -> int:
        return shard_length(len(self._recipe), self._num_replicas, self._rank)

    def __iter__(self) -> Iterator[list[int]]:
        wanted = self._first
        position, first_pass = self._jump()
        for pass_idx in count(first_pass):
            begin = position
            for indices in self._recipe.batches_of_pass(self._seed, pass_idx):
                if position == wanted:
                    batch = _Batch(indices)
                    batch.position = position
                    yield batch
                    wanted += self._num_replicas
                position += 1
            if not self._repeat:
                return
            if position == begin:
                raise ValueError("the data loader has no batches to repeat")

    def _jump(self) -> tuple[int, int]:
        """Return the position and number of the pass to begin with: the first that is wanted."""
        if not self._repeat or not self._recipe.can_jump:
            return 0, 0
        batches = len(self._recipe)
        first_pass = self._first // batches if batches else 0
        return first_pass * batches, first_pass


class _SeededDataset:
    """A dataset as its workers see it: generators are seeded for each batch by its position."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset = dataset
        self.seed = seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, batch: _Batch) -> list[Any]:
        if get_worker_info() is not None:
            seed_cpu(derive_seed("batch", self.seed, batch.position))
        fetch = getattr(self.dataset, "__getitems__", None)
        records: list[Any] = fetch(batch) if fetch else [self.dataset[index] for index in batch]
        return records

    def __getattr__(self, name: str) -> Any:
        # A user's worker_init_fn reaches for attributes of its own dataset.
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


def _draw(batches: Iterable[list[int]], stream: RngStream) -> Iterator[list[int]]:
    """Iterate over a user's sampler while it draws from `stream`."""
    with stream.in_use():
        iterator = iter(batches)
    while True:
        with stream.in_use():
            chunk = list(islice(iterator, _BATCHES_PER_SWAP))
        yield from chunk
        if len(chunk) < _BATCHES_PER_SWAP:
            return


def _check(
    dataset: Any, batch_size: Any, shuffle: bool, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            f"DataLoader: {type(dataset).__name__} is an IterableDataset, which cannot be sharded "
            "and resumed by index; give a dataset with __len__ and __getitem__"
        )
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last"
            )
        return
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"DataLoader: got batch_size {batch_size!r}, expected at least 1")
    if sampler is not None and shuffle:
        raise ValueError("DataLoader: sampler excludes shuffle; shuffle in the sampler")


def to_device(data: Any, device: torch.device, warn: Callable[[type], None]) -> Any:
    """Return the data on the device: tensors, arrays and what has `.to`, in dicts, lists, tuples.

    Args:
        data: Anything a data loader yields.
        device: Where to.
        warn: Told the type of what cannot be moved and stays where it is.
    """
    if isinstance(data, torch.Tensor):  # `to` costs 1 us even if there is nothing to do
        return data if data.device == device else data.to(device, non_blocking=True)
    if callable(getattr(data, "to", None)):  # first: it may be a mapping or a tuple as well
        return data.to(device)
    if isinstance(data, dict):
        return {name: to_device(item, device, warn) for name, item in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(to_device(item, device, warn) for item in data))
    if isinstance(data, (list, tuple)):
        return type(data)(to_device(item, device, warn) for item in data)
    if isinstance(data, numpy.ndarray) and data.dtype.kind in "fciub":
        return torch.from_numpy(data).to(device, non_blocking=True)
    if not isinstance(data, (str, int, float)):
        warn(type(data))
    return data
