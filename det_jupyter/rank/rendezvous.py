"""Process groups of a gang: device, backend and store of a rank.

The store of a group is a file that only its owner can open, since a `TCPStore` would answer every
user of the computer. Ranks on several computers share no file: they have a `TCPStore` in the
process of rank 0, which listens on the loopback interface only, and which the agents of other
computers connect to theirs (agent/tunnel/).
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import (  # type: ignore[attr-defined]  # see torch's stubs
    FileStore,
    PrefixStore,
    Store,
    TCPStore,
)
from torch.distributed.distributed_c10d import _get_default_group
from torch.distributed.rendezvous import _rendezvous_handlers

from det_jupyter.contract.host.paths import write_private
from det_jupyter.contract.messages import GangNetwork, GangPlan, RankPlace, RankSpec
from det_jupyter.core import DistributedContext
from det_jupyter.core.peer_errors import PeerLost
from det_jupyter.errors import LaunchError, WaitTimeout
from det_jupyter.rank.membership import check_members

_LOOPBACK = "127.0.0.1"
_KEPT: list[Store] = []  # torch keeps only the C++ half of a store alive
_PAUSES_S = (0.0001, 0.005)  # first and longest: [m] a look at the file takes 0.03 ms


class PromptStore(Store):
    """A `FileStore` whose `wait` returns within 0.1 ms after another rank has written.

    torch's own `wait` polls every 10 ms, and two groups are created before the first step. Only
    for gloo: NCCL uses its store in threads that must not wait for the interpreter.

    Args:
        path: The file; the first rank creates it.
    """

    def __init__(self, path: str, world_size: int, timeout: timedelta) -> None:
        super().__init__()
        self._file = FileStore(path, world_size)
        self._limit = timeout
        _KEPT.append(self)

    def set(self, key: str, value: str) -> None:
        self._file.set(key, value)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._file.get(key)

    def add(self, key: str, value: int) -> int:
        return self._file.add(key, value)

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        return self._file.compare_set(key, expected_value, desired_value)

    def delete_key(self, key: str) -> bool:
        return self._file.delete_key(key)

    def num_keys(self) -> int:
        return self._file.num_keys()

    def check(self, keys: list[str]) -> bool:
        return self._file.check(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        limit = timeout or self._limit
        deadline = time.monotonic() + limit.total_seconds()
        pause_s, longest_s = _PAUSES_S
        while not self._file.check(list(keys)):
            if time.monotonic() > deadline:
                raise WaitTimeout(f"the other ranks have not come within {limit}")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.2, longest_s)


Joined = tuple[Store, int, int]  # store, rank, world size

# The time limit for a rank that hangs. When a rank ends, gloo raises at once; NCCL would wait this
# long, but the agent ends the gang before.
_GRADIENT_TIMEOUT = timedelta(minutes=30)
_STORE_TIMEOUT = timedelta(minutes=5)  # time for all ranks to connect


def choose_device(plan: GangPlan, place: RankPlace) -> torch.device:
    """Return this rank's device.

    CUDA_VISIBLE_DEVICES has the gang's devices on this agent, in the order of local ranks.
    """
    if plan.slots[place.rank].kind == "cuda":
        return torch.device("cuda", place.local_rank)
    return torch.device("cpu")


def choose_backend(plan: GangPlan) -> str:
    """Return the backend for gradients: NCCL if every rank has a CUDA device of its own."""
    return "nccl" if all(slot.kind == "cuda" for slot in plan.slots) else "gloo"


def limit_threads(place: RankPlace) -> None:
    """Use as many threads as this rank's share of the cores, or as OMP_NUM_THREADS.

    More than its share would slow down other trials. [m] Two one-rank trials on two cores
    take 0.4 s with one thread each, and 2 to 10 s with two, because OpenMP's threads spin while
    they wait for one that has no core.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")  # torch was loaded before it was set
    torch.set_num_threads(int(wanted) if wanted.isdigit() and int(wanted) else place.num_threads)


