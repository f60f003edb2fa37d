"""One of two ranks in a process of its own: arguments are RANK PORT TASK...

Prints a line of JSON for each task: what it returned, or its error.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader as TorchDataLoader

from det_jupyter.core import DistributedContext, local_chief_first
from det_jupyter.pytorch.data import DataLoader, open_training, open_validation
from tests.unit.pytorch.data_support import numbers, records_of

Task = Callable[[DistributedContext], Any]


def _first(context: DistributedContext, loader: Any, count: int, **options: Any) -> Any:
    stream = open_training(loader, context, seed=3, skip=0, batch_length=len, **options)
    found = [[records_of(b), s.records, s.total] for b, s in islice(stream, count)]
    stream.close()
    return found


def unequal_batch_sizes(context: DistributedContext) -> Any:
    return _first(context, DataLoader(numbers(10), 3 - context.rank), 4)


def different_lengths(context: DistributedContext) -> Any:
    return _first(context, DataLoader(numbers(10 + context.rank)), 1)


def different_kinds(context: DistributedContext) -> Any:
    return _first(context, DataLoader(numbers(4)) if context.rank else None, 1)


def different_generators(context: DistributedContext) -> Any:
    generator = torch.Generator().manual_seed(context.rank)
    loader = DataLoader(numbers(4), shuffle=context.rank == 0, generator=generator)
    return _first(context, loader, 1)


def uneven_plain_loaders(context: DistributedContext) -> Any:
    loader: Any = TorchDataLoader([torch.tensor(i) for i in range(4 + 3 * context.rank)], 2)  # type: ignore[arg-type]  # a list will do
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = _first(context, loader, 3)
    context.barrier()
    return [found, [str(warning.message) for warning in told]]


def an_empty_plain_loader(context: DistributedContext) -> Any:
    return _first(context, [[1]] * context.rank, 1)


def validations(context: DistributedContext) -> Any:
    loader = DataLoader(numbers(5), 2, num_workers=1, persistent_workers=True)
    found = []
    stream = open_validation(loader, context, seed=3, batch_length=len)
    for _ in range(2):
        found.append([records_of(batch) for batch, _ in stream])
    stream.close()
    return found


def prepared(context: DistributedContext) -> Any:
    with local_chief_first(context):
        marker = Path("prepared")
        was_there = marker.exists()
        marker.touch()
    return was_there


def preparation_fails(context: DistributedContext) -> Any:
    with local_chief_first(context):
        raise OSError(f"no network on rank {context.rank}")


def preparation_dies(context: DistributedContext) -> Any:
    with local_chief_first(context):
        os._exit(9)


def main(rank: int, port: int, tasks: list[str]) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ.update({name: str(value) for name, value in place.items()})
    store = f"tcp://127.0.0.1:{port}"
    timeout = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timeout)
    context = DistributedContext.from_torch_distributed()
    # Rank 0 holds the store: it may end only when the other has its groups.
    dist.barrier()
    for task in tasks:
        try:
            answer: Any = {"returned": globals()[task](context)}
        except Exception as error:
            answer = {"raised": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
