"""A sharded trial on two computers, of which ranks, all ranks of one, or an agent are killed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from tests.e2e.test_sharded_deaths import assert_equal_ends, submit_sharded
from tests.exactness import examples
from tests.nodes import Node
from tests.processes import DetHome, wait_until
from tests.trials import Gate, allocation_after

pytestmark = [pytest.mark.e2e, pytest.mark.long]

RANKS = 4  # 0 and 1 are on one computer, 2 and 3 on the other
# Batch: ranks that are killed in it. In batch 12, while the copy after its step is written; in 33,
# all ranks of the other computer; in 47, all of the chief's.
DEATHS = {12: [3], 26: [0], 33: [2, 3], 47: [0, 1]}
PAUSE_S = 0.05


@pytest.fixture(scope="module")
def home(home_of_nodes: DetHome) -> DetHome:
    return home_of_nodes


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Return a gate after the first checkpoint, of batch 20."""
    return Gate(tmp_path, 25)


@pytest.fixture(scope="module")
def calm(home: DetHome, nodes: dict[str, Node]) -> Iterator[Experiment]:
    """Return an experiment that nothing has disturbed."""
    client = home.client()
    experiment = submit_sharded(client, RANKS)
    assert experiment.wait() == "COMPLETED"
    yield experiment
    client.session.close()


def test_killed_ranks_on_both_computers_lose_one_batch_each_and_no_bit(
    client: Client, calm: Experiment, tmp_path: Path
) -> None:
    killed = submit_sharded(client, RANKS, folder=str(tmp_path), deaths=DEATHS)
    assert killed.wait() == "COMPLETED"
    view = killed.view.trials[0]
    assert (view.restarts, view.num_recoveries) == (0, len(DEATHS))
    saved = {one.steps_completed for one in killed.checkpoints()}  # by survivors of each computer
    assert sorted(saved - {20, 40, 60}) == [12, 26, 33, 47]
    assert_equal_ends(calm, killed, lacks_metrics=True)


@pytest.mark.parametrize("seed", range(examples(2)))
def test_ranks_that_are_killed_at_any_moment_cost_no_bit(
    client: Client, calm: Experiment, seed: int, tmp_path: Path
) -> None:
    draws = random.Random(seed)
    gates = [Gate(tmp_path, batch) for batch in [*sorted(draws.sample(range(3, 50), 3)), 55]]
    experiment = submit_sharded(client, RANKS, gates=gates, pause_s=PAUSE_S)
    for gate in gates[:-1]:
        gate.wait(experiment)
        allocation = allocation_after(experiment, 1)
        gate.open()
        for rank in draws.choice([[0], [1], [2], [3], [0, 1], [2, 3], [1, 2]]):
            with suppress(ProcessLookupError):
                os.kill(allocation.ranks[rank].pid, signal.SIGKILL)
    gates[-1].open()
    assert experiment.wait() == "COMPLETED"
    assert experiment.view.trials[0].num_recoveries
    assert_equal_ends(calm, experiment, lacks_metrics=True)


def wait_for_loss_of(experiment: Experiment, *, rank: int) -> None:
    """Wait until survivors have said that they lack a rank's copy."""
    lost = f"rank {rank}'s copy of its part of the model is lost with its agent"
    expected = f"the last step could not be saved: {lost}"
    wait_until(lambda: expected in experiment.view.trials[0].notices, "survivors say why")


def test_trial_that_is_cut_off_from_a_computer_begins_again_at_its_checkpoint(
    client: Client, calm: Experiment, nodes: dict[str, Node], gate: Gate
) -> None:
    experiment = submit_sharded(client, RANKS, gates=[gate])
    gate.wait(experiment)
    with nodes[allocation_after(experiment, 1).agent_ids[0]].silent():
        gate.open()
        wait_for_loss_of(experiment, rank=0)
    assert experiment.wait() == "COMPLETED"
    assert experiment.view.trials[0].num_recoveries == 0
    assert_equal_ends(calm, experiment)


def test_trial_that_loses_an_agent_begins_again_at_its_checkpoint_and_says_so(
    client: Client, calm: Experiment, nodes: dict[str, Node], gate: Gate
) -> None:
    experiment = submit_sharded(client, RANKS, gates=[gate])
    gate.wait(experiment)
    node = nodes[allocation_after(experiment, 1).agent_ids[2]]
    node.end(signal.SIGKILL)
    gate.open()
    wait_for_loss_of(experiment, rank=2)
    node.start()
    assert experiment.wait() == "COMPLETED"
    assert [one.steps_completed for one in experiment.checkpoints()] == [20, 40, 60]
    assert experiment.view.trials[0].num_recoveries == 0
    assert_equal_ends(calm, experiment)