def join(
    place: RankPlace,
    backend: str,
    device: torch.device,
    *,
    store: str,
    secret: bytes,
    network: GangNetwork | None = None,
) -> DistributedContext:
    """Connect the ranks and return this rank's context. Collective.

    Args:
        store, network: As in a GangSpec.

    Raises:
        LaunchError: The rank cannot use its GPU, or a network interface does not exist.
        PeerLost: On several computers: another rank cannot be reached.
        PeerRefused: A process that does not belong to the gang has connected.
    """
    if device.type == "cuda":
        _check_cuda_is_fresh()
        torch.cuda.set_device(device)
    if place.world_size == 1:
        return DistributedContext()
    _choose_interface(network)
    with _explaining_network(place, network):
        dist.init_process_group(
            backend,
            store=_open_store(store, place, backend, network),
            rank=place.rank,
            world_size=place.world_size,
            timeout=_GRADIENT_TIMEOUT,
            device_id=device if backend == "nccl" else None,
        )
    if backend == "gloo":  # NCCL's connections need a number from the store
        check_members(dist.distributed_c10d._get_default_group(), "gradients", secret)
    return DistributedContext.from_torch_distributed(secret=secret, store=store)


@contextmanager
def _explaining_network(place: RankPlace, network: GangNetwork | None) -> Iterator[None]:
    """Raise PeerLost with what to check when ranks on several computers cannot connect."""
    try:
        yield
    except RuntimeError as error:
        if network is None:
            raise
        raise PeerLost(
            f"rank {place.rank} on {socket.gethostname()} could not connect to the others by "
            f"interface {os.environ['GLOO_SOCKET_IFNAME']} ({error}). If no other rank has "
            "failed, a firewall closes ports between the computers, where NCCL and gloo use any, "
            "or the computers do not reach each other by these interfaces: name others with "
            "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME"
        ) from error


def _open_store(path: str, place: RankPlace, backend: str, network: GangNetwork | None) -> Store:
    if network is not None:
        return _open_tcp_store(Path(f"{path}-port"), is_chief=place.rank == 0)
    if backend == "gloo":
        return PromptStore(path, place.world_size, _STORE_TIMEOUT)
    store = FileStore(path, place.world_size)
    store.set_timeout(_STORE_TIMEOUT)
    return store


def _open_tcp_store(port_file: Path, *, is_chief: bool) -> Store:
    """Return the store of a gang on several computers, served by its chief.

    Args:
        port_file: File with the loopback port of the chief's store, or of this computer's agent.

    Raises:
        WaitTimeout: The file does not exist in time.
    """
    listener = None
    if is_chief:
        # By itself the store would listen on all interfaces.
        listener = socket.create_server((_LOOPBACK, 0), backlog=socket.SOMAXCONN)
        port: int = listener.getsockname()[1]
    else:
        port = int(_read_when_there(port_file))
    store = TCPStore(
        _LOOPBACK,
        port,
        is_master=is_chief,
        timeout=_STORE_TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=None if listener is None else listener.detach(),
    )
    if is_chief:
        write_private(port_file, str(port))
    _KEPT.append(store)
    return store


