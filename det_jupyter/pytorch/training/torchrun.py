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


@contextmanager
def joined(device: torch.device) -> Iterator[DistributedContext]:
    """Yield this process's place among the ranks. Collective if torchrun's variables are set.

    A process group that the script has made is used and left open. One that is made here is
    destroyed: a process that exits with an open group may be aborted by the group's threads.
    """
    had_group = dist.is_initialized()
    try:
        distributed = _join(device)
        yield distributed
        distributed.close()  # after an error it might wait for ranks that are gone
    finally:
        if not had_group and dist.is_initialized():
            dist.destroy_process_group()


def _join(device: torch.device) -> DistributedContext:
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not dist.is_initialized():
        return DistributedContext()
    if not dist.is_initialized():
        _begin_group(device)
    return DistributedContext.from_torch_distributed()


@contextmanager
def grouped(distributed: DistributedContext, device: torch.device) -> Iterator[None]:
    """Have a process group, over which replicas exchange gradients. Collective.

    The ranks of a script exchange objects without one. A group that the script has made is used.
    """
    if distributed.size == 1 or dist.is_initialized():
        yield
        return
    _begin_group(device)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _begin_group(device: torch.device) -> None:
    is_gpu = device.type == "cuda"
    dist.init_process_group("nccl" if is_gpu else "gloo", device_id=device if is_gpu else None)
