"""A rank's stream of batches, each with the rank's share of the global batch.

`DataLoaderStream` reads a det_jupyter DataLoader; its global batches are divided among the ranks:

    order or reader  ->  [workers]  ->  (batch, share)

With workers, torch requests the parts of batches ahead of time. Their shares are queued until the
batches arrive; torch keeps the order.

`PlainLoaderStream` reads any other iterable of batches: a torch DataLoader, a list. Each rank
iterates its own loader, pass after pass, and the loader has to yield different data on each rank
(`set_epoch` is called before each pass, on the loader, its samplers and its dataset, where it
exists). The sizes of other ranks' batches are not known, so all ranks have the same weight:
`total` is `records * size`. If the loaders have lengths, a pass is as long as the shortest of
them; else each rank begins its own next pass when one ends.

A pass of such a loader begins with generators seeded for (seed, rank, pass), from which torch's
shuffling samplers draw their order. So a paused run continues with the same order: batches that
were trained are loaded again and dropped, in a torch DataLoader without state those of the last
pass only, in any other loader those of all passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any, Protocol

from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Sampler

from det_jupyter.contract.values.text import count
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data.batches import pin
from det_jupyter.pytorch.data.division import Division, RankPart, Share, divide
from det_jupyter.pytorch.data.fetch import BatchIndices
from det_jupyter.pytorch.data.generators import OwnGenerators
from det_jupyter.pytorch.data.loader import DataLoader, shut_down
from det_jupyter.pytorch.data.order import call_set_epoch, can_jump
from det_jupyter.pytorch.data.workers import batches_of, report_unsent_batches
from det_jupyter.pytorch.rng import derive_seed


class BatchStream(Protocol):
    """One rank's batches, beginning at some step.

    The stream of a training never ends. The stream of a validation is one pass, and can be
    iterated again; workers with `persistent_workers` are kept from one iteration to the next until
    the stream is closed.
    """

    @property
    def batches_per_epoch(self) -> int | None:
        """The number of global batches in one pass; None if the data has no length."""

    @property
    def smallest_share(self) -> int | None:
        """The fewest records that a rank trains on in the short last batch of a pass.

        None if there is no such batch, if no rank gets fewer records of it than the smallest share
        of a full batch, or if the loader is of another kind.
        """

    def __iter__(self) -> Iterator[tuple[Any, Share]]:
        """Yield each batch, not moved to any device, and the rank's share of its global batch."""

    def close(self) -> None:
        """End the loader's workers. Idempotent."""


