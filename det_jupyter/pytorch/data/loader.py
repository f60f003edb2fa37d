"""The data loader: a description of the data, from which each rank makes a stream of batches.

Training and validation open it with `open_training` and `open_validation`, which cut the data into
global batches (see division.py and order.py for the order, fetch.py for what random draws depend
on, iterable.py for datasets without indices).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from itertools import count
from multiprocessing import get_start_method
from multiprocessing.context import BaseContext
from multiprocessing.sharedctypes import RawValue
from operator import itemgetter
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, Sampler

from det_jupyter import core
from det_jupyter.pytorch.data.division import Division
from det_jupyter.pytorch.data.fetch import BatchIndices, Fetch, as_is
from det_jupyter.pytorch.data.iterable import IterableReader
from det_jupyter.pytorch.data.order import Order
from det_jupyter.pytorch.data.samplers import shard_length
from det_jupyter.pytorch.data.workers import init_worker
from det_jupyter.pytorch.rng import derive_seed


class DataLoader:
    """Describes how to load a dataset, with the arguments of torch's own DataLoader.

    Outside of a training run it can be iterated like any loader, over one pass of all records.

    Guarantees in training, given the same seed: every rank gets its rows of the same global
    batches, whatever the number of ranks, workers and pauses. What the dataset and the collate
    function draw from Python's, numpy's and torch's global generators is the same for any number
    of workers and after any pause, on the same number of ranks. Up to 4096 indices are drawn ahead
    from a user's sampler, with generators seeded for the pass. Up to 32 small batches of a
    TensorDataset are loaded at once, but never across the end of a pass.

    Args:
        dataset: Map-style, or a torch IterableDataset (read by every rank, see iterable.py).
        batch_size: Records of this rank in a global batch.

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
        if batch_size is None and batch_sampler is not None:
            batch_size = 1  # torch accepts None here; its default means the same
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.order = Order(
            dataset=dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            drop_last=drop_last,
        )
        # Pinning is for copies to a device; without one torch would only warn.
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self.persistent_workers = persistent_workers
        self._generator = generator
        self._worker_arguments: dict[str, Any] = {
            "timeout": timeout,
            "multiprocessing_context": multiprocessing_context,
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
        }
        self._worker_init_fn = worker_init_fn
        self._passes_begun = 0
        arguments = {"num_workers": num_workers} | self._worker_arguments
        problems = [*self.order.problems(), *_problems_of_workers(arguments)]
        if problems:
            raise ValueError("\n".join(f"DataLoader: {problem}" for problem in problems))

    @property
    def is_iterable(self) -> bool:
        """Whether the dataset is an IterableDataset."""
        return isinstance(self.dataset, IterableDataset)

    def __len__(self) -> int:
        """Return the number of batches in one pass of one rank alone."""
        batches = self.order.batches_per_pass(Division([self.batch_size], 0))
        if batches is None:
            raise TypeError(f"DataLoader: {type(self.order.source).__name__} has no __len__")
        return batches

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
        """Return a torch loader of one rank's batches, dealt as Determined deals them.

        Batch i of the stream goes whole to rank `i % num_replicas`. This is for code that shards
        by itself; training divides each global batch among the ranks instead. With an
        IterableDataset, each rank gets its rows of each batch here too.

        Args:
            repeat: Go on with the next pass when one ends, forever.
            skip: Batches of this rank to leave out.
            num_replicas: How many ranks share the stream.
            rank: Which of them this is.
            seed: Determines the order, unless the DataLoader was given a `generator`.
        """
        seed = self.effective_seed(seed)
        if self.is_iterable:
            division = Division([self.batch_size] * num_replicas, rank)
            reader = self.reader(division, seed=seed, skip=skip, repeat=repeat)
            batch_of = itemgetter(0)  # without its share
            loader = self.torch_loader(reader, seed, batch_size=None, collate_fn=batch_of)
            return LoaderView(self, loader)
        batches = _Dealt(
            self.order, seed=seed, repeat=repeat, skip=skip, num_replicas=num_replicas, rank=rank
        )
        return LoaderView(self, self.torch_loader(self.fetch(seed), seed, batch_sampler=batches))

    def effective_seed(self, seed: int) -> int:
        """Return the seed of the order: that of the user's `generator`, if there is one."""
        return seed if self._generator is None else self._generator.initial_seed()

    def fetch(self, seed: int) -> Fetch:
        """Return the loader of single batches of a map-style dataset."""
        return Fetch(self.dataset, self.collate_fn, seed)

    def reader(self, division: Division, *, seed: int, skip: int, repeat: bool) -> IterableReader:
        """Return the reader of an iterable dataset's batches."""
        return IterableReader(
            self.order, self.collate_fn, division, seed=seed, skip=skip, repeat=repeat
        )

    def torch_loader(
        self,
        dataset: Fetch | IterableReader,
        seed: int,
        *,
        collate_fn: Callable[[Any], Any] = as_is,
        **batching: Any,
    ) -> TorchDataLoader[Any]:
        """Return a torch loader with these workers, over a dataset that yields whole batches."""
        context = core.current()
        is_of_rank = bool(context and context.info and not context.info.plan.is_program)
        init = partial(init_worker, self.dataset, self._worker_init_fn, is_of_rank=is_of_rank)
        loader = TorchDataLoader(
            dataset,  # type: ignore[arg-type]  # a Fetch returns batches, not records
            num_workers=self.num_workers,
            collate_fn=collate_fn,
            pin_memory=self.pin_memory,
            worker_init_fn=init,
            # Without a generator torch would draw the workers' base seed from the global one.
            generator=torch.Generator().manual_seed(derive_seed("loader", seed)),
            **self._worker_arguments,
            **batching,
        )
        if self.num_workers:
            loader.multiprocessing_context = _with_flags(loader.multiprocessing_context)
        return loader