def _read_when_there(file: Path) -> str:
    deadline = time.monotonic() + _STORE_TIMEOUT.total_seconds()
    pause_s, longest_s = _PAUSES_S
    while True:
        with suppress(FileNotFoundError):
            return file.read_text(encoding="ascii")
        if time.monotonic() > deadline:
            raise WaitTimeout(f"rank 0 has not opened its store within {_STORE_TIMEOUT}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, longest_s)


def use_device(device: torch.device) -> None:
    """Select a CUDA device in this thread: each thread begins with device 0."""
    if device.type == "cuda" and torch.cuda.is_initialized():
        torch.cuda.set_device(device)


def _check_cuda_is_fresh() -> None:
    """Check that CUDA was not initialized before the fork.

    Raises:
        LaunchError: CUDA was initialized; torch's own error would be "cannot re-initialize CUDA".
    """
    if torch.cuda._is_in_bad_fork():
        raise LaunchError(
            "CUDA was in use already in the process that ranks are forked from, so this rank "
            "cannot use its GPU: something touched CUDA while Python started or torch was "
            "imported (a sitecustomize, a .pth file, a plug-in of torch); remove it"
        )


def _choose_interface(network: GangNetwork | None) -> None:
    """Set the network interface of gloo and NCCL, where the user has not set one.

    On one computer it is the loopback interface: the computer's name may not resolve, and other
    interfaces may have a firewall.

    Raises:
        LaunchError: A name that the user has set for gloo is no interface of this computer.
    """
    names = [name for _, name in socket.if_nameindex()]
    chosen = [network.interface] if network else [n for n in names if n in ("lo", "lo0")]
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if chosen:
            os.environ.setdefault(variable, chosen[0])
    given = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    if network and not set(given) <= set(names):
        raise LaunchError(
            f"GLOO_SOCKET_IFNAME: got {','.join(given)!r}, but {socket.gethostname()} has only "
            f"the network interfaces {', '.join(names)}"
        )


def keep_group() -> None:
    """Make torch's functions that create and destroy the process group do nothing in this rank.

    A script under torchrun begins with `dist.init_process_group("nccl")` and ends with
    `dist.destroy_process_group()`. In a rank the group exists before the script, and is needed
    after it. A request for another backend is refused.
    """
    begin, end = dist.init_process_group, dist.destroy_process_group

    @wraps(begin)
    def init_process_group(backend: str | None = None, *args: Any, **options: Any) -> None:
        if not dist.is_initialized():
            begin(backend, *args, **options)
        elif backend is not None and (own := dist.get_backend()) not in re.split("[:,]", backend):
            raise ValueError(
                f"init_process_group: got {backend!r}, but this rank has a process group of "
                f"{own!r} already; leave the call out"
            )

    @wraps(end)
    def destroy_process_group(group: dist.ProcessGroup | None = None) -> None:
        if group is not None and group is not dist.group.WORLD:
            end(group)

    for module in (dist, dist.distributed_c10d):  # scripts use both names
        setattr(module, "init_process_group", init_process_group)  # noqa: B010
        setattr(module, "destroy_process_group", destroy_process_group)  # noqa: B010


def offer_group(spec: RankSpec, device: torch.device) -> Callable[[], DistributedContext]:
    """Let a script's `init_process_group()` connect the gang's ranks through the gang's store.

    The script decides whether and when to create a group, and its backend. As under torchrun it
    may destroy the group and create another. `init_method="env://"`, the default, uses the gang's
    store instead of a port that is open to every user.

    Returns:
        A function that connects the ranks and returns their context, for `core.init()`.

    Raises:
        LaunchError: The rank cannot use its GPU.
    """
    place, secret = spec.place, bytes.fromhex(spec.secret)
    if device.type == "cuda":
        _check_cuda_is_fresh()
    _choose_interface(spec.network)
    store_names: list[str] = []  # the names of the groups' stores
    by_port = _rendezvous_handlers["env"]

    def meet(url: str, timeout: timedelta = _STORE_TIMEOUT, **options: Any) -> Iterator[Joined]:
        size = re.search(r"world_size=(\d+)", url)
        if size is not None and int(size[1]) != place.world_size:
            yield from by_port(url, timeout=timeout, **options)
            return
        store = _open_store(spec.store, place, choose_backend(spec.plan), spec.network)
        store_names.append(f"script {len(store_names)}")
        yield PrefixStore(store_names[-1], store), place.rank, place.world_size

    begin = dist.init_process_group

    @wraps(begin)
    def init_process_group(*args: Any, **options: Any) -> None:
        num_before = len(store_names)
        begin(*args, **options)
        is_ours = len(store_names) > num_before and place.world_size > 1
        if is_ours and "cpu:gloo" in dist.get_backend_config():
            check_members(_get_default_group(), store_names[-1], secret)

    _rendezvous_handlers["env"] = meet
    for module in (dist, dist.distributed_c10d, dist.device_mesh):  # each has the name
        setattr(module, "init_process_group", init_process_group)  # noqa: B010
    return partial(DistributedContext.from_torch_distributed, secret=secret)
