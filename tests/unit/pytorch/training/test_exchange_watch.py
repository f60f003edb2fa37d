"""When process groups are aborted, and what a rank knows afterwards. The device is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
import torch
from torch.distributed import distributed_c10d

from det_jupyter.config import ExperimentConfig
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.control_page import ControlPage, create_page
from det_jupyter.core.peer_errors import PeerLost
from det_jupyter.pytorch.training.exchange_watch import ExchangeWatch, can_watch
from tests.waiting import wait_until

GPU = torch.device("cuda", 0)


class Rank:
    """A rank whose device does nothing; `aborted` has what was known as its groups were."""

    def __init__(self, folder: RunDir) -> None:
        self.folder = folder
        self.aborted = list[bool]()
        self.watch = ExchangeWatch(folder, GPU)
        self.event = cast(MagicMock, self.watch._received)

    def abort(self) -> None:
        self.aborted.append(self.watch.is_aborted)

    def lose_other(self) -> None:
        with closing(ControlPage(self.folder.control)) as page:
            page.note_killed()
        wait_until(lambda: self.aborted, "the groups are aborted")


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    state = torch.arange(16, dtype=torch.uint8)
    for name in ("Event", "current_stream", "set_device"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: state.clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda new, device: state.copy_(new))
    create_page(RunDir(tmp_path).control)
    made = Rank(RunDir(tmp_path))
    monkeypatch.setattr(distributed_c10d, "_abort_process_group", made.abort)
    yield made
    made.watch.close()


def test_an_exchange_is_not_used_if_the_abort_was_noted_before_its_end(rank: Rank) -> None:
    rank.watch.await_exchange()
    rank.lose_other()
    assert rank.aborted == [True]
    with pytest.raises(PeerLost, match="aborted"):
        rank.watch.await_exchange()


@pytest.mark.parametrize("is_past", [True, False])
def test_buffers_are_received_if_the_device_has_passed_the_mark(
    rank: Rank, *, is_past: bool
) -> None:
    rank.watch.mark_received()
    rank.event.query.return_value = is_past
    rank.lose_other()
    assert rank.watch.has_received is is_past


def test_buffers_are_not_received_if_the_mark_is_set_after_the_watch_has_looked(
    rank: Rank,
) -> None:
    rank.event.query.return_value = True
    rank.lose_other()
    with pytest.raises(PeerLost):
        rank.watch.mark_received()
    assert not rank.watch.has_received


def test_the_state_of_the_generator_is_behind_other_states(rank: Rank) -> None:
    slot = memoryview(bytearray(b"others" + bytes(30)))
    end = rank.watch.pack_generator(slot, 6)
    assert bytes(slot[:end]) == b"others" + bytes(range(16))
    assert rank.watch.unpack_generator(b"others" + bytes(range(16, 32))) == b"others"
    assert torch.cuda.get_rng_state(GPU).tolist() == list(range(16, 32))


@pytest.mark.parametrize(
    ("changes", "can"),
    [
        ({}, True),
        ({"is_wanted": False}, False),
        ({"device": "cpu"}, False),
        ({"backend": "gloo"}, False),
        ({"handling": "0"}, True),
        ({"handling": "2"}, False),  # torch's watchdog aborts by itself
    ],
)
def test_which_ranks_watch(
    changes: dict[str, Any], can: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {
        "is_wanted": True,
        "device": "cuda",
        "backend": "nccl",
        "handling": "3",
    } | changes
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", given["handling"])
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: given["backend"])
    optimizations = SimpleNamespace(recover_on_gpus=given["is_wanted"])
    config = cast(ExperimentConfig, SimpleNamespace(optimizations=optimizations))
    assert can_watch(torch.device(given["device"]), config) is can
    assert not can_watch(torch.device(given["device"]), None)
