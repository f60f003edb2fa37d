"""How ranks find each other: stores, groups of scripts, threads. torch's groups are played."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.rendezvous import _rendezvous_handlers

from det_jupyter.contract.messages import GangNetwork, RankPlace
from det_jupyter.core import DistributedContext
from det_jupyter.core.peer_errors import PeerLost
from det_jupyter.errors import LaunchError, WaitTimeout
from det_jupyter.rank import rendezvous
from det_jupyter.rank.rendezvous import PromptStore
from tests.unit.rank.rank_specs import make_spec

GPU, CPU = torch.device("cuda", 1), torch.device("cpu")
NETWORK = GangNetwork(addresses=["10.0.0.1", "10.0.0.2"], interface="eth0")
SOON = timedelta(seconds=60)


def place(rank: int = 0, size: int = 2, num_threads: int = 1) -> RankPlace:
    return RankPlace(
        rank=rank,
        world_size=size,
        local_rank=rank,
        local_world_size=size,
        master_addr="127.0.0.1",
        master_port=0,
        num_threads=num_threads,
    )


def test_what_one_rank_writes_the_others_read_as_soon_as_it_is_there(tmp_path: Path) -> None:
    stores = [PromptStore(str(tmp_path / "store"), 2, SOON) for _ in range(2)]
    found: list[bytes] = []
    reading = threading.Thread(target=lambda: found.append(stores[1].get("key")))
    reading.start()
    assert not stores[0].check(["key"])
    stores[0].set("key", "value")
    reading.join()
    assert found == [b"value"]
    assert stores[1].check(["key"])
    assert (stores[0].add("count", 2), stores[1].add("count", 3)) == (2, 5)
    assert stores[0].compare_set("key", "value", "other") == b"other"
    assert stores[1].get("key") == b"other"
    num = stores[0].num_keys()
    assert stores[0].delete_key("key")
    assert stores[1].num_keys() == num - 1
    assert not stores[1].check(["key"])


def test_a_rank_that_does_not_come_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    store = PromptStore(str(tmp_path / "store"), 2, timedelta(0))
    with pytest.raises(WaitTimeout, match="the other ranks have not come within 0:00:00"):
        store.wait(["key"])
    with pytest.raises(WaitTimeout, match=r"within 0:00:00\.001"):
        store.wait(["key"], timedelta(milliseconds=1))


@pytest.mark.parametrize(("variable", "num"), [("3", 3), ("", 5), ("0", 5), ("2,4", 5), (None, 5)])
def test_a_rank_uses_its_share_of_the_cores_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, num: int
) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    if variable is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    rendezvous.limit_threads(place(num_threads=5))
    assert chosen == [num]


def test_the_port_of_the_first_rank_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(tmp_path / "port", appears_at=1.0)
    monkeypatch.setattr(rendezvous, "time", clock)
    assert rendezvous._read_when_there(clock.file) == "7"
    assert max(clock.pauses) == 0.005  # at most so late
    assert sorted(clock.pauses) == clock.pauses
    clock = Clock(tmp_path / "none", appears_at=10**9)
    monkeypatch.setattr(rendezvous, "time", clock)
    with pytest.raises(WaitTimeout, match="rank 0 has not opened its store within 0:05:00"):
        rendezvous._read_when_there(clock.file)
    assert 300 < clock.now < 301


class Clock:
    """Time that passes when it is slept; a file appears at some time."""

    def __init__(self, file: Path, appears_at: float) -> None:
        self.file, self.now, self._at = file, 0.0, appears_at
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.pauses.append(seconds)
        self.now += seconds
        if self.now >= self._at:
            self.file.write_text("7")


class Group:
    """torch's default group, as far as a rank makes or asks for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.destroyed: list[Any] = []
        self.checked: list[tuple[Any, str, bytes]] = []
        self.selected: list[torch.device] = []
        self.backend = ""
        for module in (dist, dist.distributed_c10d, dist.device_mesh):
            monkeypatch.setattr(module, "init_process_group", self._make)
            if hasattr(module, "destroy_process_group"):
                monkeypatch.setattr(module, "destroy_process_group", self.destroyed.append)
        monkeypatch.setattr(dist, "is_initialized", lambda: bool(self.backend))
        monkeypatch.setattr(dist, "get_backend", lambda: self.backend)
        monkeypatch.setattr(dist.distributed_c10d, "_get_default_group", lambda: "the group")
        monkeypatch.setattr(rendezvous, "_get_default_group", lambda: "the group")
        monkeypatch.setattr(dist, "get_backend_config", lambda: f"cpu:{self.backend}")
        monkeypatch.setattr(rendezvous, "check_members", lambda *given: self.checked.append(given))
        monkeypatch.setattr(
            DistributedContext,
            "from_torch_distributed",
            lambda **options: SimpleNamespace(**options),
        )
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            monkeypatch.setenv(name, "")  # to be put back afterwards
            monkeypatch.delenv(name)
        monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
        monkeypatch.setattr("torch.cuda._is_in_bad_fork", lambda: False)
        monkeypatch.setattr("torch.cuda.set_device", self.selected.append)

    def _make(self, *args: Any, **options: Any) -> None:
        self.made.append((args, options))
        self.backend = str(args[0] if args else options.get("backend", "gloo"))


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    return Group(monkeypatch)


