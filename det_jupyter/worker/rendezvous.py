"""How the ranks of a gang find each other: a store on the chief, and the groups made over it."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stubs omit it

from det_jupyter.core import DistributedContext
from det_jupyter.wire import GangPlan, RankPlace

# A rank that is half an hour late for an all-reduce is not coming; one that died is noticed at
# once.
_GRADIENT_TIMEOUT = timedelta(minutes=30)
_STORE_TIMEOUT = timedelta(minutes=5)  # until all ranks are there


def choose_device(plan: GangPlan, place: RankPlace) -> torch.device:
    """Return this rank's device. The environment shows only the gang's, in the order of ranks."""
    if plan.slots[place.rank].kind == "cuda":
        return torch.device("cuda", place.local_rank)
    return torch.device("cpu")


def choose_backend(plan: GangPlan) -> str:
    """Return what carries gradients: NCCL if every rank has a CUDA device of its own."""
    return "nccl" if all(slot.kind == "cuda" for slot in plan.slots) else "gloo"


def limit_threads(place: RankPlace) -> None:
    """Share the computer's cores among its ranks, unless the user has said how many to use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:  # the library was loaded before it was set
        torch.set_num_threads(int(wanted))
    else:
        torch.set_num_threads(max(1, _num_cores() // place.local_world_size))


def join(place: RankPlace, backend: str, device: torch.device) -> DistributedContext:
    """Return this rank's place among all ranks, once they are all there. Collective."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if place.world_size == 1:
        return DistributedContext()
    if place.group_world_size == 1:
        _stay_on_loopback()
    is_chief = place.rank == 0
    store = TCPStore(
        place.master_addr,
        place.master_port,
        place.world_size,
        is_master=is_chief,
        timeout=_STORE_TIMEOUT,
        master_listen_fd=place.listen_fd if is_chief else None,
    )
    dist.init_process_group(
        backend,
        store=store,
        rank=place.rank,
        world_size=place.world_size,
        timeout=_GRADIENT_TIMEOUT,
        device_id=device if backend == "nccl" else None,
    )
    return DistributedContext.from_torch_distributed()


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _stay_on_loopback() -> None:
    """Let gloo use the loopback interface: the computer's name may resolve to nothing usable."""
    names = {name for _, name in socket.if_nameindex()}
    for loopback in ("lo", "lo0"):
        if loopback in names:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
