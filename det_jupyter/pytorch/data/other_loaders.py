"""Loaders of other kinds: a torch DataLoader, a list of batches, any iterable.

Each rank iterates its own loader, pass after pass. The loader has to give each rank different data
(`set_epoch` is called before each pass, on the loader, its samplers and its dataset, where
there is one). The sizes of other ranks' batches are not known, so all ranks have the same weight:
`total` is `records * size`. If the loaders have lengths, a pass is as long as the shortest of
them; else each rank begins its own next pass when one ends.

A pass begins with generators seeded for (seed, rank, pass), from which torch's shuffling samplers
take their order, so that a paused run continues with the same order: what was trained is loaded
again and dropped. Of a torch DataLoader that keeps nothing from pass to pass, this is what was
trained of the last pass; of anything else, all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader as TorchDataLoader

from det_jupyter.core.distributed import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data.division import Share
from det_jupyter.pytorch.data.draws import Draws
from det_jupyter.pytorch.data.loader import shut_down
from det_jupyter.pytorch.data.order import call_set_epoch, can_jump
from det_jupyter.pytorch.rng import derive_seed


class PlainStream:
    """The batches of a loader that is not ours, from batch `skip` on; see BatchStream."""

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
        """End the workers, those too that persist over passes."""
        iterator, self._running = self._running, None
        if iterator is None:
            return
        shut_down(iterator)
        if getattr(self._loader, "persistent_workers", False):
            self._loader._iterator = None  # type: ignore[attr-defined]  # or torch would wake them

    def _batches(self) -> Iterator[Any]:
        per_pass = self.batches_per_epoch
        pass_idx = self._skip // per_pass if per_pass and _begins_anew(self._loader) else 0
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
        stream = Draws(derive_seed(self._seed, pass_idx))
        with stream.in_use():
            for shuffled in self._with_epochs():
                call_set_epoch(shuffled, pass_idx)
            self._running = iterator = iter(self._loader)
            # With no workers, torch's samplers draw when the first batch is asked for.
            batches = list(islice(iterator, 1))
        yield from batches
        while batches:
            step += 1
            # What is loaded again must not disturb the generators that were restored.
            with stream.in_use() if step < self._skip else nullcontext():
                batches = list(islice(iterator, 1))
            yield from batches

    def _with_epochs(self) -> list[Any]:
        """Return what may have `set_epoch`; a batch sampler's own sampler is called with it."""
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


def _begins_anew(loader: object) -> bool:
    """Return whether no pass depends on those before it: what is known to keep nothing.

    Persistent workers keep their generators from pass to pass; a generator of the loader does too,
    since it seeds each pass's workers.
    """
    return (
        type(loader) is TorchDataLoader
        and loader.generator is None
        and not loader.persistent_workers
        and can_jump(loader.sampler, loader.batch_sampler)
    )
