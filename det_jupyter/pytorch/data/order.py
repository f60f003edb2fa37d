"""The order of the records, pass after pass, in global batches.

    one pass        the dataset's records: in order, shuffled, or as the user's sampler yields them
    [cut]           into global batches; the last one may be short, or is dropped
    [repeat]        pass after pass (training)
    [skip]          the batches that were trained before a pause

The order is a function of the seed alone. A shuffled pass is a permutation drawn for (seed, pass),
and a user's sampler draws from generators seeded for (seed, pass), the same on every rank. So each
rank computes the whole division by itself, and any position can be found again by counting. The
batches of a user's batch sampler stay whole: batch i of a pass goes to rank `i % size`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import torch
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data.division import Division, RankPart
from det_jupyter.pytorch.data.generators import OwnGenerators
from det_jupyter.pytorch.rng import derive_seed

T = TypeVar("T")

# Swapping the generators costs some us, so this many indices (or batches of them) of a user's
# sampler are drawn at once.
_INDICES_PER_SWAP = 4096
_BATCHES_PER_SWAP = 64
_BATCHES_PER_CUT = 64

# These have no state from one pass to the next, unless they have a generator of their own.
_STATELESS = (
    SequentialSampler,
    RandomSampler,
    WeightedRandomSampler,
    SubsetRandomSampler,
    DistributedSampler,  # `set_epoch` determines it
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of a dataset's records. The arguments are those of torch's DataLoader."""

    dataset: Any
    batch_size: int
    shuffle: bool
    sampler: Iterable[int] | None
    batch_sampler: Iterable[list[int]] | None
    drop_last: bool

    def problems(self) -> Iterator[str]:
        """Yield the problems of these arguments."""
        name = type(self.dataset).__name__
        has_sampler = self.sampler is not None or self.batch_sampler is not None
        if isinstance(self.dataset, IterableDataset):
            if has_sampler or self.shuffle:
                yield (
                    f"{name} is an IterableDataset, which excludes shuffle, sampler and "
                    "batch_sampler: it yields its records in its own order"
                )
        elif not has_sampler and not hasattr(self.dataset, "__len__"):
            yield f"{name} has no __len__, expected one, or a sampler of its indices"
        for sampler in (self.sampler, getattr(self.batch_sampler, "sampler", None)):
            if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
                yield (
                    "got a torch DistributedSampler; leave it out, for the loader shards by "
                    "itself (shuffle=True shuffles)"
                )
        size = self.batch_size
        if self.batch_sampler is not None:
            if size != 1 or self.shuffle or self.sampler is not None or self.drop_last:
                yield "batch_sampler excludes batch_size, shuffle, sampler and drop_last"
            return
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            yield f"got batch_size {size!r}, expected at least 1"
        if self.sampler is not None and self.shuffle:
            yield "sampler excludes shuffle; shuffle in the sampler"

    def length(self) -> int | None:
        """Return the number of records (with a batch sampler: batches) in a pass, or None."""
        return length_of(self.source)

    @property
    def source(self) -> Any:
        """The object whose length is that of a pass: dataset, sampler or batch sampler."""
        if self.batch_sampler is not None:
            return self.batch_sampler
        return self.dataset if self.sampler is None else self.sampler

    def batches_per_pass(self, division: Division) -> int | None:
        """Return the number of global batches in a pass; None if the data has no length."""
        length = self.length()
        if length is None:
            return None
        per_batch = division.total if self.batch_sampler is None else division.size
        batches, rest = divmod(length, per_batch)
        return batches + (rest > 0 and not self.drop_last)

    @property
    def can_jump(self) -> bool:
        """Whether a pass can be computed without those before it."""
        return can_jump(self.sampler, self.batch_sampler)

    def batches(self, seed: int, pass_idx: int) -> Iterator[list[int]]:
        """Return the batches of one pass as Determined makes them, each of them for one rank."""
        if self.batch_sampler is not None:
            return self._drawn(self.batch_sampler, seed, pass_idx, _BATCHES_PER_SWAP)
        indices = self._indices(seed, pass_idx)
        listed = indices.tolist() if isinstance(indices, torch.Tensor) else indices
        return iter(BatchSampler(listed, self.batch_size, self.drop_last))

    def parts(
        self, division: Division, *, seed: int, skip: int, repeat: bool
    ) -> Iterator[RankPart]:
        """Yield a rank's part of each global batch, beginning with the one numbered `skip`.

        Raises:
            ConfigError: A pass that is to be repeated has no batches.
        """
        pass_idx, step = 0, 0
        per_pass = self.batches_per_pass(division)
        if repeat and per_pass and self.can_jump:
            pass_idx = skip // per_pass
            step = pass_idx * per_pass
        while True:
            begin = step
            # Batches before `skip` need not be computed, unless a sampler has to draw them.
            jump = max(0, skip - step) if self.sampler is None else 0
            for part in self._parts_of_pass(division, seed, pass_idx, step, jump):
                step = part.step + 1
                if part.step >= skip:
                    yield part
            if not repeat:
                return
            if step == begin:
                raise ConfigError([self.describe_empty(division)])
            pass_idx += 1

    def describe_empty(self, division: Division) -> str:
        """Return the message for an order without batches."""
        length, name = self.length(), type(self.dataset).__name__
        if self.drop_last and length:
            return (
                f"build_training_data_loader: {name} has {length} records, fewer than the global "
                f"batch of {division.total}, and drop_last leaves none; "
                "expected at least one batch in a pass"
            )
        source = self.source
        what = name if source is self.dataset else f"{type(source).__name__} of {name}"
        return f"build_training_data_loader: {what} has no records, expected at least one"

    def _parts_of_pass(
        self, division: Division, seed: int, pass_idx: int, step: int, jump: int
    ) -> Iterator[RankPart]:
        """Return this rank's parts of one pass.

        Args:
            step: Number of the pass's first batch.
            jump: Batches at the beginning of the pass that the caller skips; those drawn from a
                sampler are returned all the same.
        """
        if self.batch_sampler is not None:
            drawn = self._drawn(self.batch_sampler, seed, pass_idx, _BATCHES_PER_SWAP)
            return _deal(drawn, division, step)
        indices = self._indices(seed, pass_idx)
        if isinstance(indices, (torch.Tensor, range)):
            return _cut(indices, division, step, jump, drop_last=self.drop_last)
        return _cut_drawn(indices, division, step, drop_last=self.drop_last)

    def _indices(self, seed: int, pass_idx: int) -> torch.Tensor | range | Iterator[int]:
        if self.sampler is not None:
            return self._drawn(self.sampler, seed, pass_idx, _INDICES_PER_SWAP)
        if self.shuffle:
            generator = torch.Generator().manual_seed(derive_seed("order", seed, pass_idx))
            return torch.randperm(len(self.dataset), generator=generator)
        return range(len(self.dataset))

    def _drawn(self, source: Iterable[T], seed: int, pass_idx: int, per_swap: int) -> Iterator[T]:
        """Iterate over a user's sampler, which draws from generators seeded for this pass."""
        stream = OwnGenerators(derive_seed("order", seed, pass_idx))
        with stream.in_use():
            call_set_epoch(source, pass_idx)
            iterator = iter(source)
        while True:
            with stream.in_use():
                chunk = list(islice(iterator, per_swap))
            yield from chunk
            if len(chunk) < per_swap:
                return


