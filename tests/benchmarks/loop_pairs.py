"""The training loops of a contender of loop_overhead.py and of its bare loop."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.benchmarks.loop_contender import RANK_VARIABLE, RIVALS, TWO_RANKS, Cost
from tests.benchmarks.loop_rivals import Contender, open_rival
from tests.benchmarks.loop_steps import (
    BATCH_SIZE,
    STEPS,
    Records,
    Rows,
    Step,
    Stopwatch,
    bare,
    bare_loop,
    make_dataset,
    make_loader,
    make_model,
)

PLACE_VARIABLE = "DET_BENCH_PLACE"  # path of the file by which the two ranks find each other


def bare_ddp(step: Step, batches: int) -> Cost:
    """Train with the bare loop on two ranks."""
    dataset = make_dataset()
    sampler: Any = torch.utils.data.DistributedSampler(dataset, shuffle=True)
    loader = torch.utils.data.DataLoader(dataset, BATCH_SIZE, sampler=sampler)
    model = torch.nn.parallel.DistributedDataParallel(make_model(step))
    return bare_loop(model, loader, Stopwatch(batches))


def open_contender(name: str) -> tuple[Contender, Contender]:
    """Return the bare loop and the contender that is compared with it.

    Raises:
        ImportError: The contender is not installed.
    """
    if name in RIVALS:
        return bare, open_rival(name)
    from tests.benchmarks.loop_ours import open_ours

    raw_rows = True if name.endswith("timings") else None
    match name:
        case "ours_ddp":
            return bare_ddp, open_ours()
        case "ours_check":
            return open_ours(check_ranks="never"), open_ours()
        case "ours":
            return bare, open_ours()
        case "ours_rows" | "ours_rows_timings":
            return _bare_over(Rows()), open_ours(raw_rows)
        case "ours_dataset" | "ours_dataset_timings":
            own = open_ours(raw_rows, dataset=Records())
            return _bare_over(make_loader(Records())), own
        case "timings_ddp":
            return open_ours(False), open_ours()
        case "raw_rows":
            return open_ours(False), open_ours(True)
        case _:
            return bare, open_ours(True)


def _bare_over(loader: Any) -> Contender:
    def train(step: Step, batches: int) -> Cost:
        return bare(step, batches, loader)

    return train


@contextmanager
def two_ranks(name: str) -> Iterator[None]:
    """Run as one of two ranks with a gloo group; the first rank starts and ends the second."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rank = int(os.environ.get(RANK_VARIABLE, "0"))
    with ExitStack() as on_exit:
        if rank == 0:
            folder = on_exit.enter_context(tempfile.TemporaryDirectory(prefix="det-bench-"))
            os.environ[PLACE_VARIABLE] = str(Path(folder) / "place")
            second = subprocess.Popen(
                [sys.executable, "-m", "tests.benchmarks.loop_contender", name],
                env={**os.environ, RANK_VARIABLE: "1"},
                stdin=subprocess.DEVNULL,
            )
            on_exit.callback(second.wait)
            on_exit.callback(second.terminate)
        place = f"file://{os.environ[PLACE_VARIABLE]}"
        dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
        yield


def orders(rank: int) -> Iterator[tuple[str, int]]:
    """Yield step and number of batches of each request; rank 1 gets them from rank 0."""
    while True:
        line = [sys.stdin.readline() if rank == 0 else ""]
        if dist.is_initialized():
            dist.broadcast_object_list(line)
        if not line[0]:
            return
        step, batches = line[0].split()
        yield step, int(batches)


def serve(name: str, tell: Callable[[dict[str, Any]], None]) -> None:
    """Measure on request until there are no more requests."""
    rank = int(os.environ.get(RANK_VARIABLE, "0"))
    with ExitStack() as on_exit:
        if name in TWO_RANKS:
            on_exit.enter_context(two_ranks(name))
        plain, own = open_contender(name)
        tell({"ready": name})
        for turn, (step, batches) in enumerate(orders(rank)):
            times = {}
            for contender in (plain, own) if turn % 2 else (own, plain):
                times[contender is own] = contender(STEPS[step], batches)
            tell({"bare": times[False], "own": times[True]})
