"""What a rank sets up before it meets the others. The meeting itself is in tests/integration."""

from __future__ import annotations

import os
import threading

import pytest
import torch

from det_jupyter.contract.messages import RankPlace
from det_jupyter.errors import LaunchError
from det_jupyter.rank import rendezvous

PLACE = RankPlace(
    rank=0, world_size=1, local_rank=0, local_world_size=1, master_addr="127.0.0.1", master_port=0
)
GPU = torch.device("cuda", 1)
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
