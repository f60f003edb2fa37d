"""Determined's dealing: batch i of the stream goes whole to rank `i % num_replicas`.

Training divides each global batch instead (see division.py). This is what `get_data_loader` gives
to code that shards by itself, and with one replica it is the whole of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from torch.utils.data import Sampler

from det_jupyter.pytorch.data.division import Division
from det_jupyter.pytorch.data.fetch import Rows
from det_jupyter.pytorch.data.order import Order
from det_jupyter.pytorch.data.samplers import shard_length


class Dealt(Sampler[list[int]]):
    """The batches of one rank. Its length is that of its share of one pass."""

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
        wanted = self._first
        position, first_pass = self._jump()
        for pass_idx in count(first_pass):
            begin = position
            for indices in self._order.batches(self._seed, pass_idx):
                if position == wanted:
                    yield Rows.of(indices, position)
                    wanted += self._num_replicas
                position += 1
            if not self._repeat:
                return
            if position == begin:
                raise ValueError("the data loader has no batches to repeat")

    def _batches_per_pass(self) -> int | None:
        return self._order.batches_per_pass(Division([self._order.batch_size], 0))

    def _jump(self) -> tuple[int, int]:
        """Return the position and number of the pass to begin with: the first that is wanted."""
        if not self._repeat or not self._order.can_jump:
            return 0, 0
        batches = self._batches_per_pass() or 0
        first_pass = self._first // batches if batches else 0
        return first_pass * batches, first_pass
