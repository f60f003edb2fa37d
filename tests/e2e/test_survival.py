"""What survives what: a trial that was killed or paused ends as an undisturbed one does.

Equal means bit-identical final weights, and every metric stored exactly once.
"""

from __future__ import annotations

import operator
import os
import random
import re
import signal
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import SeriesQuery
from det_jupyter.errors import Conflict, RankFailed
from tests.e2e.test_scripts import leftover as leftover
from tests.e2e.test_scripts import lives, resumable, start
from tests.processes import DetHome, wait_until
from tests.trials import LONG, TRIAL_SOURCE, Gate, slow, small_config, submit, wait_for_steps

pytestmark = pytest.mark.e2e

STEPS = 60
ONE_SLOT: dict[str, Any] = {"resources": {"slots_per_trial": 1}}


def final_weights(experiment: Experiment, steps: int = STEPS) -> dict[str, torch.Tensor]:
    last = max(experiment.checkpoints(), key=lambda c: c.steps_completed)
    assert last.steps_completed == steps
    weights: dict[str, torch.Tensor] = last.load().model.state_dict()
    return weights


def curve(experiment: Experiment, group: str, name: str) -> tuple[list[int], list[float | None]]:
    (found,) = [c for c in experiment.curves() if (c.group, c.name) == (group, name)]
    return found.steps, found.values


# On CPUs as on GPUs with `recover_on_gpus`: an exchange waits for a rank that was killed until the
# groups are aborted, and then ends as if nothing were, with gradients of no batch.
AS_ON_GPUS = """
import time
import torch
from unittest.mock import MagicMock
import torch.distributed as dist
from det_jupyter.pytorch.parallel import DistributedModel
from det_jupyter.pytorch.training.exchange_watch import ExchangeWatch
from det_jupyter.pytorch.training.last_step import LastStep

def exchange(_, bucket):
    gradients = bucket.buffer().div_(2)
    try:
        dist.all_reduce(gradients)
    except RuntimeError:  # NCCL raises nothing
        while dist.is_initialized():
            time.sleep(0.01)
        gradients.fill_(1e3)
        print("gradients of no batch", flush=True)
    done = torch.futures.Future()
    done.set_result(gradients)
    return done

def open_on_gpu(open_here, context, core, callbacks):
    keep = open_here(context, core, callbacks)
    keep.watch = ExchangeWatch(core.info.folder, context.device)
    return keep

def be_on_gpus():
    if not dist.is_initialized():  # no rank: the test loads the checkpoint
        return
    for name in ("Event", "current_stream", "set_device", "set_rng_state"):
        setattr(torch.cuda, name, MagicMock())
    torch.cuda.get_rng_state = lambda device: torch.arange(16, dtype=torch.uint8)
    DistributedModel._register_hook = lambda model: model.register_comm_hook(None, exchange)
    open_here = LastStep.open
    LastStep.open = lambda *given: open_on_gpu(open_here, *given)
"""

# A callback that reports each state that is saved, over one connection.
TRACKED = (
    TRIAL_SOURCE.replace("PyTorchTrial\n", "PyTorchCallback, PyTorchTrial\n", 1)
    + """
    def build_callbacks(self):
        return {"tracked": Tracked(self.context.get_hparam("port"))}


class Tracked(PyTorchCallback):
    def __init__(self, port):
        self.port = port

    def on_trial_startup(self, first_batch_idx, checkpoint_uuid):
        self.tracker = socket.create_connection(("127.0.0.1", self.port))

    def state_dict(self):
        self.tracker.sendall(b"x")
        return {}
"""
)


@pytest.fixture(scope="module")
def undisturbed(home: DetHome) -> dict[str, Any]:
    """Run the trial in peace."""
    client = home.client()
    experiment = submit(client, small_config())
    experiment.wait()
    found = {
        "id": experiment.id,
        "weights": final_weights(experiment),
        "loss": curve(experiment, "batches", "loss"),
        "error": curve(experiment, "validation", "error"),
    }
    client.session.close()
    return found


def assert_equal_to(
    undisturbed: dict[str, Any], experiment: Experiment, *, most_other_points: int = 0
) -> None:
    """Check that weights and curves are equal, bit for bit.

    Args:
        undisturbed: What the fixture of that name returns.
        experiment: It has the same configuration.
        most_other_points: Points of the loss that may lack the metrics of a killed rank.
    """
    weights = final_weights(experiment)
    for name, tensor in undisturbed["weights"].items():
        assert torch.equal(weights[name], tensor), f"{name} differs"
    (steps, losses), (all_steps, all_losses) = (
        curve(experiment, "batches", "loss"),
        undisturbed["loss"],
    )
    assert steps == all_steps
    assert sum(map(operator.ne, losses, all_losses)) <= most_other_points
    assert curve(experiment, "validation", "error") == undisturbed["error"]


