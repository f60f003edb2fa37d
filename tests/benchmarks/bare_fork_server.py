"""The lower bound of a start: a process with torch forks two ranks, which take a first DDP step.

    python -m tests.benchmarks.bare_fork_server      each line of stdin requests a start
    [0.0021, 0.0174, 0.0263, 0.0381]                 answers with seconds since then

The numbers are the times at which the last rank was forked, had its gloo group and had wrapped its
model, and at which the chief had stepped. There are no masters, plans, capsules or control groups.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import IO, NoReturn

import torch
import torch._dynamo
import torch.distributed as dist
import torch.profiler._cupti_monitor
import torch.utils.data
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from det_jupyter.rank.rendezvous import PromptStore

STAGES = ("fork", "group", "build", "first step")


def take_first_step(rank: int, store: Path, answer: IO[bytes], began_at: float) -> NoReturn:
    """Run as one of two ranks."""
    moments = [time.time()]
    torch.set_num_threads(1)
    meeting = PromptStore(str(store), 2, timedelta(seconds=60))
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=2)
    moments.append(time.time())
    torch.manual_seed(0)
    inputs, targets = torch.randn(32, 64), torch.randint(0, 10, (32,))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    moments.append(time.time())
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    moments.append(time.time())
    answer.write(json.dumps([rank, [at - began_at for at in moments]]).encode() + b"\n")
    answer.flush()
    os._exit(0)


def start_once(folder: Path) -> list[float]:
    """Fork two ranks and return the seconds until each moment."""
    began_at = time.time()
    reader, writer = os.pipe()
    for rank in range(2):
        if os.fork() == 0:
            try:
                take_first_step(rank, folder / "store", os.fdopen(writer, "wb"), began_at)
            finally:
                os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as answers:
        by_rank = dict(json.loads(line) for line in answers)
    for _ in range(2):
        os.wait()
    chief, other = by_rank[0], by_rank[1]
    return [*(max(pair) for pair in zip(chief[:-1], other[:-1], strict=True)), chief[-1]]


def main() -> None:
    """Handle requests until stdin is closed."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for _ in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(start_once(Path(folder))), flush=True)


if __name__ == "__main__":
    main()
