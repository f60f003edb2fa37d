"""Joining the ranks of a script under torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from det_jupyter.core import DistributedContext


def choose_device() -> torch.device:
    """Return this process's device: the GPU of its local rank, or the CPU if there are too few."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    needed = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if not torch.cuda.is_available() or torch.cuda.device_count() < needed:
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def join(device: torch.device) -> DistributedContext:
    """Return this process's place among the ranks. Collective if torchrun's variables are set.

    A process group that the script has made already is used as it is.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not dist.is_initialized():
        return DistributedContext()
    if not dist.is_initialized():
        is_gpu = device.type == "cuda"
        dist.init_process_group("nccl" if is_gpu else "gloo", device_id=device if is_gpu else None)
    return DistributedContext.from_torch_distributed()


@contextmanager
def leaving_the_group() -> Iterator[None]:
    """Let the block join the ranks; what it has made for that is ended with it.

    A process that exits with a group still open may be aborted by the threads that serve it.
    """
    had_group = dist.is_initialized()
    try:
        yield
    finally:
        if not had_group and dist.is_initialized():
            dist.destroy_process_group()