def length_of(sized: Any) -> int | None:
    """Return `len(sized)`; None if it has no length."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def can_jump(sampler: object, batch_sampler: object) -> bool:
    """Return whether a pass does not depend on those before it. A user's sampler may."""
    if batch_sampler is not None:
        inner = getattr(batch_sampler, "sampler", None)
        return type(batch_sampler) is BatchSampler and _is_stateless(inner)
    return sampler is None or _is_stateless(sampler)


def call_set_epoch(source: object, pass_idx: int) -> None:
    """Call `set_epoch` of the source and of its sampler, where they have this method."""
    for shuffled in (source, getattr(source, "sampler", None)):
        set_epoch = getattr(shuffled, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(pass_idx)


def _cut(
    indices: torch.Tensor | range, division: Division, step: int, jump: int, *, drop_last: bool
) -> Iterator[RankPart]:
    total = division.total
    num_full, rest = divmod(len(indices), total)
    begin, end, share = division.rows(total)
    # One at a time is slow; all at once would delay the first batch.
    for first in range(jump, num_full, _BATCHES_PER_CUT):
        last = min(first + _BATCHES_PER_CUT, num_full)
        chunk = indices[first * total : last * total]
        rows: Sequence[torch.Tensor | range]
        if isinstance(chunk, torch.Tensor):
            rows = chunk.view(-1, total)[:, begin:end].unbind()
        else:
            rows = [chunk[at + begin : at + end] for at in range(0, len(chunk), total)]
        yield from [RankPart(own, share, step + first + i, begin) for i, own in enumerate(rows)]
    if rest and not drop_last and jump <= num_full:
        begin, end, share = division.rows(rest)
        yield RankPart(indices[num_full * total :][begin:end], share, step + num_full, begin)


def _cut_drawn(
    indices: Iterator[int], division: Division, step: int, *, drop_last: bool
) -> Iterator[RankPart]:
    while rows := list(islice(indices, division.total)):
        if len(rows) < division.total and drop_last:
            return
        begin, end, share = division.rows(len(rows))
        yield RankPart(rows[begin:end], share, step, begin)
        step += 1


def _deal(batches: Iterator[list[int]], division: Division, step: int) -> Iterator[RankPart]:
    while group := list(islice(batches, division.size)):
        if not all(group):
            problem = f"batch {step * division.size + group.index([])} has no records"
            raise ConfigError([f"DataLoader: batch_sampler: {problem}, expected at least one"])
        own, share = division.deal(group)
        yield RankPart(own, share, step, min(division.rank, len(group) - 1))
        step += 1


def _is_stateless(sampler: object) -> bool:
    return isinstance(sampler, range) or (
        type(sampler) in _STATELESS and getattr(sampler, "generator", None) is None
    )