def assert_measured(client: Client, experiment: Experiment) -> None:
    """Times and samples of both ranks and of the machine are there, each moment once."""
    trial_id = experiment.trial.id
    times = client.series(trial_id, SeriesQuery(of="timings", axis="batches", names=["forward"]))
    system = client.series(trial_id, SeriesQuery(of="system", names=["memory_free", "memory_rss"]))
    found = {(one.source, one.name): one.x for one in [*times.series, *system.series] if one.x}
    both = {(f"rank:{rank}", name) for rank in (0, 1) for name in ("forward", "memory_rss")}
    assert found.keys() == {*both, ("host", "memory_free")}
    assert all(x == sorted(set(x)) for x in found.values())


def test_an_undisturbed_run_has_every_record_once(undisturbed: dict[str, Any]) -> None:
    steps, _ = undisturbed["loss"]
    assert steps == list(range(1, STEPS + 1))
    assert undisturbed["error"][0] == [20, 40, 60]


def test_pause_and_activate_at_a_random_batch(
    client: Client, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    gate = Gate(tmp_path, random.randint(3, 29))
    experiment = submit(client, small_config(), gate.source())
    gate.wait(experiment)
    assert experiment.pause(timeout=None) == "PAUSED"
    paused_at = experiment.view.trials[0].steps_completed
    assert not any(agent.used for agent in client.agents())
    assert experiment.checkpoints()[-1].steps_completed == paused_at < STEPS
    gate.open()
    experiment.activate()
    assert experiment.wait() == "COMPLETED"
    assert_equal_to(undisturbed, experiment)


def test_a_folder_that_was_moved_is_named_before_ranks_start_in_it(
    client: Client, tmp_path: Path
) -> None:
    folder, elsewhere, gate = tmp_path / "book", tmp_path / "moved", Gate(tmp_path, 3)
    folder.mkdir()
    experiment = submit(client, small_config(**ONE_SLOT), gate.source(), cwd=folder)
    gate.wait(experiment)
    assert experiment.pause(timeout=None) == "PAUSED"
    folder.rename(elsewhere)
    with pytest.raises(Conflict, match=f"the notebook's folder, {folder}, is not there"):
        experiment.activate()
    assert experiment.state == "PAUSED"
    gone = submit(client, small_config(**ONE_SLOT), cwd=folder)
    with pytest.raises(RankFailed, match="is not there"):
        gone.wait()
    with pytest.raises(Conflict, match="is not there"):
        gone.continue_()
    elsewhere.rename(folder)
    gate.open()
    experiment.activate()
    assert experiment.wait() == "COMPLETED"
    assert [each.view.trials[0].restarts for each in (experiment, gone)] == [0, 0]


def test_master_killed_while_training(
    home: DetHome, client: Client, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 10)
    experiment = submit(client, small_config(), gate.source())
    gate.wait(experiment)
    pids = [rank.view.pid for rank in experiment.trial.ranks]
    home.master().send_signal(signal.SIGKILL)
    wait_until(lambda: pids_of(experiment) == pids, "the next master has adopted them")
    gate.open()
    assert experiment.wait() == "COMPLETED"
    assert experiment.view.trials[0].restarts == 0
    assert_equal_to(undisturbed, experiment)
    assert_measured(client, experiment)


def pids_of(experiment: Experiment) -> list[int | None]:
    allocation = experiment.view.trials[0].allocation
    return [rank.pid for rank in allocation.ranks] if allocation else []


def test_agent_killed_while_a_trial_and_a_script_train(
    home: DetHome, client: Client, undisturbed: dict[str, Any], tmp_path: Path, leftover: Path
) -> None:
    gates = Gate(tmp_path, 5), Gate(tmp_path, 25)  # there is a checkpoint of batch 20 by then
    script = start(client, tmp_path, f"python3 train.py {leftover}", resumable(gates[0]))
    gates[0].wait(script)
    assert lives(leftover)
    experiment = submit(client, small_config(), gates[1].source())
    gates[1].wait(experiment)
    pids = [rank.view.pid for each in (experiment, script) for rank in each.trial.ranks]
    assert len(pids) == 3
    home.agent().send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "its ranks died with it")
    for gate in gates:
        gate.open()
    assert experiment.wait() == "COMPLETED"
    assert experiment.view.trials[0].restarts == 0  # not the trial's fault
    assert_equal_to(undisturbed, experiment)
    assert script.wait() == "COMPLETED"  # run again by the next agent
    assert not lives(leftover)


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_killed_while_training(
    client: Client, undisturbed: dict[str, Any], rank: int, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 21)  # there is a checkpoint of batch 20
    with socket.create_server(("127.0.0.1", 0)) as tracker:
        config = small_config()
        config["hyperparameters"]["port"] = tracker.getsockname()[1]
        experiment = submit(client, config, gate.source(f"import socket\n{TRACKED}"))
        gate.wait(experiment)
        pids = [r.view.pid for r in experiment.trial.ranks]
        os.kill(pids[rank], signal.SIGKILL)
        gate.open()
        wait_until(lambda: not any(map(psutil.pid_exists, pids)), "the gang ended")
        assert experiment.wait() == "COMPLETED"
    view = experiment.view.trials[0]
    assert (view.restarts, view.num_recoveries) == (0, 1)
    said = view.recoveries[0].sentence
    assert re.match(rf"rank {rank} was killed \(SIGKILL\) at batch \d+; went on after ", said)
    assert view.failure is not None
    assert view.failure.rank == rank
    assert "SIGKILL" in view.failure.error
    assert_equal_to(undisturbed, experiment, most_other_points=1)
    # The other rank has saved the last batch and reported it: none was trained again from 20 on.
    steps = {one.steps_completed for one in experiment.checkpoints()}
    assert any(21 <= step < STEPS and step % 20 for step in steps)
    assert 20 in steps or rank == 0  # rank 0 finishes it


