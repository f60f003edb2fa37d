"""The GPU path: slots are CUDA devices, ranks use NCCL. Skipped where there is no device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from det_jupyter.client import Client
from det_jupyter.errors import ConfigError
from det_jupyter.view import ViewState
from det_jupyter.view.model.trial_state import TrialDetails
from tests.processes import DetHome, det_home
from tests.trials import TRIAL_SOURCE, Gate, small_config, submit

NUM_DEVICES = torch.cuda.device_count()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(NUM_DEVICES == 0, reason="there is no CUDA device"),
]

CUDA_SOURCE = TRIAL_SOURCE + "\nheld = torch.ones(3, device='cuda')\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    with det_home(tmp_path_factory.mktemp("home"), {}) as running:
        yield running


def run(client: Client, slots: int, folder: Path) -> TrialDetails:
    """Train on that many slots; return the trial as it was while it ran."""
    gate = Gate(folder, 5)
    experiment = submit(client, small_config(resources={"slots_per_trial": slots}), gate.source())
    running: list[TrialDetails] = []

    def note(state: ViewState) -> None:
        running.extend(trial for trial in state["trials"] if trial["backend"])
        if running:
            gate.open()

    assert experiment.wait(on_tick=note) == "COMPLETED"
    return running[-1]


def test_slots_are_the_cuda_devices(home: DetHome) -> None:
    (agent,) = home.client().agents()
    assert [one.slot.kind for one in agent.slots] == ["cuda"] * NUM_DEVICES
    assert all(one.slot.memory_bytes > 0 for one in agent.slots)


def test_one_rank_trains_on_its_device(home: DetHome, tmp_path: Path) -> None:
    (rank,) = run(home.client(), 1, tmp_path)["ranks"]
    assert rank["device"] == "cuda:0"


@pytest.mark.skipif(NUM_DEVICES < 2, reason="there are not two CUDA devices")
def test_two_ranks_talk_over_nccl(home: DetHome, tmp_path: Path) -> None:
    trial = run(home.client(), 2, tmp_path)
    assert trial["backend"] == "nccl"
    assert [rank["device"] for rank in trial["ranks"]] == ["cuda:0", "cuda:1"]


def test_more_slots_than_devices_are_refused(home: DetHome) -> None:
    config = small_config(resources={"slots_per_trial": NUM_DEVICES + 1})
    with pytest.raises(ConfigError, match=r"resources\.slots_per_trial"):
        submit(home.client(), config)


def test_a_cuda_tensor_travels_as_a_copy_on_the_cpu(home: DetHome) -> None:
    source = CUDA_SOURCE.replace("time.sleep(self.pause_s)", "assert held.sum() == 3")
    experiment = submit(home.client(), small_config(resources={"slots_per_trial": 1}), source)
    assert any("held" in notice for notice in experiment.view.capsule.notices)
    assert experiment.wait() == "COMPLETED"