class Flag:
    """A `multiprocessing.Event` without a lock.

    A worker that is killed while it reads an Event holds the Event's lock forever, and its rank
    waits for that lock when it ends the workers.
    """

    def __init__(self) -> None:
        self._is_set = RawValue("b", 0)

    def is_set(self) -> bool:
        return bool(self._is_set.value)

    def set(self) -> None:
        self._is_set.value = 1


def _with_flags(given: BaseContext | None) -> BaseContext:
    """Return a context of multiprocessing whose `Event` is a `Flag`.

    Args:
        given: The context that is copied and changed; None: the context of the default start
            method.
    """
    context = copy(given or torch.multiprocessing.get_context(get_start_method()))
    vars(context)["Event"] = Flag
    return context


class LoaderView(TorchDataLoader[Any]):
    """A torch loader whose attributes are the dataset and arguments that the user has given.

    Iterating it iterates `loader`, whose dataset is a wrapper that returns whole batches.
    """

    def __init__(self, data_loader: DataLoader, loader: TorchDataLoader[Any]) -> None:
        order = data_loader.order
        has_sampler = order.batch_sampler is not None
        names = () if has_sampler else ("batch_size", "shuffle", "sampler", "drop_last")
        own = {name: getattr(order, name) for name in names}
        super().__init__(
            data_loader.dataset,
            batch_sampler=order.batch_sampler,
            collate_fn=data_loader.collate_fn,
            num_workers=data_loader.num_workers,
            pin_memory=data_loader.pin_memory,
            **own,
        )
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Any:
        return iter(self._loader)


class _Dealt(Sampler[list[int]]):
    """Yields one rank's batches: batch i of the stream goes whole to rank `i % num_replicas`.

    The length is the number of the rank's batches in one pass.
    """

    def __init__(
        self,
        order: Order,
        *,
        seed: int,
        repeat: bool,
        skip: int,
        num_replicas: int,
        rank: int,
    ) -> None:
        self._order = order
        self._seed = seed
        self._repeat = repeat
        self._first = skip * num_replicas + rank  # position in the stream of all ranks
        self._num_replicas = num_replicas
        self._rank = rank

    def __len__(self) -> int:
        batches = self._batches_per_pass()
        if batches is None:
            raise TypeError("DataLoader: the sampler has no __len__")
        return shard_length(batches, self._num_replicas, self._rank)

    def __iter__(self) -> Iterator[list[int]]:
        next_position = self._first
        position, first_pass = self._jump()
        for pass_idx in count(first_pass):
            begin = position
            for indices in self._order.batches(self._seed, pass_idx):
                if position == next_position:
                    yield BatchIndices.of(indices, position)
                    next_position += self._num_replicas
                position += 1
            if not self._repeat:
                return
            if position == begin:
                raise ValueError("the data loader has no batches to repeat")

    def _batches_per_pass(self) -> int | None:
        return self._order.batches_per_pass(Division([self._order.batch_size], 0))

    def _jump(self) -> tuple[int, int]:
        """Return the position at which the first pass to read begins, and that pass's number."""
        if not self._repeat or not self._order.can_jump:
            return 0, 0
        batches = self._batches_per_pass() or 0
        first_pass = self._first // batches if batches else 0
        return first_pass * batches, first_pass


def _problems_of_workers(arguments: Mapping[str, Any]) -> Iterator[str]:
    workers, timeout = arguments["num_workers"], arguments["timeout"]
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        yield f"got num_workers {workers!r}, expected 0 or more"
        return
    if timeout < 0:
        yield f"got timeout {timeout!r}, expected 0 or more seconds"
    if workers == 0:
        names = "timeout", "multiprocessing_context", "prefetch_factor", "persistent_workers"
        given = [name for name in names if arguments[name]]
        if given:
            yield f"{', '.join(given)} is for loader workers, expected num_workers of at least 1"


def shut_down(iterator: Any) -> None:
    """End the workers of a torch loader's iterator now, even if it is still referenced.

    torch ends them when the last reference is gone, but the traceback of an error holds
    references.
    """
    end = getattr(iterator, "_shutdown_workers", None)
    if end is not None:
        end()
