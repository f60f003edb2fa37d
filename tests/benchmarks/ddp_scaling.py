"""The cost of several ranks: the exchange of gradients, and whole steps, against plain torch.

    python -m tests.benchmarks.ddp_scaling [--quick] [--ranks N] [--share-device]

Two tables, then JSON in the last line.

1. Bus bandwidth of an all-reduce, 2 (n - 1) / n * bytes / time, by size of the message: `plain` is
   a loop of `dist.all_reduce`; `hand` and `ours` are forward and backward passes of a model with
   one parameter of that size, through torch's DistributedDataParallel and through `parallelize`,
   which also compute the gradient and copy it into its bucket.
2. Steps of a ResNet-50 and a GPT-2 small: `hand` is torch's DistributedDataParallel in a loop
   written out; the others are `parallelize` in the same loop, by kind of compression.

All contenders live in the same processes and take turns, round after round. A ratio is the median
over the rounds of own time to the time of `hand` in the same round: below 1 is faster.

Ranks are one for each CUDA device, else 2 on the CPU. `--share-device` puts all on one device:
NCCL refuses that unless ranks seem to be on different computers, so they use the loopback network,
and the software is measured, not a link.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch.parallel import ParallelOptions, parallelize
from tests.benchmarks.ddp_models import GPT2, ResNet

KINDS: dict[str, ParallelOptions] = {
    "ours": ParallelOptions(),
    "ours_fp16": ParallelOptions(compression="fp16"),
    "ours_bf16": ParallelOptions(compression="bf16"),
    "ours_powersgd": ParallelOptions(compression="powersgd"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The amount of measurements."""

    message_kb: tuple[int, ...]
    messages: int
    rounds: int
    steps: int
    warm_up: int  # steps; PowerSGD begins after its tenth


FULL = Size(
    message_kb=(64, 1024, 16 << 10, 128 << 10, 512 << 10), messages=20, rounds=9, steps=10,
    warm_up=15,
)  # fmt: skip
QUICK = Size(message_kb=(64, 1024), messages=3, rounds=3, steps=2, warm_up=12)


