"""What the copies of sharded models cost a step (pytorch/training/shard_copies.py).

    python -m tests.benchmarks.shard_copies [--ranks 2] [--mb 200] [--records 64] [--pairs 20]

Two ranks train layers of equal width with Adam, divided by FSDP, with a copy after every second
step, so that steps with and without it meet the same load. Prints one line of JSON, of rank 0:

    rank_mb         of weights and optimizer that a rank has, which are copied
    step_ms         a step without a copy: median
    copy_ms         the copy and the exchange with all ranks after it: median
    copy_percent    of the step
    sent_ms         to send the part to another rank by gloo, and to receive another one's, which
                    copies on other computers would take: median
    ..._cpu_...     the same in time of the rank's process, which other work disturbs less
"""

from __future__ import annotations

import argparse
import json
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from det_jupyter.agent.tunnel.copies import holding_copies
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.core import DistributedContext
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.parallel import ParallelOptions
from det_jupyter.pytorch.training.shard_copies import ShardCopies
from tests.benchmarks.quick import arguments
from tests.forks import torch_source
from tests.integration.parallel_ranks import RankRunner

QUICK = "--mb 1 --pairs 2"
KEYS = {
    "ranks", "rank_mb", "step_ms", "copy_ms", "copy_percent", "sent_ms", "sent_percent",
    "step_cpu_ms", "copy_cpu_ms", "copy_cpu_percent", "sent_cpu_ms", "sent_cpu_percent",
}  # fmt: skip
_LAYERS = 8
_FIRST = 2  # steps that are not measured: memory is new


def measure(
    distributed: DistributedContext, mb: float, records: int, pairs: int, folder: str
) -> dict[str, Any]:
    """Return what this rank measured."""
    torch.set_num_threads(1)
    width = int((mb * 1e6 * distributed.size / (3 * 4 * _LAYERS)) ** 0.5)
    model: nn.Module = nn.Sequential(*(nn.Linear(width, width) for _ in range(_LAYERS)))
    options = ParallelOptions(sharding="fsdp")
    model = parallel.parallelize(model, torch.device("cpu"), distributed, options)
    optimizer = torch.optim.Adam(model.parameters())
    copies = ShardCopies(distributed, [model], [optimizer], RunDir(Path(folder)))
    batch = torch.randn(records, width)
    steps, noted = list[torch.Tensor](), list[torch.Tensor]()
    for index in range(2 * (pairs + _FIRST)):
        began = _clocks()
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ended = _clocks()
        if index % 2:
            copies.note(index)
            noted.append(_clocks() - ended)
        else:
            distributed.barrier()
            steps.append(_clocks() - began)
    parts = [*model.parameters(), *(v for s in optimizer.state.values() for v in s.values())]
    num_bytes = sum(parallel.local_part(part.detach()).nbytes for part in parts)
    most = max(distributed.allgather(num_bytes))
    sent = [_send(distributed, most) for _ in range(pairs + _FIRST)]
    (step, step_cpu), (copy, copy_cpu), (send, send_cpu) = (
        (1e3 * torch.stack(found[_FIRST:]).median(dim=0).values).tolist()
        for found in (steps, noted, sent)
    )
    return {
        "ranks": distributed.size,
        "rank_mb": round(num_bytes / 1e6, 1),
        "step_ms": round(step, 2),
        "copy_ms": round(copy, 3),
        "copy_percent": round(100 * copy / step, 1),
        "sent_ms": round(send, 2),
        "sent_percent": round(100 * send / step, 1),
        "step_cpu_ms": round(step_cpu, 2),
        "copy_cpu_ms": round(copy_cpu, 3),
        "copy_cpu_percent": round(100 * copy_cpu / step_cpu, 1),
        "sent_cpu_ms": round(send_cpu, 2),
        "sent_cpu_percent": round(100 * send_cpu / step_cpu, 1),
    }


def _send(distributed: DistributedContext, num_bytes: int) -> torch.Tensor:
    """Send so many bytes to the next rank, and receive those of the one before."""
    own = torch.ones(num_bytes, dtype=torch.uint8)
    other, rank, size = torch.empty_like(own).fill_(0), distributed.rank, distributed.size
    distributed.barrier()
    began = _clocks()
    for work in [dist.isend(own, (rank + 1) % size), dist.irecv(other, (rank - 1) % size)]:
        assert work is not None
        work.wait()
    return _clocks() - began


def _clocks() -> torch.Tensor:
    return torch.tensor([time.perf_counter(), time.process_time()], dtype=torch.float64)


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mb", type=float, default=200, help="weights and optimizer of a rank")
    parser.add_argument("--records", type=int, default=64, help="of a rank's batch")
    parser.add_argument("--pairs", type=int, default=20, help="of steps")
    options = parser.parse_args(arguments(QUICK))
    run = RankRunner(torch_source())
    measured = import_module("tests.benchmarks.shard_copies").measure  # ranks import it by name
    num = options.ranks
    with (
        TemporaryDirectory() as folder,
        holding_copies(RunDir(Path(folder)), range(num), [""] * num),
    ):
        how = (options.mb, options.records, options.pairs, folder)
        print(json.dumps(run(measured, num, *how)[0]))


if __name__ == "__main__":
    main()