class DataLoaderStream:
    """The batches of a det_jupyter DataLoader, from global batch `skip` on.

    With `repeat` (training), the passes repeat without end, and a rank without records of a batch
    gets a stand-in. Without `repeat` the stream is one pass, in which such a rank gets no batch.
    """

    def __init__(
        self, data_loader: DataLoader, division: Division, *, seed: int, skip: int, repeat: bool
    ) -> None:
        self._data_loader = data_loader
        self._division = division
        self._seed = data_loader.effective_seed(seed)
        self._skip = skip
        self._repeat = repeat
        self._loader: TorchDataLoader[Any] | None = None  # whose workers serve pass after pass
        self._running: list[Any] = []  # torch's iterators, which own the workers

    @property
    def batches_per_epoch(self) -> int | None:
        return self._data_loader.order.batches_per_pass(self._division)

    @property
    def smallest_share(self) -> int | None:
        order, division = self._data_loader.order, self._division
        if order.drop_last or order.batch_sampler is not None:
            return None
        short = (order.length() or 0) % division.total
        # A rank without records of it gets a stand-in, which is no smaller than a share.
        smallest = min(filter(None, divide(short, division.batch_sizes)), default=division.total)
        return smallest if smallest < min(division.batch_sizes) else None

    def __iter__(self) -> Iterator[tuple[Any, Share]]:
        data_loader = self._data_loader
        if data_loader.is_iterable:
            return self._with_batch_noted(self._read())
        if data_loader.num_workers:
            return self._with_batch_noted(self._load_in_workers())
        return self._load_here()

    def close(self) -> None:
        """End the loader's workers, also those kept for the next validation."""
        self._loader = None
        while self._running:
            shut_down(self._running.pop())

    def _load_here(self) -> Iterator[tuple[Any, Share]]:
        data_loader, per_pass = self._data_loader, self.batches_per_epoch or 1
        fetch = data_loader.fetch(self._seed)
        is_cut = data_loader.order.batch_sampler is None  # a user's batches may be of any size
        at_once = fetch.batches_at_once(data_loader.batch_size) if is_cut else 1
        parts, step = self._parts(), self._skip
        try:
            # Never across the end of a pass: the trial may change the data before the next one.
            while group := list(islice(parts, min(at_once, per_pass - step % per_pass))):
                loaded = []
                for indices, share, step, begin in group:
                    batch = fetch.load(indices, step, begin)
                    loaded.append((pin(batch) if data_loader.pin_memory else batch, share))
                step += 1
                yield from loaded
        except Exception as error:  # the user's data set may raise anything
            self._add_note(error, step)
            raise

    def _load_in_workers(self) -> Iterator[tuple[Any, Share]]:
        def make() -> TorchDataLoader[Any]:
            data_loader = self._data_loader
            queued = _QueueingSampler(self)
            return data_loader.torch_loader(
                data_loader.fetch(self._seed), self._seed, batch_sampler=queued
            )

        loader = self._reused(make)
        queued = loader.batch_sampler
        assert isinstance(queued, _QueueingSampler)
        for batch in self._run(loader):
            yield batch, queued.shares.popleft()

    def _read(self) -> Iterator[tuple[Any, Share]]:
        data_loader = self._data_loader
        reader = data_loader.reader(
            self._division, seed=self._seed, skip=self._skip, repeat=self._repeat
        )
        if data_loader.num_workers == 0:
            for batch, share in reader:
                yield (pin(batch) if data_loader.pin_memory else batch), share
            return
        yield from self._run(
            self._reused(lambda: data_loader.torch_loader(reader, self._seed, batch_size=None))
        )

    def _reused(self, make: Callable[[], TorchDataLoader[Any]]) -> TorchDataLoader[Any]:
        """Return a loader: always the same one with `persistent_workers`, else a new one."""
        if not self._data_loader.persistent_workers:
            return make()
        if self._loader is None:
            self._loader = make()
        return self._loader

    def _run(self, loader: TorchDataLoader[Any]) -> Iterator[Any]:
        iterator: Any = iter(loader)
        if iterator not in self._running:  # persistent workers: the same iterator again
            self._running.append(iterator)
        try:
            yield from batches_of(iterator, self._division.rank)
        finally:
            if loader is not self._loader and iterator in self._running:
                self._running.remove(iterator)
                shut_down(iterator)

    def _parts(self) -> Iterator[RankPart]:
        parts = self._data_loader.order.parts(
            self._division, seed=self._seed, skip=self._skip, repeat=self._repeat
        )
        if self._repeat:
            return parts
        return (part for part in parts if part.share.records)

    def _with_batch_noted(
        self, batches: Iterator[tuple[Any, Share]]
    ) -> Iterator[tuple[Any, Share]]:
        """Yield the batches; add a note with the number of the batch to an error."""
        step = self._skip
        try:
            for step, loaded in enumerate(batches, self._skip + 1):  # noqa: B007  # for the error
                yield loaded
        except Exception as error:  # the user's data set may raise anything
            self._add_note(error, step)
            raise

    def _add_note(self, error: Exception, step: int) -> None:
        data_loader, rank = self._data_loader, self._division.rank
        where = (
            f" in {count(data_loader.num_workers, 'worker')}" if data_loader.num_workers else ""
        )
        error.add_note(
            f"This was while rank {rank} loaded batch {step} of "
            f"{type(data_loader.dataset).__name__}{where}."
        )


class _QueueingSampler(Sampler[list[int]]):
    """A sampler that yields the rows of each batch, and queues their shares."""

    def __init__(self, stream: DataLoaderStream) -> None:
        self._stream = stream
        self.shares: deque[Share] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        self.shares.clear()
        for indices, share, step, begin in self._stream._parts():
            self.shares.append(share)
            yield BatchIndices.of(indices, step, begin)