@pytest.mark.parametrize(("backend", "device"), [("gloo", CPU), ("nccl", GPU)])
def test_ranks_of_one_computer_join_by_a_file_and_prove_that_they_belong_together(
    group: Group, tmp_path: Path, backend: str, device: torch.device
) -> None:
    joined = rendezvous.join(place(1), backend, device, store=str(tmp_path / "store"), secret=b"s")
    ((args, options),) = group.made
    assert args == (backend,)
    store: Any = options["store"]
    assert type(store).__name__ == ("PromptStore" if backend == "gloo" else "FileStore")
    assert backend == "gloo" or store.timeout == timedelta(minutes=5)
    assert group.selected == [GPU] * (device is GPU)
    assert (options["rank"], options["world_size"]) == (1, 2)
    assert options["timeout"] == timedelta(minutes=30)
    assert options["device_id"] == (device if backend == "nccl" else None)
    assert group.checked == ([("the group", "gradients", b"s")] if backend == "gloo" else [])
    assert vars(joined) == {"secret": b"s", "store": str(tmp_path / "store")}
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"


def test_a_rank_alone_makes_no_group(group: Group) -> None:
    joined = rendezvous.join(place(0, 1), "gloo", CPU, store="", secret=b"s")
    assert isinstance(joined, DistributedContext)
    assert group.made == []
    assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_an_error_of_one_computer_is_no_matter_of_the_network(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(dist, "init_process_group", fail)
    with pytest.raises(RuntimeError, match=r"^no$") as caught:
        rendezvous.join(place(), "gloo", CPU, store=str(tmp_path / "store"), secret=b"s")
    assert not isinstance(caught.value, PeerLost)


def test_a_script_finds_its_group_and_cannot_end_it(group: Group) -> None:
    rendezvous.keep_group()
    for module in (dist, dist.distributed_c10d):
        module.init_process_group("gloo", rank=0)
        assert len(group.made) == 1  # the second call finds a group
    for same in ("gloo", "cpu:gloo,cuda:nccl", None):
        dist.init_process_group(same)
    with pytest.raises(ValueError, match="got 'nccl', but this rank has a process group of 'gl"):
        dist.init_process_group("nccl")
    assert len(group.made) == 1
    world: Any = object()
    member: Any = dist.distributed_c10d.GroupMember
    before, member.WORLD = member.WORLD, world
    try:
        for module in (dist, dist.distributed_c10d):
            module.destroy_process_group()
            module.destroy_process_group(world)
    finally:
        member.WORLD = before
    assert group.destroyed == []
    own: Any = object()
    dist.destroy_process_group(own)
    assert group.destroyed == [own]


@pytest.fixture
def handlers() -> Iterator[dict[str, Any]]:
    """Restore how torch reads addresses."""
    found = _rendezvous_handlers
    before = dict(found)
    found["env"] = lambda url, **options: iter([("by port", url)])
    yield found
    found.clear()
    found.update(before)


def test_a_script_meets_over_the_store_of_its_gang(
    group: Group, tmp_path: Path, handlers: dict[str, Any]
) -> None:
    spec = make_spec(tmp_path, "python3 train.py", num_ranks=2)
    join = rendezvous.offer_group(spec, CPU)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    meet = handlers["env"]
    for number in range(2):  # it may make its group again
        ((store, rank, size),) = meet("env://")
        assert (rank, size) == (0, 2)
        store.set("key", f"{number}")
        assert store.get("key") == f"{number}".encode()
    ((store, rank, size),) = meet("env://?rank=0&world_size=2")
    assert size == 2
    assert [*meet("env://?rank=0&world_size=3")] == [("by port", "env://?rank=0&world_size=3")]
    assert join() == SimpleNamespace(secret=bytes.fromhex(spec.secret))


@pytest.mark.parametrize(
    ("num_ranks", "backend", "meets", "is_checked"),
    [
        (2, "gloo", True, True),
        (2, "nccl", True, False),  # NCCL's connections need a number from the store
        (1, "gloo", True, False),
        (2, "gloo", False, False),  # a group of its own, by another address
    ],
)
def test_members_of_a_scripts_group_are_checked_where_gloo_connects_them(
    group: Group,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    handlers: dict[str, Any],
    num_ranks: int,
    backend: str,
    meets: bool,
    is_checked: bool,
) -> None:
    def make(backend: str) -> None:
        group.backend = backend
        if meets:
            next(iter(handlers["env"]("env://")))

    monkeypatch.setattr(dist, "init_process_group", make)
    spec = make_spec(tmp_path, "python3 train.py", num_ranks=num_ranks)
    rendezvous.offer_group(spec, CPU)
    for module in (dist, dist.distributed_c10d, dist.device_mesh):
        module.init_process_group(backend)
    secret = bytes.fromhex(spec.secret)
    names = [f"script {number}" for number in range(3)]
    assert group.checked == ([("the group", name, secret) for name in names] if is_checked else [])


@pytest.mark.parametrize("device", [CPU, GPU])
def test_a_script_on_a_gpu_that_was_in_use_before_the_fork_is_refused(
    group: Group,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    handlers: dict[str, Any],
    device: torch.device,
) -> None:
    monkeypatch.setattr("torch.cuda._is_in_bad_fork", lambda: True)
    spec = make_spec(tmp_path, "python3 train.py")
    if device is CPU:
        rendezvous.offer_group(spec, device)
        return
    with pytest.raises(LaunchError, match="CUDA was in use already"):
        rendezvous.offer_group(spec, device)


def test_ranks_of_several_computers_meet_at_the_chiefs_store(group: Group, tmp_path: Path) -> None:
    stores = []
    for rank in (0, 1):
        rendezvous.join(
            place(rank), "gloo", CPU, store=str(tmp_path / "s"), secret=b"", network=NETWORK
        )
        stores.append(group.made[-1][1]["store"])
    stores[0].set("key", "value")
    assert stores[1].get("key") == b"value"
    port_file = tmp_path / "s-port"
    assert port_file.stat().st_mode & 0o777 == 0o600
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth0"
