"""What a rank sets up before it meets the others. The meeting itself is in tests/integration."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import psutil
import pytest
import torch

from det_jupyter.contract.messages import GangNetwork, RankPlace
from det_jupyter.core.peer_errors import PeerLost
from det_jupyter.errors import LaunchError
from det_jupyter.rank import rendezvous

PLACE = RankPlace(
    rank=0, world_size=1, local_rank=0, local_world_size=1, master_addr="127.0.0.1", master_port=0
)
GPU = torch.device("cuda", 1)
CPU = torch.device("cpu")
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def test_one_computer_needs_no_network_but_the_user_may_say_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in INTERFACES:
        monkeypatch.setenv(name, "")  # to be put back afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    rendezvous._choose_interface(None)
    assert [os.environ[name] for name in INTERFACES] == ["lo", "lo"]
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0")
    rendezvous._choose_interface(None)
    assert os.environ["NCCL_SOCKET_IFNAME"] == "eth0"


NETWORK = GangNetwork(addresses=["10.0.0.1", "10.0.0.2"], interface="eth0")
TWO = PLACE.model_copy(update={"rank": 1, "world_size": 2})


@pytest.fixture
def _interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in INTERFACES:
        monkeypatch.setenv(name, "")  # to be put back afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "eth0"), (3, "ib0")])


@pytest.mark.usefixtures("_interfaces")
def test_ranks_on_several_computers_use_the_agents_interface_unless_the_user_names_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    rendezvous._choose_interface(NETWORK)
    assert [os.environ[name] for name in INTERFACES] == ["eth0", "ib0"]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0,eth7")
    with pytest.raises(LaunchError, match=r"got 'eth0,eth7', but .* has only .* lo, eth0, ib0"):
        rendezvous._choose_interface(NETWORK)


@pytest.mark.usefixtures("_interfaces")
def test_rank_that_does_not_reach_those_of_other_computers_says_what_to_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "store-port").write_text("1")

    def fail(*_: object, **options: object) -> None:
        raise RuntimeError("connection refused")

    monkeypatch.setattr("torch.distributed.init_process_group", fail)
    monkeypatch.setattr(rendezvous, "TCPStore", lambda *_, **options: None)
    with pytest.raises(PeerLost) as lost:
        rendezvous.join(
            TWO, "gloo", CPU, store=str(tmp_path / "store"), secret=b"", network=NETWORK
        )
    assert str(lost.value).startswith(
        f"rank 1 on {socket.gethostname()} could not connect to the others by interface eth0 "
        "(connection refused). If no other rank has failed, a firewall closes ports"
    )


def test_store_of_several_computers_listens_on_the_loopback_only(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    chief = rendezvous._open_tcp_store(port_file, is_chief=True)
    other = rendezvous._open_tcp_store(port_file, is_chief=False)
    chief.set("key", "value")
    assert other.get("key") == b"value"
    port = int(port_file.read_text())
    own = psutil.Process().net_connections("tcp")
    listening = [each.laddr for each in own if each.status == "LISTEN"]
    assert [address.ip for address in listening if address.port == port] == ["127.0.0.1"]


def test_cuda_that_was_used_before_the_fork_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda._is_in_bad_fork", lambda: True)
    with pytest.raises(LaunchError, match="CUDA was in use already"):
        rendezvous.join(PLACE, "nccl", GPU, store="", secret=b"")


def test_a_console_computes_on_the_ranks_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[int, torch.device]] = []
    monkeypatch.setattr(
        "torch.cuda.set_device", lambda device: chosen.append((threading.get_ident(), device))
    )
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: False)
    rendezvous.use_device(GPU)  # before the trainer has begun: nothing to choose
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    rendezvous.use_device(torch.device("cpu"))
    rendezvous.use_device(GPU)
    assert chosen == [(threading.get_ident(), GPU)]
