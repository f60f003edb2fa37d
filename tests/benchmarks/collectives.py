"""Collectives on objects: DistributedContext against torch.distributed, in the same processes.

    .venv/bin/python -m tests.benchmarks.collectives [--ranks 2 4] [--rounds 7]

Each round runs every contender at each size in turn, so that a busy moment affects all of them. A
time is the median over the rounds of the time per call on rank 0, in a series of calls. `torch` is
all_gather_object and broadcast_object_list over gloo. Prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.quick import arguments

QUICK = "--ranks 2 --rounds 1 --sizes 100"
KEYS = {"benchmark", "cpus", "results"}  # keys of the JSON in the last line

SIZES = (10, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_BYTES_PER_ROUND = 20_000_000
_MOST_CALLS = 200
Ways = dict[str, dict[str, Callable[[Any], object]]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args(arguments(QUICK))
    results = []
    for ranks in options.ranks:
        results += measure(ranks, options.rounds, options.sizes)
    _print_table(results)
    print(json.dumps({"benchmark": "collectives", "cpus": os.cpu_count(), "results": results}))


def measure(ranks: int, rounds: int, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row per collective and size, with the microseconds of each contender."""
    with tempfile.TemporaryDirectory(prefix="det-bench-") as folder:
        pids = []
        for rank in range(ranks):
            if (pid := os.fork()) == 0:
                _run_rank(folder, rank, ranks, rounds, sizes)
            pids.append(pid)
        for pid in pids:
            if os.waitpid(pid, 0)[1]:
                raise SystemExit("a rank has failed")
        rows: list[dict[str, Any]] = json.loads(Path(folder, "rows").read_text())
        return rows


def _run_rank(folder: str, rank: int, ranks: int, rounds: int, sizes: Sequence[int]) -> None:
    import torch
    import torch.distributed as dist

    code = 1
    try:
        torch.set_num_threads(1)
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        os.environ.update({name: str(value) for name, value in place.items()})
        store = f"file://{folder}/store"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
        rows = _measured(_ways(rank, ranks), ranks, rounds, sizes)
        if rank == 0:
            Path(folder, "rows").write_text(json.dumps(rows))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _ways(rank: int, ranks: int) -> Ways:
    import torch.distributed as dist

    from det_jupyter.core import DistributedContext

    in_group = DistributedContext.from_torch_distributed()
    by_hand = DistributedContext(
        rank=rank, size=ranks, local_rank=rank, local_size=ranks, cross_rank=0, cross_size=1
    )

    def allgather(value: Any) -> object:
        places: list[Any] = [None] * ranks
        dist.all_gather_object(places, value)
        return places

    def broadcast(value: Any) -> object:
        place = [value]
        dist.broadcast_object_list(place, src=0)
        return place

    return {
        "allgather": {
            "by_hand": by_hand.allgather,
            "from_torch_distributed": in_group.allgather,
            "torch": allgather,
        },
        "broadcast": {
            "by_hand": by_hand.broadcast,
            "from_torch_distributed": in_group.broadcast,
            "torch": broadcast,
        },
        "barrier": {
            "by_hand": lambda _: by_hand.barrier(),
            "from_torch_distributed": lambda _: in_group.barrier(),
            "torch": lambda _: dist.barrier(),
        },
    }


def _measured(ways: Ways, ranks: int, rounds: int, sizes: Sequence[int]) -> list[dict[str, Any]]:
    import torch.distributed as dist

    rows = []
    for collective, by_name in ways.items():
        for size in sizes if collective != "barrier" else [0]:
            value = os.urandom(size)
            calls = max(2, min(_MOST_CALLS, _BYTES_PER_ROUND // max(1, size)))
            times: dict[str, list[float]] = {name: [] for name in by_name}
            for _ in range(rounds + 1):  # the first round warms up
                for name, call in by_name.items():
                    dist.barrier()
                    began = time.perf_counter()
                    for _ in range(calls):
                        call(value)
                    dist.barrier()  # a broadcast has ended when all ranks have the object
                    times[name].append((time.perf_counter() - began) / calls * 1e6)
            us = {name: statistics.median(taken[1:]) for name, taken in times.items()}
            rows.append({"collective": collective, "ranks": ranks, "bytes": size, "us": us})
    return rows


def _print_table(rows: list[dict[str, Any]]) -> None:
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs; µs per call")
    print(
        "| collective | ranks | bytes | by hand | from_torch_distributed | torch "
        "| by hand / torch |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        us = row["us"]
        print(
            f"| {row['collective']} | {row['ranks']} | {row['bytes']:,} | {us['by_hand']:,.0f} "
            f"| {us['from_torch_distributed']:,.0f} | {us['torch']:,.0f} "
            f"| {us['by_hand'] / us['torch']:.2f} |"
        )


if __name__ == "__main__":
    main()
