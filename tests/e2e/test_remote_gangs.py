"""Gangs on several computers: agents `b` and `c` offer a slot each.

The agent of the master's computer has two slots, for runs to compare with.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AllocationState
from det_jupyter.errors import RankFailed
from det_jupyter.master.service.agents.agent_access import AgentAccess
from tests.e2e.test_hangs import let_go_on, reason_that_names_both, stalling
from tests.e2e.test_remote_agents import losses
from tests.e2e.test_scheduling import STEPS, short
from tests.e2e.test_survival import final_weights
from tests.nodes import Node
from tests.processes import DetHome, wait_until
from tests.trials import LONG, TRIAL_SOURCE, Gate, allocation_after, submit, wait_for_steps

pytestmark = pytest.mark.e2e

# No periodic checkpoint.
UNTIL_THE_END: dict[str, Any] = {"min_validation_period": {"batches": STEPS}}
RESOURCES = {"slots_per_trial": 2}


@pytest.fixture(scope="module")
def home(home_of_nodes: DetHome, nodes: dict[str, Node]) -> Iterator[DetHome]:
    """Return the home of the agents, of which each offers one slot."""
    client = home_of_nodes.client()

    def switch(*, enabled: bool) -> None:
        for name in nodes:
            client.session.post(f"/agents/{name}/slots", {"slots": [1], "enabled": enabled})

    switch(enabled=False)
    yield home_of_nodes
    switch(enabled=True)
    client.session.close()


@pytest.fixture
def client(home: DetHome, nodes: dict[str, Node]) -> Iterator[Client]:
    client = home.client()
    yield client
    client.session.close()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Return a gate after a third of the batches."""
    return Gate(tmp_path, STEPS // 3)


@pytest.fixture(scope="module")
def undisturbed(home: DetHome) -> Iterator[Experiment]:
    """Return an experiment that ran on the master's computer alone."""
    client = home.client()
    resources = {"slots_per_trial": 2, "resource_pool": "here"}
    experiment = submit(client, short(resources=resources))
    experiment.wait()
    yield experiment
    client.session.close()


def spread(pause_s: float = 0.0, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a trial that needs both nodes."""
    return short(pause_s, **({"resources": RESOURCES} | changes))


def assert_same(
    experiment: Experiment, undisturbed: Experiment, *, most_other_points: int = 0
) -> None:
    """Check that losses and final weights are equal, bit for bit.

    Args:
        experiment, undisturbed: They have the same configuration.
        most_other_points: Points that may lack the metrics of a rank on another computer.
    """
    expected, found = (final_weights(one, STEPS) for one in (undisturbed, experiment))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    (steps, values), (expected_steps, expected_values) = losses(experiment), losses(undisturbed)
    assert steps == expected_steps
    pairs = zip(values, expected_values, strict=True)
    assert sum(a != b for a, b in pairs) <= most_other_points


def saved_between(experiment: Experiment) -> list[int]:
    """Return the steps that survivors, or ranks that left, have saved before the end."""
    steps = [checkpoint.steps_completed for checkpoint in experiment.checkpoints()]
    return [step for step in steps if step != STEPS]


def test_gang_on_two_computers_trains_as_on_one(
    client: Client, undisturbed: Experiment, nodes: dict[str, Node]
) -> None:
    experiment = submit(client, spread())
    experiment.wait()
    assert_same(experiment, undisturbed)


def test_trial_that_loses_the_agent_of_its_chief_waits_and_goes_on_at_its_last_step(
    client: Client, undisturbed: Experiment, nodes: dict[str, Node], gate: Gate
) -> None:
    experiment = submit(client, spread(**UNTIL_THE_END), gate.source())
    gate.wait(experiment)
    name = allocation_after(experiment, 1).agent_ids[0]
    nodes[name].end(signal.SIGKILL)
    gate.open()
    (saved,) = wait_until(lambda: saved_between(experiment), "the survivor has saved")
    slots = f"/agents/{name}/slots"
    client.session.post(slots, {"slots": [0], "enabled": False})
    nodes[name].start()
    expected = "needs 2 slots; 1 of 4 slots may be given out"  # 1 of 2 until the agent is back
    wait_until(lambda: _why(experiment).startswith(expected), "it waits for the other agent")
    assert experiment.view.trials[0].steps_completed == saved
    client.session.post(slots, {"slots": [0], "enabled": True})
    experiment.wait()
    assert experiment.view.trials[0].restarts == 0
    assert_same(experiment, undisturbed, most_other_points=1)


def _why(experiment: Experiment) -> str:
    """Return why a trial waits for slots; "" if it does not."""
    allocation = experiment.view.trials[0].allocation
    is_queued = allocation is not None and allocation.state is AllocationState.QUEUED
    return experiment.why().sentence if is_queued else ""


@pytest.mark.long
def test_ranks_that_are_cut_off_from_another_computer_save_the_last_step(
    client: Client, undisturbed: Experiment, nodes: dict[str, Node], gate: Gate
) -> None:
    experiment = submit(client, spread(**UNTIL_THE_END), gate.source())
    gate.wait(experiment)
    with nodes[allocation_after(experiment, 1).agent_ids[1]].silent():
        gate.open()
        wait_until(lambda: saved_between(experiment), "the survivor has saved")
    experiment.wait()
    assert experiment.view.trials[0].restarts == 0
    assert_same(experiment, undisturbed, most_other_points=1)


def test_a_hang_names_the_rank_of_another_computer(client: Client, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    experiment = submit(client, spread(hang={"after_s": 4}), stalling(fifo))
    reason = reason_that_names_both(experiment)
    assert "; rank 0 waits for it in all_reduce, batch 7" in reason.sentence
    let_go_on(experiment, fifo)


def pids_of(experiment: Experiment) -> list[int]:
    allocation = experiment.view.trials[0].allocation
    assert allocation is not None
    return [rank.pid for rank in allocation.ranks]


def test_trial_of_which_a_rank_is_killed_is_restarted_and_the_rank_is_named(
    client: Client, undisturbed: Experiment, gate: Gate
) -> None:
    experiment = submit(client, spread(**UNTIL_THE_END), gate.source())
    gate.wait(experiment)
    pids = pids_of(experiment)
    os.kill(pids[1], signal.SIGKILL)
    gate.open()
    experiment.wait()
    assert len(saved_between(experiment)) == 1
    trial = experiment.view.trials[0]
    assert (trial.restarts, trial.num_recoveries) == (0, 1)
    assert trial.failure is not None
    assert trial.failure.error.startswith("rank 1 was killed by SIGKILL")
    assert not any(map(psutil.pid_exists, pids))
    assert_same(experiment, undisturbed, most_other_points=1)


def test_exception_on_another_computer_is_the_error_of_the_trial(client: Client) -> None:
    source = TRIAL_SOURCE.replace(
        "        x, y = batch\n        loss",
        "        if batch_idx == 7 and self.context.distributed.rank == 1:\n"
        '            raise ValueError("a bad sample")\n'
        "        x, y = batch\n        loss",
    )
    experiment = submit(client, spread(0.01, max_restarts=0), source)
    with pytest.raises(RankFailed) as failed:
        experiment.wait()
    assert "ValueError: a bad sample" in str(failed.value)
    assert "This was in train_batch, batch 7, on rank 1 of 2." in str(failed.value)


def test_gang_is_paused_continued_and_killed_as_a_whole(
    client: Client, undisturbed: Experiment, nodes: dict[str, Node], gate: Gate, tmp_path: Path
) -> None:
    later = Gate(tmp_path, 20)
    # With a pause, as the ranks agree on what to do about 5 times a second.
    experiment = submit(client, spread(0.05, **UNTIL_THE_END), later.source(gate.source()))
    gate.wait(experiment)
    allocation = allocation_after(experiment, 1)
    secret = AgentAccess(paths.data_dir() / "agents").gang_secret(allocation.id).encode()
    for path in (path for node in nodes.values() for path in node.home.rglob("*")):
        assert not path.is_file() or secret not in path.read_bytes(), path
    experiment.pause()
    wait_until(lambda: experiment.view.trials[0].allocation is None, "it has left")
    paused_at = experiment.view.trials[0].steps_completed
    assert paused_at > 0
    gate.open()
    experiment.activate()
    later.wait(experiment)
    wait_for_steps(experiment, paused_at + 1)
    os.kill(pids_of(experiment)[1], signal.SIGTERM)
    later.open()
    experiment.wait()
    assert len(saved_between(experiment)) == 2
    assert experiment.view.trials[0].restarts == 0
    assert_same(experiment, undisturbed)
    other = submit(client, spread(0.5, searcher=LONG))
    wait_for_steps(other, 2)
    pids = pids_of(other)
    other.kill()
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "all ranks are gone")


def test_search_with_logs_of_each_rank(client: Client) -> None:
    source = TRIAL_SOURCE.replace(
        "        self.context = context\n",
        "        self.context = context\n"
        '        print("here", context.distributed.get_rank(), context.distributed.cross_rank)\n',
    )
    pauses = {"type": "categorical", "vals": [0.0, 0.001]}
    searcher = {"name": "grid", "metric": "error", "max_length": {"batches": 10}}
    config = short(
        hyperparameters={"global_batch_size": 16, "pause_s": pauses},
        searcher=searcher,
        resources=RESOURCES,
    )
    experiment = submit(client, config, source)
    experiment.wait()
    assert len(experiment.trials) == 2
    assert len(experiment.checkpoints()) >= 2
    for trial in experiment.trials:
        lines = {line.rank: line.text for line in trial.logs() if "here" in line.text}
        assert lines == {0: "here 0 0", 1: "here 1 1"}
