"""The device and the `torch.distributed` process group of a rank, as Determined sets them up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from det_jupyter import core
from det_jupyter.errors import ConfigError


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
def open_distributed(device: torch.device, caller: str) -> Iterator[core.DistributedContext]:
    """Yield this process's distributed context. Collective if torchrun's variables are set.

    Raises:
        ConfigError: This process is the only one of a trial that has several slots.
    """
    is_lone = not dist.is_initialized() or dist.get_world_size() == 1
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and is_lone:
        info = core.get_cluster_info()
        if info is not None and len(info.slot_ids) > 1:
            raise ConfigError(
                f"{caller}: this trial has {len(info.slot_ids)} slots, but no launcher has "
                "started a rank for each; write `entrypoint: python3 -m "
                "det_jupyter.launch.torch_distributed SCRIPT`, or slots_per_trial: 1"
            )
        yield core.DistributedContext()
        return
    with open_process_group(device):
        distributed = core.DistributedContext.from_torch_distributed()
        yield distributed
        distributed.close()  # not after an error: it might wait for ranks that have exited


@contextmanager
def open_process_group(device: torch.device) -> Iterator[None]:
    """Open a process group, over which replicas exchange gradients. Collective.

    A group that the script has made is used and left open. One that is made in the block is
    destroyed: a process that exits with an open group may be aborted by the group's threads.
    """
    had_group = dist.is_initialized()
    try:
        if not had_group:
            is_gpu = device.type == "cuda"
            backend = "nccl" if is_gpu else "gloo"
            dist.init_process_group(backend, device_id=device if is_gpu else None)
        yield
    finally:
        if not had_group and dist.is_initialized():
            dist.destroy_process_group()
