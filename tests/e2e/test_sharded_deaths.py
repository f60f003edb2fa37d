"""A sharded trial whose ranks are killed ends as an undisturbed one, without a checkpoint read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.client import Client, Experiment
from det_jupyter.pytorch.checkpoints.restore import read_state
from tests.trials import TRIAL_SOURCE, Gate, small_config, submit

pytestmark = [pytest.mark.e2e, pytest.mark.long]

# batch: ranks that are killed in it. In batch 12, while the copy after its step is written.
DEATHS = {12: [1], 26: [0], 33: [1, 2]}

METHOD = """
    def die_at(self, batch_idx):
        rank, folder = self.context.distributed.get_rank(), self.context.get_hparam("folder")
        flag = pathlib.Path(folder) / f"{batch_idx}-{rank}"
        if not folder or rank not in DEATHS.get(batch_idx, []) or flag.exists():
            return
        flag.touch()
        if batch_idx == 12:
            torch._foreach_copy_ = self.die_in_copy
        else:
            os.kill(os.getpid(), 9)

    def die_in_copy(self, memory, parts):
        memory[0].copy_(parts[0])
        os.kill(os.getpid(), 9)
"""


def submit_sharded(
    client: Client,
    ranks: int = 3,
    *,
    folder: str = "",
    deaths: Mapping[int, Sequence[int]] = DEATHS,
    gates: Sequence[Gate] = (),
    pause_s: float = 0.0,
) -> Experiment:
    """Submit a sharded trial, whose ranks are killed once each if there is a folder for notes."""
    pause = "        time.sleep(self.pause_s)\n"
    source = TRIAL_SOURCE.replace(pause, f"{pause}        self.die_at(batch_idx)\n")
    source = source.replace("nn.ReLU()", "nn.BatchNorm1d(16), nn.ReLU()")
    hparams = {"global_batch_size": 8 * ranks, "pause_s": pause_s, "folder": folder}
    config = small_config(
        hyperparameters=hparams,
        optimizations={"sharding": "fsdp"},
        resources={"slots_per_trial": ranks},
    )
    for gate in gates:
        source = gate.source(source)
    source = f"import os\nimport pathlib\nDEATHS = {deaths}\n{source}{METHOD}"
    return submit(client, config, source)


def assert_equal_ends(
    calm: Experiment, killed: Experiment, *, lacks_metrics: bool = False
) -> None:
    """Check that the last checkpoints and the curves are equal, bit for bit.

    Args:
        lacks_metrics: Whether points may lack the metrics of killed ranks on another computer.
    """
    last = [read_state(Path(each.checkpoints()[-1].path)) for each in (calm, killed)]
    for name in ("models", "optimizers", "exchanges", "rng_states", "parts"):
        assert_same(last[0][name], last[1][name], name)
    curves = [
        {(one.group, one.name): (one.steps, one.values) for one in each.curves()}
        for each in (calm, killed)
    ]
    assert curves[0]["validation", "error"] == curves[1]["validation", "error"]
    steps, losses = zip(*(each["batches", "loss"] for each in curves), strict=True)
    assert steps[0] == steps[1]
    differ = sum(a != b for a, b in zip(*losses, strict=True))
    assert differ <= (killed.view.trials[0].num_recoveries if lacks_metrics else 0)


def assert_same(one: Any, other: Any, where: str) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, list):
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{where}[{number}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def test_killed_ranks_of_a_sharded_trial_lose_one_batch_each_and_no_bit(
    client: Client, tmp_path: Path
) -> None:
    calm, killed = (submit_sharded(client, folder=folder) for folder in ("", str(tmp_path)))
    assert [calm.wait(), killed.wait()] == ["COMPLETED"] * 2
    view = killed.view.trials[0]
    assert (view.restarts, view.num_recoveries) == (0, len(DEATHS))
    saved = [one.steps_completed for one in killed.checkpoints()]
    # Rank 0 may be killed while it still writes what it began after batch 20.
    assert [steps for steps in saved if steps != 20] == [12, 26, 33, 40, 60]
    assert_equal_ends(calm, killed)
