"""How the ranks of a gang find each other: a store, and the groups made over it."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import FileStore, Store  # type: ignore[attr-defined]  # see torch's stubs

from det_jupyter.core import DistributedContext
from det_jupyter.core.objects import check_members
from det_jupyter.errors import LaunchError
from det_jupyter.wire import GangPlan, RankPlace
from det_jupyter.worker.meeting import PromptStore

# A rank that is half an hour late for an all-reduce is not coming. Of one that died gloo learns at
# once; NCCL does not, and waits for it that long unless the agent ends the gang first, as it does.
_GRADIENT_TIMEOUT = timedelta(minutes=30)
_STORE_TIMEOUT = timedelta(minutes=5)  # until all ranks are there


def choose_device(plan: GangPlan, place: RankPlace) -> torch.device:
    """Return this rank's device.

    The environment shows only the gang's on its agent, in the order of local ranks.
    """
    if plan.slots[place.rank].kind == "cuda":
        return torch.device("cuda", place.local_rank)
    return torch.device("cpu")


def choose_backend(plan: GangPlan) -> str:
    """Return what carries gradients: NCCL if every rank has a CUDA device of its own."""
    return "nccl" if all(slot.kind == "cuda" for slot in plan.slots) else "gloo"


def limit_threads(place: RankPlace) -> None:
    """Use this rank's share of the cores, unless the user has said how many threads to use.

    Never more than its share: other trials have the rest. [m] Two one-rank trials on two cores
    take 0.4 s with one thread each, and 2 to 10 s with two, because OpenMP's threads spin while
    they wait for one that has no core.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")  # the library was loaded before it was set
    torch.set_num_threads(int(wanted) if wanted.isdigit() and int(wanted) else place.num_threads)


def join(
    place: RankPlace, backend: str, device: torch.device, *, store: str, secret: bytes
) -> DistributedContext:
    """Return this rank's place among all ranks, once they are all there. Collective.

    Args:
        place: The rank's.
        backend: What carries gradients.
        device: The rank's.
        store: File over which the ranks of this start find each other.
        secret: What the ranks of this start know, and other users do not.

    Raises:
        PeerRefused: A process that is none of the gang's has joined.
    """
    if device.type == "cuda":
        _check_cuda_is_fresh()
        torch.cuda.set_device(device)
    if place.world_size == 1:
        return DistributedContext()
    if place.master_addr.startswith("127."):  # perhaps on several agents, but all are here
        _stay_on_loopback()
    dist.init_process_group(
        backend,
        store=_store(store, place.world_size, backend),
        rank=place.rank,
        world_size=place.world_size,
        timeout=_GRADIENT_TIMEOUT,
        device_id=device if backend == "nccl" else None,
    )
    if backend == "gloo":  # NCCL asks for a number that is in the store
        check_members(dist.distributed_c10d._get_default_group(), "gradients", secret)
    return DistributedContext.from_torch_distributed(secret)


def _store(path: str, world_size: int, backend: str) -> Store:
    if backend == "gloo":
        return PromptStore(path, world_size, _STORE_TIMEOUT)
    store = FileStore(path, world_size)
    store.set_timeout(_STORE_TIMEOUT)
    return store


def use_device(device: torch.device) -> None:
    """Make a CUDA device this thread's: each thread has its own, and begins with device 0."""
    if device.type == "cuda" and torch.cuda.is_initialized():
        torch.cuda.set_device(device)


def _check_cuda_is_fresh() -> None:
    """Say what torch's own "cannot re-initialize CUDA in forked subprocess" leaves to guess."""
    if torch.cuda._is_in_bad_fork():
        raise LaunchError(
            "CUDA was in use already in the process that ranks are forked from, so this rank "
            "cannot use its GPU: something touched CUDA while Python started or torch was "
            "imported (a sitecustomize, a .pth file, a plug-in of torch); remove it"
        )


def _stay_on_loopback() -> None:
    """Let gloo and NCCL meet on the loopback interface, unless the user has said where.

    The computer's name may resolve to nothing usable, and other interfaces may be firewalled.
    """
    names = {name for _, name in socket.if_nameindex()}
    for loopback in ("lo", "lo0"):
        if loopback in names:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
