"""The least that a recovery can take: `python -m tests.benchmarks.recovery_floor RANKS WIDTH`.

The ranks of a gang train the model of recovery.py, without det_jupyter. The last one is killed in
a batch. Those that are left keep their processes and states. A new one is forked, all make a new
group, rank 0 sends weights and states of the optimizer to it, and all train a batch. Prints a line
of JSON:

    fork_s     from the kill to the moment when all ranks have made the new group
    sent_s     from the kill to the moment when the new rank has the state
    floor_s    from the kill to the end of the first batch of all ranks after it
    cpu_s      CPU time of all ranks until then, from the last batch before the kill
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_FIRST = 3  # batches before the kill
_RECORDS = 8


class Rank:
    """A rank with its model, whose process outlives its groups."""

    def __init__(self, width: int, *, is_new: bool) -> None:
        layers = nn.Linear(16, width), nn.Dropout(0.2), nn.Linear(width, 16), nn.BatchNorm1d(16)
        with torch.device("meta"):
            self.model: nn.Module = nn.Sequential(*layers)
        self.model = self.model.to_empty(device="cpu")
        self.optimizer = torch.optim.Adam(self.model.parameters())
        for tensor in self.model.state_dict().values():
            tensor.zero_()
        if is_new:  # its optimizer gets a state to receive into
            for one in self.model.parameters():
                self.optimizer.state[one] = {
                    "step": torch.zeros(()),
                    "exp_avg": torch.zeros_like(one),
                    "exp_avg_sq": torch.zeros_like(one),
                }

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield the state."""
        yield from self.model.state_dict().values()
        for state in self.optimizer.state.values():
            yield from state.values()

    def join(self, store: str, rank: int, size: int) -> None:
        """Make a group."""
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)

    def wrap(self) -> None:
        """Prepare the exchange of gradients in the group."""
        self.trained = DistributedDataParallel(
            self.model, init_sync=False, gradient_as_bucket_view=True
        )

    def train(self) -> None:
        """Train a batch."""
        batch = torch.ones(_RECORDS, 16)
        self.optimizer.zero_grad()
        (self.trained(batch) - batch).square().mean().backward()
        self.optimizer.step()


def run(rank: int, size: int, width: int, stores: list[str], told: Connection, new: bool) -> None:
    """Run a rank: train until one is killed, unless it is new; then recover."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    began = 0.0
    one = Rank(width, is_new=new)
    if not new:
        one.join(stores[0], rank, size)
        one.wrap()
        for index in range(10**6):
            if index == _FIRST:
                told.send(time.time())
            began = time.process_time()
            try:
                one.train()
            except RuntimeError:
                break
        del one.trained
        dist.destroy_process_group()
    one.join(stores[1], rank, size)
    at = [time.time()]
    for tensor in one.tensors():
        dist.broadcast(tensor, 0)
    at.append(time.time())
    one.wrap()
    one.train()
    told.send([*at, time.time(), time.process_time() - began])


def main() -> None:
    """Measure, and print a line of JSON."""
    size, width = int(sys.argv[1]), int(sys.argv[2])
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # imports, as the fork server does
    importlib.import_module("torch._dynamo")
    processes = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        stores = [str(Path(folder) / name) for name in "ab"]

        def start(rank: int, *, new: bool = False) -> tuple[Any, Connection]:
            ours, theirs = processes.Pipe()
            process = processes.Process(
                target=run, args=(rank, size, width, stores, theirs, new), daemon=True
            )
            process.start()
            return process, ours

        ranks = [start(rank) for rank in range(size)]
        for _, told in ranks:
            told.recv()
        time.sleep(0.5)
        killed, _ = ranks.pop()
        began = time.time()
        os.kill(killed.pid, signal.SIGKILL)
        killed.join()
        ranks.append(start(size - 1, new=True))
        *times, cpu = zip(*(told.recv() for _, told in ranks), strict=True)
        found = [*(max(at) - began for at in times), sum(cpu)]
        for process, _ in ranks:
            process.join()
    names = ("fork_s", "sent_s", "floor_s", "cpu_s")
    print(json.dumps(dict(zip(names, (round(one, 3) for one in found), strict=True))))


if __name__ == "__main__":
    main()
