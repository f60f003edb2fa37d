"""Checks of a loader's arguments; all problems at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import DistributedSampler, IterableDataset

from det_jupyter.pytorch.data.order import Order


def problems_of_order(order: Order) -> Iterator[str]:
    """Yield what forbids this order of records."""
    yield from _problems_of_dataset(order)
    for sampler in (order.sampler, getattr(order.batch_sampler, "sampler", None)):
        if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
            yield (
                "got a torch DistributedSampler; leave it out, for the loader shards by itself "
                "(shuffle=True shuffles)"
            )
    if order.batch_sampler is not None:
        others = order.batch_size != 1, order.shuffle, order.sampler is not None, order.drop_last
        if any(others):
            yield "batch_sampler excludes batch_size, shuffle, sampler and drop_last"
        return
    size = order.batch_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        yield f"got batch_size {size!r}, expected at least 1"
    if order.sampler is not None and order.shuffle:
        yield "sampler excludes shuffle; shuffle in the sampler"


def problems_of_workers(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield what forbids loading in this way."""
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


def _problems_of_dataset(order: Order) -> Iterator[str]:
    name = type(order.dataset).__name__
    has_sampler = order.sampler is not None or order.batch_sampler is not None
    if isinstance(order.dataset, IterableDataset):
        if has_sampler or order.shuffle:
            yield (
                f"{name} is an IterableDataset, which excludes shuffle, sampler and "
                "batch_sampler: it yields its records in its own order"
            )
    elif not has_sampler and not hasattr(order.dataset, "__len__"):
        yield f"{name} has no __len__, expected one, or a sampler of its indices"
