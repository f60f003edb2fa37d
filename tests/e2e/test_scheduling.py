"""Several experiments on few slots, with real ranks: preemption, gangs over agents, reasons."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import AllocationState, ClusterView, Reason, State
from tests.e2e.test_survival import final_weights
from tests.processes import DetHome, det_home, wait_until
from tests.trials import LONG, Gate, slow, submit, wait_for_steps

pytestmark = pytest.mark.e2e

STEPS = 30
PREEMPTING = [{"pool_name": "default", "scheduler": {"type": "priority", "preemption": True}}]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """Return a private det_jupyter with two simulated agents of 2 slots."""
    path = tmp_path_factory.mktemp("home")
    variables = {
        "DET_JUPYTER_AGENTS": "left=cpu:2 right=cpu:2",
        "DET_JUPYTER_FAKE_DEVICES": str(path / "devices.json"),
    }
    with det_home(path, variables) as running:
        client = running.client()
        wait_until(lambda: len(client.agents()) == 2, "both agents are there")
        client.session.put("/pools", {"pools": PREEMPTING})
        client.session.close()
        yield running


@pytest.fixture
def one_agent(client: Client) -> Iterator[None]:
    """Leave only the agent `left`."""
    switch(client, "right", enabled=False)
    yield
    switch(client, "right", enabled=True)


def switch(client: Client, agent_id: str, *, enabled: bool) -> None:
    client.session.post(f"/agents/{agent_id}/slots", {"enabled": enabled})


def cluster(client: Client) -> ClusterView:
    return ClusterView.model_validate(client.session.get("/cluster"))


def why(client: Client, experiment: Experiment) -> Reason:
    return Reason.model_validate(client.session.get(f"/trials/{experiment.trial.id}/reason"))


def set_priority(client: Client, experiment: Experiment, priority: int) -> None:
    client.session.post(f"/experiments/{experiment.id}/resources", {"priority": priority})


def state_of(experiment: Experiment) -> AllocationState | None:
    allocation = experiment.view.trials[0].allocation
    return allocation.state if allocation is not None else None


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Return a gate after 3 batches."""
    return Gate(tmp_path, 3)


def short(pause_s: float = 0.0, **changes: Any) -> dict[str, Any]:
    """Return a configuration of SmallTrial: 2 ranks, 30 batches, validated and saved every 10."""
    length = {"name": "single", "metric": "error", "max_length": {"batches": STEPS}}
    return slow(pause_s, searcher=length, min_validation_period={"batches": 10}) | changes


def finished(experiment: Experiment) -> dict[str, torch.Tensor]:
    assert experiment.wait() is State.COMPLETED, experiment.view.message
    return final_weights(experiment, STEPS)


def prioritized(priority: int, seed: int) -> dict[str, Any]:
    return short(
        resources={"slots_per_trial": 2, "priority": priority},
        reproducibility={"experiment_seed": seed},
    )


@pytest.mark.usefixtures("one_agent")
def test_two_experiments_preempt_one_another_and_end_as_if_alone(
    client: Client, gate: Gate, tmp_path: Path
) -> None:
    alone = [finished(submit(client, prioritized(42, seed))) for seed in (11, 12)]

    first = submit(client, prioritized(42, 11), gate.source())
    gate.wait(first)
    gate_of_second = Gate(tmp_path, 4)
    second = submit(client, prioritized(20, 12), gate_of_second.source())
    wait_until(lambda: state_of(second) is AllocationState.RUNNING, "the urgent one runs")
    assert state_of(first) is AllocationState.QUEUED
    gate_of_second.wait(second)
    set_priority(client, first, 10)
    wait_until(lambda: state_of(first) is AllocationState.RUNNING, "the other one is back")
    assert state_of(second) is AllocationState.QUEUED
    gate.open()
    gate_of_second.open()

    for experiment, undisturbed in zip((first, second), alone, strict=True):
        weights = finished(experiment)
        for name, tensor in undisturbed.items():
            assert torch.equal(weights[name], tensor), f"{name} differs"
        assert experiment.view.trials[0].restarts == 0


@pytest.mark.usefixtures("one_agent")
def test_a_waiting_trial_says_why_and_what_it_says_starts_it(client: Client, gate: Gate) -> None:
    holder = submit(client, prioritized(42, 11), gate.source())
    gate.wait(holder)
    waiting = submit(client, prioritized(42, 12))

    reason = why(client, waiting)
    assert reason.sentence.startswith(
        f"needs 2 slots on one agent; none of 2 is free; experiment {holder.id} “small” (trial "
    )
    assert [h.experiment_id for h in reason.holders] == [holder.id]
    assert [entry.trial_id for entry in cluster(client).queue] == [waiting.trial.id]
    remedy = next(r for r in reason.remedies if "priority" in r.values)
    priority = remedy.values["priority"]
    assert isinstance(priority, int)
    set_priority(client, waiting, priority)
    assert waiting.wait() is State.COMPLETED
    gate.open()
    assert holder.wait() is State.COMPLETED


