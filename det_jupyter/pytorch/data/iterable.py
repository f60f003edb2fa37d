"""Iterable datasets: every rank, and every worker of it, reads the same stream of records.

    records of a pass    0 1 2 3 4 5 6 7 8 9 ...      global batches of 4, two ranks
    rank 0               0 1     4 5     8 ...        collates its rows of each batch
    rank 1                   2 3     6 7   9 ...
    its worker w of n    collates batch k if k % n == w

The stream is read with generators seeded for (seed, pass), so all readers get the same records in
the same order, whatever the number of workers. Torch's worker info is hidden from the dataset
meanwhile, or the dataset might shard by itself. The cost is that each reader reads everything: use
a plain torch loader for a dataset that shards itself by rank and worker. A stream need not have a
length. After a pass comes the next. To continue after a pause, records that were trained are read
again, but not collated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, default_collate, get_worker_info
from torch.utils.data._utils import worker as torch_worker

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data.division import Division, Share
from det_jupyter.pytorch.data.fetch import Collate
from det_jupyter.pytorch.data.generators import OwnGenerators, batch_start, drawing_from
from det_jupyter.pytorch.data.order import Order, call_set_epoch
from det_jupyter.pytorch.messages import warn_user
from det_jupyter.pytorch.rng import derive_seed


class IterableReader(IterableDataset[Any]):
    """One rank's batches of an iterable dataset, as a dataset for torch's loader.

    They begin with global batch `skip`. With `repeat`, for training, pass follows pass, and a rank
    without records of a batch gets a stand-in.
    """

    def __init__(
        self,
        order: Order,
        collate_fn: Collate | None,
        division: Division,
        *,
        seed: int,
        skip: int,
        repeat: bool,
    ) -> None:
        self.dataset = order.dataset
        self._order = order
        self._collate = collate_fn or default_collate
        self._division = division
        self._seed = derive_seed("reader", seed)
        self._skip = skip
        self._repeat = repeat

    def __len__(self) -> int:
        """Return the number of global batches in a pass."""
        batches = self._order.batches_per_pass(self._division)
        if batches is None:
            raise TypeError(f"DataLoader: {type(self.dataset).__name__} has no __len__")
        return batches

    def __iter__(self) -> Iterator[tuple[Any, Share]]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        for position, (step, records, begin, share) in enumerate(self._parts()):
            if position % workers == worker:
                yield self._collate_part(records, step, begin), share

    def _parts(self) -> Iterator[tuple[int, list[Any], int, Share]]:
        step = pass_idx = 0
        while True:
            first = step
            for rows in self._read_pass(pass_idx):
                begin, end, share = self._division.rows(len(rows))
                if step >= self._skip and (share.records or self._repeat):
                    yield step, rows[begin:end], begin, share
                step += 1
            if not self._repeat:
                return
            if step == first:
                raise ConfigError([self._describe_end(pass_idx)])
            self._check_length(step - first, pass_idx)
            pass_idx += 1

    def _read_pass(self, pass_idx: int) -> Iterator[list[Any]]:
        stream = OwnGenerators(derive_seed("order", self._seed, pass_idx))
        with stream.in_use(), _worker_info_hidden():
            call_set_epoch(self.dataset, pass_idx)
            iterator = iter(self.dataset)
        while True:
            with stream.in_use(), _worker_info_hidden():
                rows = list(islice(iterator, self._division.total))
            is_short = len(rows) < self._division.total
            if rows and not (is_short and self._order.drop_last):
                yield rows
            if is_short:
                return

    def _collate_part(self, records: list[Any], step: int, begin: int) -> Any:
        if self._collate is default_collate:
            return default_collate(records)
        with drawing_from(batch_start(self._seed, step, begin)):
            return self._collate(records)

    def _describe_end(self, pass_idx: int) -> str:
        name = type(self.dataset).__name__
        where = f"build_training_data_loader: rank {self._division.rank}"
        if pass_idx == 0:
            which = f" of {self._division.total} records" if self._order.drop_last else ""
            return f"{where}: {name} yields no batch{which}, expected at least one in a pass"
        return (
            f"{where}: {name} yields nothing in pass {pass_idx}, after it did in earlier ones; "
            "its __iter__ has to begin anew each time it is called"
        )

    def _check_length(self, batches: int, pass_idx: int) -> None:
        expected = self._order.batches_per_pass(self._division)
        is_first = pass_idx == 0 and self._division.rank == 0
        info = get_worker_info()
        if expected in (None, batches) or not is_first or (info is not None and info.id > 0):
            return
        warn_user(
            f"{type(self.dataset).__name__}: __len__ makes {expected} global batches, but a pass "
            f"has {batches}; epochs are counted by __len__, and drift over the passes",
        )


@contextmanager
def _worker_info_hidden() -> Iterator[None]:
    info = torch_worker._worker_info
    torch_worker._worker_info = None
    try:
        yield
    finally:
        torch_worker._worker_info = info