class PlainLoaderStream:
    """The batches of a loader of another kind, from batch `skip` on; see BatchStream."""

    smallest_share = None  # not known

    def __init__(
        self,
        loader: Iterable[Any],
        distributed: DistributedContext,
        *,
        seed: int,
        batches_per_epoch: int | None,
        batch_length: Callable[[Any], int],
        skip: int,
        repeat: bool,
    ) -> None:
        self.batches_per_epoch = batches_per_epoch
        self._loader = loader
        self._rank, self._size = distributed.rank, distributed.size
        self._seed = derive_seed("plain", seed, distributed.rank)
        self._batch_length = batch_length
        self._skip = skip
        self._repeat = repeat
        self._running: Any = None

    def __iter__(self) -> Iterator[tuple[Any, Share]]:
        for batch in self._batches():
            records = self._batch_length(batch)
            yield batch, Share(records, records * self._size)

    def close(self) -> None:
        """End the loader's workers, also persistent ones. Idempotent."""
        iterator, self._running = self._running, None
        if iterator is None:
            return
        shut_down(iterator)
        if getattr(self._loader, "persistent_workers", False):
            self._loader._iterator = None  # type: ignore[attr-defined]  # torch would reuse the ended workers

    def _batches(self) -> Iterator[Any]:
        per_pass = self.batches_per_epoch
        pass_idx = (
            self._skip // per_pass if per_pass and _has_stateless_passes(self._loader) else 0
        )
        step = pass_idx * (per_pass or 0)
        while True:
            first = step
            for batch in islice(self._pass(pass_idx, step), per_pass):
                if step >= self._skip:
                    yield batch
                step += 1
            if not self._repeat:
                return
            if step == first:
                raise ConfigError([self._describe_end(step)])
            pass_idx += 1

    def _pass(self, pass_idx: int, step: int) -> Iterator[Any]:
        report_unsent_batches()
        stream = OwnGenerators(derive_seed(self._seed, pass_idx))
        with stream.in_use():
            for shuffled in self._with_epochs():
                call_set_epoch(shuffled, pass_idx)
            self._running = iterator = iter(self._loader)
            # Without workers, torch's samplers draw when the first batch is requested.
            loaded = batches_of(iterator, self._rank)
            batches = list(islice(loaded, 1))
        yield from batches
        while batches:
            step += 1
            # Batches that are loaded again must not draw from the restored generators.
            with stream.in_use() if step < self._skip else nullcontext():
                batches = list(islice(loaded, 1))
            yield from batches

    def _with_epochs(self) -> list[Any]:
        """Return the objects on which to call `set_epoch`; some may be None or lack the method.

        The sampler inside a batch sampler is left out: `call_set_epoch` handles it with the batch
        sampler.
        """
        loader = self._loader
        names = "sampler", "batch_sampler", "dataset"
        sampler, batch_sampler, dataset = (getattr(loader, name, None) for name in names)
        is_inner = sampler is getattr(batch_sampler, "sampler", None)
        return [loader, batch_sampler, dataset, None if is_inner else sampler]

    def _describe_end(self, step: int) -> str:
        where = f"build_training_data_loader: rank {self._rank}"
        name = type(self._loader).__name__
        if step == 0:
            return f"{where}: the {name} has no batches, expected at least one"
        return (
            f"{where}: the {name} ended after {step} batches and yields nothing when it is "
            f"iterated again; return one that begins anew, or train for {step} batches at most"
        )


def _has_stateless_passes(loader: object) -> bool:
    """Return whether no pass depends on those before it: a torch DataLoader without state.

    Persistent workers keep their generators from pass to pass; a generator of the loader keeps its
    state, from which each pass's workers are seeded.
    """
    return (
        type(loader) is TorchDataLoader
        and loader.generator is None
        and not loader.persistent_workers
        and can_jump(loader.sampler, loader.batch_sampler)
    )