def test_a_gang_over_two_agents_trains_as_one_on_one(client: Client) -> None:
    experiment = submit(client, short(resources={"slots_per_trial": 4}))
    view = wait_until(
        lambda: experiment.view.trials[0].allocation or experiment.state.is_terminal, "it starts"
    )
    assert getattr(view, "agent_ids", None) == ["left", "left", "right", "right"]
    assert finished(experiment)


@pytest.mark.usefixtures("one_agent")
def test_a_trial_without_slots_runs_while_all_slots_are_held(client: Client) -> None:
    holder = submit(client, short(0.2, resources={"slots_per_trial": 2}, searcher=LONG))
    wait_for_steps(holder, 3)

    light = submit(client, short(resources={"slots_per_trial": 0}))
    assert light.wait() is State.COMPLETED
    assert not holder.state.is_terminal
    holder.kill()
    wait_until(lambda: holder.state.is_terminal, "it is gone")


def test_draining_an_agent_lets_its_trial_finish_and_starts_nothing_there(
    client: Client, gate: Gate
) -> None:
    experiment = submit(client, short(resources={"slots_per_trial": 2}), gate.source())
    gate.wait(experiment)
    allocation = experiment.view.trials[0].allocation
    assert allocation is not None
    agent_id = allocation.agent_ids[0]
    path = f"/agents/{agent_id}/slots"
    client.session.post(path, {"enabled": False, "drain": True})

    other = submit(client, short())
    assert other.wait() is State.COMPLETED
    gate.open()
    assert experiment.wait() is State.COMPLETED
    drained = next(a for pool in cluster(client).pools for a in pool.agents if a.id == agent_id)
    assert [slot.state for slot in drained.slots] == ["disabled", "disabled"]
    switch(client, agent_id, enabled=True)


def test_the_pools_are_kept_in_the_file(home: DetHome) -> None:
    text = (home.path / "data" / "pools.yaml").read_text()

    assert "pool_name: default" in text
    assert "preemption: true" in text


def test_a_trial_whose_gpu_is_lost_goes_on_elsewhere(
    home: DetHome, client: Client, gate: Gate, tmp_path: Path
) -> None:
    later = Gate(tmp_path, 10)
    experiment = submit(client, prioritized(42, 11), later.source(gate.source()))
    gate.wait(experiment)
    allocation = experiment.view.trials[0].allocation
    assert allocation is not None
    lost_on = allocation.agent_id
    fault = {"index": 1, "at": time.time(), "xid": 79}
    (home.path / "devices.json").write_text(json.dumps({f"{lost_on}:1": fault}))
    os.kill(allocation.ranks[1].pid, signal.SIGKILL)
    gate.open()

    def runs_elsewhere() -> bool:
        now = experiment.view.trials[0].allocation
        return now is not None and now.agent_id not in (None, lost_on)

    wait_until(runs_elsewhere, "the trial is on the other agent")
    (trial,) = experiment.view.trials
    assert trial.restarts == 0
    assert f"GPU 1 is lost (Xid 79: it has fallen off the bus) on agent {lost_on}" in str(
        trial.notices
    )
    second = submit(client, prioritized(42, 12), later.source())
    reason = wait_until(lambda: why(client, second), "it waits")
    assert "1 more is lost (Xid 79" in reason.sentence
    (home.path / "devices.json").unlink()
    wait_until(lambda: state_of(second) is AllocationState.RUNNING, "the GPU is back")
    later.open()
    assert experiment.wait() is second.wait() is State.COMPLETED


def test_an_elastic_trial_gives_a_slot_back_and_grows_again(
    client: Client, one_agent: None, gate: Gate, tmp_path: Path
) -> None:
    later = Gate(tmp_path, 10)
    sizes = {"slots_per_trial": {"min": 1, "max": 8}}
    trial = submit(client, short(resources=sizes), later.source(gate.source()))
    gate.wait(trial)
    other = submit(client, short(resources={"slots_per_trial": 1}))
    other.wait()
    assert other.view.state is State.COMPLETED
    assert trial.view.state is State.ACTIVE
    gate.open()
    wait_until(lambda: len(client.trial(trial.trial.id).sizes) == 3, "it has grown again")
    later.open()
    trial.wait()
    view = client.trial(trial.trial.id)
    assert [str(size) for size in view.sizes] == [
        "2 slots: so many were free",
        f"1 slot: gave 1 slot to experiment {other.id}",
        "2 slots: grew by 1 slot, free for 10 s",
    ]
    assert (view.state, view.restarts, view.steps_completed) == (State.COMPLETED, 0, STEPS)
    rows = trial.metrics().query("group == 'batches' and metric == 'loss'")
    assert [*rows.steps] == [*range(1, STEPS + 1)]
