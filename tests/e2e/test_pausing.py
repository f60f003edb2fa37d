"""PAUSED is said only when the slots are free; until then, which rank is waited for."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import State
from tests.processes import wait_until, wait_until_gone
from tests.trials import TRIAL_SOURCE, slow, submit

pytestmark = pytest.mark.e2e

BATCH = 8


def short(**changes: Any) -> dict[str, Any]:
    """Return a configuration of some more batches than BATCH."""
    length = {"name": "single", "metric": "error", "max_length": {"batches": 30}}
    return slow(0.0, searcher=length, **changes)


def stuck(client: Client, brake: Path) -> Experiment:
    """Return an experiment whose rank 1 stays in batch BATCH while the file exists."""
    brake.touch()
    held = brake.with_suffix(".held")
    stays = f"""import pathlib
        if self.context.distributed.rank == 1 and batch_idx == {BATCH}:
            pathlib.Path({str(held)!r}).touch()
            while pathlib.Path({str(brake)!r}).exists():
                time.sleep(0.05)"""
    source = TRIAL_SOURCE.replace("time.sleep(self.pause_s)", stays)
    experiment = submit(client, short(), source)
    wait_until(held.exists, "rank 1 is in that batch")
    return experiment


def sentence_of(experiment: Experiment) -> str:
    return experiment.view.trials[0].waiting_for or ""


def wait_until_named(experiment: Experiment) -> None:
    named = f"pausing: rank 1 has not come to the end of batch {BATCH} for "
    wait_until(lambda: sentence_of(experiment).startswith(named), "the rank is named")


def test_a_pause_is_said_to_go_on_until_a_stuck_rank_has_left_or_is_ended(
    client: Client, tmp_path: Path
) -> None:
    brake = tmp_path / "brake"
    experiment = stuck(client, brake)
    assert experiment.pause(timeout=0) is State.PAUSING
    wait_until_named(experiment)
    assert "saves and frees 2 slots then; killed at " in sentence_of(experiment)
    assert experiment.state is experiment.trial.view.state is State.PAUSING
    assert experiment.why().cause == "leaving"
    assert sum(len(agent.used) for agent in client.agents()) == 2
    [remedy] = experiment.why().remedies
    assert remedy.verb == "pause_at_once"
    assert f"{BATCH} batches are lost, all that it has trained" in remedy.text
    assert experiment.pause(timeout=None, at_once=True) is State.PAUSED
    assert not any(agent.used for agent in client.agents())
    brake.with_suffix(".held").unlink()
    experiment.activate()
    wait_until(brake.with_suffix(".held").exists, "rank 1 is in that batch again")
    assert experiment.pause(timeout=0) is State.PAUSING
    wait_until_named(experiment)
    brake.unlink()
    assert experiment.pause(timeout=None) is State.PAUSED
    assert not any(agent.used for agent in client.agents())
    experiment.activate()
    assert experiment.wait() is State.COMPLETED
    assert experiment.trial.view.restarts == 0


def test_a_pause_is_saved_although_another_rank_is_killed_meanwhile(
    client: Client, tmp_path: Path
) -> None:
    brake, held = tmp_path / "brake", tmp_path / "held"
    brake.touch()
    source = (
        TRIAL_SOURCE.replace("PyTorchTrial\n", "PyTorchCallback, PyTorchTrial\n", 1)
        + f"""
    def build_callbacks(self):
        return {{"slow": SlowWrite()}}


class SlowWrite(PyTorchCallback):
    def on_checkpoint_write_end(self, checkpoint_dir):
        import pathlib
        pathlib.Path({str(held)!r}).touch()
        while pathlib.Path({str(brake)!r}).exists():
            time.sleep(0.05)
"""
    )
    config = slow(0.02, min_validation_period={"batches": 0})
    config["searcher"]["max_length"]["batches"] = 2000
    experiment = submit(client, config, source)
    wait_until(lambda: experiment.trial.view.steps_completed > BATCH, "it trains")
    ranks = [rank.view.pid for rank in experiment.trial.ranks]
    assert experiment.pause(timeout=0) is State.PAUSING
    wait_until(held.exists, "rank 0 finishes the checkpoint")
    os.kill(ranks[1], signal.SIGKILL)
    wait_until_gone(ranks[1])
    brake.unlink()
    assert experiment.pause(timeout=None) is State.PAUSED
    (checkpoint,) = experiment.checkpoints()
    assert checkpoint.view.steps_completed > BATCH
    assert experiment.trial.view.restarts == 0


@pytest.mark.usefixtures("preempting")
def test_a_stuck_trial_that_has_to_make_room_can_be_ended_and_goes_on_later(
    client: Client, tmp_path: Path
) -> None:
    brake = tmp_path / "brake"
    experiment = stuck(client, brake)
    urgent = submit(client, short(resources={"slots_per_trial": 3, "priority": 1}))
    room = f"making room for experiment {urgent.id}: rank 1 has not come to the end of batch "
    wait_until(lambda: sentence_of(experiment).startswith(room), "the rank is named")
    assert sentence_of(experiment).endswith("; then it queues again")
    assert experiment.state is State.ACTIVE
    [remedy] = experiment.why().remedies
    assert remedy.verb == "pause_at_once"
    assert experiment.pause(timeout=None, at_once=True) is State.PAUSED
    assert urgent.wait() is State.COMPLETED
    brake.unlink()
    experiment.activate()
    assert experiment.wait() is State.COMPLETED
    assert experiment.trial.view.restarts == 0