def test_an_exchange_that_does_not_notice_a_killed_rank_is_aborted_and_not_stepped_with(
    client: Client, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    init = "        self.context = context\n"
    trial = TRIAL_SOURCE.replace(init, f"{init}        be_on_gpus()\n")
    gate = Gate(tmp_path, 21)
    experiment = submit(client, small_config(), AS_ON_GPUS + gate.source(trial))
    gate.wait(experiment)
    os.kill(experiment.trial.ranks[1].view.pid, signal.SIGKILL)
    gate.open()
    assert experiment.wait() == "COMPLETED"
    view = experiment.view.trials[0]
    assert (view.restarts, view.num_recoveries) == (0, 1)
    assert any(line.text == "gradients of no batch" for line in experiment.trial.logs())
    weights = final_weights(experiment)
    assert all(torch.equal(weights[name], was) for name, was in undisturbed["weights"].items())


def test_a_killed_experiment_ends_canceled_and_frees_its_slots(client: Client) -> None:
    experiment = submit(client, slow(0.05, searcher=LONG))
    wait_for_steps(experiment, 1)
    pids = [rank.view.pid for rank in experiment.trial.ranks]
    experiment.kill()
    assert experiment.wait() == "CANCELED"
    assert not any(map(psutil.pid_exists, pids))
    assert not any(agent.used for agent in client.agents())
    experiment.kill()  # again: no effect, no error
    assert experiment.state == "CANCELED"


def test_a_canceled_experiment_saves_its_state_first(client: Client) -> None:
    experiment = submit(client, slow(0.05, searcher=LONG))
    wait_for_steps(experiment, 5)
    experiment.cancel()
    assert experiment.wait() == "CANCELED"
    view = experiment.view.trials[0]
    assert experiment.checkpoints()[-1].steps_completed == view.steps_completed


def test_a_kill_ends_a_trial_that_hangs_in_its_pause_at_once(client: Client) -> None:
    experiment = submit(client, slow(3600))

    def state() -> str:
        allocation = experiment.view.trials[0].allocation
        return "" if allocation is None else allocation.state

    wait_until(lambda: state() == "RUNNING", "its ranks are up")
    experiment.pause(timeout=0)
    told = experiment.view.trials[0].waiting_for or ""
    assert told.startswith("pausing: ")
    assert "frees 2 slots then; killed at " in told
    experiment.kill()
    assert experiment.wait() == "CANCELED", "not in the hour that it has to save its state"
    assert not any(agent.used for agent in client.agents())


def test_a_stopped_agent_is_told_of_and_all_comes_right_when_it_wakes(
    home: DetHome, client: Client, tmp_path: Path
) -> None:
    wait_until(lambda: any(agent.connected for agent in client.agents()), "the agent is there")
    gate = Gate(tmp_path, 5)
    experiment = submit(client, small_config(**ONE_SLOT), gate.source())
    killed = submit(client, slow(0.2, searcher=LONG, **ONE_SLOT))
    gate.wait(experiment)
    wait_for_steps(killed, 5)
    agent = home.agent()
    agent.suspend()
    try:
        wait_until(lambda: not any(a.connected for a in client.agents()), "it is missed")
        advice = f"(process {agent.pid}) is stopped: `kill -CONT {agent.pid}` lets it go on"
        for each in (experiment, killed):
            told = wait_until(lambda: each.view.trials[0].waiting_for, "it is told")  # noqa: B023
            assert advice in told
        killed.kill()
        assert killed.state == "STOPPING_KILLED"
        assert advice in (killed.view.trials[0].waiting_for or "")
    finally:
        agent.resume()
    gate.open()
    assert killed.wait() == "CANCELED"
    assert experiment.wait() == "COMPLETED"
    view = experiment.view.trials[0]
    assert (view.restarts, view.waiting_for) == (0, None)
    assert curve(experiment, "batches", "loss")[0] == list(range(1, STEPS + 1))
