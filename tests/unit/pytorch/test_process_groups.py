"""The device of a rank that a launcher has started."""

from __future__ import annotations

import pytest
import torch

from det_jupyter import core
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.process_groups import choose_device, open_distributed


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Simulate two GPUs; the list has those that were made current."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    return current


@pytest.mark.parametrize(
    ("local_rank", "ranks", "device"),
    [(None, None, "cuda:0"), ("1", "2", "cuda:1"), ("1", "3", "cpu")],
)
def test_each_rank_has_the_gpu_of_its_local_rank_if_there_are_enough(
    monkeypatch: pytest.MonkeyPatch,
    gpus: list[torch.device],
    local_rank: str | None,
    ranks: str | None,
    device: str,
) -> None:
    for name, value in {"LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": ranks}.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert choose_device() == torch.device(device)
    assert gpus == ([torch.device(device)] if device != "cpu" else [])


def test_one_process_cannot_have_all_slots_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    class Info:
        slot_ids = (0, 1)

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(core, "get_cluster_info", Info)
    with pytest.raises(
        ConfigError, match=r"pytorch\.init: this trial has 2 slots, but no launcher"
    ):
        open_distributed(torch.device("cpu"), "pytorch.init").__enter__()