class OneParameter(nn.Module):
    """A model with a single parameter, to measure the exchange of its gradient."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(numbers))

    def forward(self) -> torch.Tensor:
        """Return a loss that depends on the whole parameter."""
        return self.weight.sum()


class Rank:
    """One rank, which measures together with the others."""

    def __init__(self, size: Size, device: torch.device) -> None:
        self.size = size
        self.device = device
        rank, num_ranks = dist.get_rank(), dist.get_world_size()
        self.distributed = DistributedContext(
            rank=rank,
            size=num_ranks,
            local_rank=rank,
            local_size=num_ranks,
            cross_rank=0,
            cross_size=1,
        )

    def measure(self, contenders: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
        """Return the times of each contender in seconds, by round: those of the slowest rank."""
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(self.size.rounds):
            for name, run in contenders.items():
                self._wait()
                dist.barrier()
                start = time.perf_counter()
                run()
                self._wait()
                taken = torch.tensor([time.perf_counter() - start], device=self.device)
                dist.all_reduce(taken, op=dist.ReduceOp.MAX)
                times[name].append(float(taken))
        return times

    def measure_messages(self, kilobytes: int) -> dict[str, float]:
        """Return bandwidths in GB/s, and ratios to DDP's times."""
        numbers = kilobytes * 256
        message = torch.zeros(numbers, device=self.device)
        options = {"ours": KINDS["ours"], "ours_fp16": KINDS["ours_fp16"]}
        models = {
            name: parallelize(
                OneParameter(numbers).to(self.device), self.device, self.distributed, kind
            )
            for name, kind in options.items()
        }

        def plain() -> None:
            for _ in range(self.size.messages):
                dist.all_reduce(message)

        def train(model: nn.Module) -> Callable[[], None]:
            def run() -> None:
                for _ in range(self.size.messages):
                    model().backward()
                    model.zero_grad()

            return run

        models["hand"] = self._by_hand(OneParameter(numbers))
        contenders = {"plain": plain} | {name: train(model) for name, model in models.items()}
        for run in contenders.values():
            run()
        times = self.measure(contenders)
        ranks = self.distributed.size
        moved = 2 * (ranks - 1) / ranks * kilobytes * 1024 * self.size.messages
        found = {f"{name}_gb_s": moved / median(taken) / 1e9 for name, taken in times.items()}
        return found | _ratios(times, "hand")

    def measure_steps(
        self, make: Callable[[], nn.Module], batch: torch.Tensor
    ) -> dict[str, float]:
        """Return the records per second of all ranks, and ratios to the loop written by hand."""
        wrapped = {"hand": self._by_hand(make())}
        for name, options in KINDS.items():
            model = make().to(self.device)
            wrapped[name] = parallelize(model, self.device, self.distributed, options)
        contenders = {name: self._trainer(model, batch) for name, model in wrapped.items()}
        for run in contenders.values():
            run(self.size.warm_up)
        steps = self.size.steps
        times = self.measure({name: partial(run, steps) for name, run in contenders.items()})
        records = len(batch) * self.distributed.size * steps
        found = {f"{name}_per_s": records / median(taken) for name, taken in times.items()}
        return found | _ratios(times, "hand")

    def _by_hand(self, model: nn.Module) -> nn.Module:
        ids = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(model.to(self.device), device_ids=ids)

    def _trainer(self, model: nn.Module, batch: torch.Tensor) -> Callable[[int], None]:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        kind = self.device.type

        def run(steps: int) -> None:
            for _ in range(steps):
                with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
                    loss = model(batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

        return run

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _ratios(times: dict[str, list[float]], reference: str) -> dict[str, float]:
    return {
        f"{name}_ratio": median(
            own / bare for own, bare in zip(taken, times[reference], strict=True)
        )
        for name, taken in times.items()
        if name != reference
    }


def run_rank(store: str, rank: int, ranks: int, *, quick: bool, share_device: bool) -> None:
    """Measure with the other ranks; the chief prints the results as JSON."""
    use_cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{0 if share_device else rank}" if use_cuda else "cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if use_cuda else "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    size = QUICK if quick else FULL
    ours = Rank(size, device)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if use_cuda else "CPU",
        "torch": torch.__version__,
        "ranks": ranks,
        "share_device": share_device,
        "all_reduce": {f"{kb}_kb": ours.measure_messages(kb) for kb in size.message_kb},
    }
    images = torch.randn(*((4, 3, 32, 32) if quick else (64, 3, 224, 224)), device=device)
    tokens = torch.randint(0, 500, (2, 32) if quick else (8, 1024), device=device)
    found["resnet50"] = ours.measure_steps(lambda: ResNet(8 if quick else 64), images)
    small = {"layers": 2, "width": 64, "words": 500}
    found["gpt2"] = ours.measure_steps(lambda: GPT2(**small) if quick else GPT2(), tokens)
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(ranks: int, *, quick: bool, share_device: bool) -> dict[str, Any]:
    """Run all ranks and return the results; if one fails, end the others."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "tests.benchmarks.ddp_scaling", "--ranks", str(ranks)]
        argv += ["--store", f"{folder}/store"]
        argv += ["--quick"] * quick + ["--share-device"] * share_device
        processes = [
            subprocess.Popen(
                [*argv, "--rank", str(rank)],
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
                env=os.environ | ({"NCCL_HOSTID": f"rank-{rank}"} if share_device else {}),
            )
            for rank in range(ranks)
        ]
        try:
            output, _ = processes[0].communicate()
            codes = [process.wait() for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    if any(codes):
        raise SystemExit(f"ranks ended with {codes}")
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def print_tables(found: dict[str, Any]) -> None:
    """Print the tables."""
    shared = ", sharing it" if found["share_device"] else ""
    print(f"{found['ranks']} ranks on {found['device']}{shared}, torch {found['torch']}\n")
    print("all-reduce, bus bandwidth   plain GB/s   hand GB/s   ours GB/s   ours/hand   fp16/hand")
    for size, row in found["all_reduce"].items():
        bandwidths = "  ".join(
            f"{row[f'{kind}_gb_s']:10.2f}" for kind in ("plain", "hand", "ours")
        )
        ratios = f"{row['ours_ratio']:9.3f}   {row['ours_fp16_ratio']:9.3f}"
        print(f"{size.replace('_', ' '):>25}   {bandwidths}   {ratios}")
    for model in ("resnet50", "gpt2"):
        row = found[model]
        print(f"\n{model:<25}    records/s   ratio of times")
        print(f"{'hand-written DDP loop':>25}   {row['hand_per_s']:10.1f}            1.000")
        for name in KINDS:
            print(
                f"{name.replace('_', ', '):>25}   {row[f'{name}_per_s']:10.1f}   "
                f"{row[f'{name}_ratio']:14.3f}"
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, seconds on a CPU")
    parser.add_argument("--ranks", type=int, default=max(torch.cuda.device_count(), 1))
    parser.add_argument("--share-device", action="store_true", help="all ranks on one GPU")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    kinds = {"quick": options.quick, "share_device": options.share_device}
    if options.rank is not None:
        run_rank(options.store, options.rank, options.ranks, **kinds)
        return
    has_cuda = torch.cuda.is_available()
    ranks = options.ranks if has_cuda or options.ranks > 1 else 2
    if has_cuda and ranks > torch.cuda.device_count() and not options.share_device:
        parser.error(
            f"--ranks: got {ranks}, and there are {torch.cuda.device_count()} CUDA devices; "
            "add --share-device to put all ranks on one"
        )
    found = run_ranks(ranks, **kinds)
    print_tables(found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
