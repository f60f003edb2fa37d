"""Nodes of a real Ray cluster become agents: two nodes, each of processes of this computer."""

from __future__ import annotations

import importlib.util
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.errors import Conflict, NotFound
from tests.processes import DetHome, det_home, wait_until
from tests.ray_cluster import RayCluster, ray_cluster
from tests.trials import LONG, Gate, slow, small_config, submit, wait_for_steps

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Return a running cluster with a head and a node."""
    with ray_cluster(tmp_path_factory.mktemp("ray")) as running:
        yield running


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """Return a private det_jupyter whose own agent has too few slots for the trials here."""
    folder = tmp_path_factory.mktemp("home")
    variables = {"DET_JUPYTER_CPU_SLOTS": "1", "HOME": str(folder)}  # without a token of Ray
    with det_home(folder, variables) as running:
        yield running


def settings(cluster: RayCluster, **more: object) -> dict[str, object]:
    return {"engine": "ray", "address": cluster.address, "slots": 2, **more}


@pytest.fixture(scope="module")
def joined(home: DetHome, cluster: RayCluster) -> Iterator[None]:
    """Have the cluster's nodes be agents; the last test removes the cluster."""
    client = home.client()
    for _ in range(3):  # on a busy computer, Ray is not always loaded in time
        with suppress(Conflict):
            client.add_cluster(settings(cluster, token_file=str(cluster.token_file)))
            break
    wait_until(lambda: len(agents_on_nodes(client)) == 2, "both nodes have agents")
    client.session.close()
    yield
    client = home.client()
    for left in client.clusters():
        client.remove_cluster(left.name)
    client.session.close()


def agents_on_nodes(client: Client) -> dict[str, int]:
    """Return the connected agents of the cluster, with their pids."""
    return {a.id: a.pid for a in client.agents() if a.connected and a.id.startswith("ray-")}


def agent_of(experiment: Experiment) -> str:
    allocation = experiment.view.trials[0].allocation
    return allocation.agent_id or "" if allocation is not None else ""


def bridges(client: Client) -> list[psutil.Process]:
    master = psutil.Process(client.session.get("/master")["pid"])
    return [each for each in master.children() if "det_jupyter.engine.ray" in each.cmdline()]


def test_with_another_token_a_cluster_is_refused_in_a_sentence(
    client: Client, cluster: RayCluster, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("f" * 32)
    with pytest.raises(Conflict, match="refuses the token; copy the head's"):
        client.add_cluster(settings(cluster, token_file=str(tmp_path / "wrong")))
    assert client.clusters() == []


def test_an_address_without_a_cluster_is_refused_at_once(client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(Conflict, match=r"nothing can be reached at port 1 of 127.0.0.1"):
        client.add_cluster({"engine": "ray", "address": "127.0.0.1:1"})
    assert time.monotonic() - began < 60  # Ray itself takes two minutes


@pytest.mark.usefixtures("joined")
def test_a_trial_trains_on_a_node(client: Client, cluster: RayCluster, tmp_path: Path) -> None:
    gate = Gate(tmp_path, 5)
    (status,) = client.clusters()
    assert (status.state, status.num_nodes, status.num_slots) == ("connected", 2, 4)
    experiment = submit(client, small_config(), gate.source())
    gate.wait(experiment)
    assert agent_of(experiment) in agents_on_nodes(client)
    gate.open()
    experiment.wait()
    assert experiment.view.state == "COMPLETED"
    with pytest.raises(Conflict, match="there is a cluster ray already, at"):
        client.add_cluster(settings(cluster))


@pytest.mark.long
@pytest.mark.usefixtures("joined")
def test_trials_run_on_while_bridge_and_master_are_replaced(
    client: Client, home: DetHome, tmp_path: Path
) -> None:
    agents, gate = agents_on_nodes(client), Gate(tmp_path, 5)
    experiment = submit(client, small_config(), gate.source())
    gate.wait(experiment)
    (bridge,) = bridges(client)
    bridge.send_signal(signal.SIGKILL)
    home.master().kill()
    gate.open()
    experiment.wait()
    assert experiment.view.state == "COMPLETED"
    assert experiment.view.trials[0].restarts == 0
    wait_until(lambda: client.clusters()[0].state == "connected", "it is connected")
    assert agents_on_nodes(client) == agents


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("how", ["kill", pytest.param("remove", marks=pytest.mark.long)])
def test_a_trial_whose_node_leaves_goes_on_elsewhere(
    client: Client, cluster: RayCluster, how: str
) -> None:
    if not cluster.node_id:  # it has left already
        cluster.node_id = cluster.order("add")

    def on_the_node() -> list[str]:
        return [id for id in agents_on_nodes(client) if id.endswith(cluster.node_id[:6])]

    wait_until(on_the_node, "the node has an agent")
    wait_until(lambda: len(agents_on_nodes(client)) == 2, "both nodes have agents")
    (leaves,) = on_the_node()
    (stays,) = agents_on_nodes(client).keys() - {leaves}
    blocker = submit(client, slow(0.4, searcher=LONG))  # one trial on each node
    moved = submit(client, slow(0.4, searcher=LONG))
    for each in (blocker, moved):
        wait_for_steps(each, 2)
    if agent_of(moved) != leaves:
        blocker, moved = moved, blocker
    blocker.kill()
    wait_until(lambda: blocker.view.state.is_terminal, "the other one has ended")
    cluster.order(how)
    wait_until(lambda: agent_of(moved) == stays, "it is elsewhere")
    assert moved.view.trials[0].restarts == 0
    moved.kill()
    cluster.node_id = ""


@pytest.mark.usefixtures("joined")
def test_a_removed_cluster_leaves_no_agent_and_its_trial_waits(
    client: Client, cluster: RayCluster
) -> None:
    num_nodes = 2 if cluster.node_id else 1  # the agent of one that has left may still be listed
    wait_until(lambda: len(agents_on_nodes(client)) == num_nodes, "each node has its agent")
    pids = agents_on_nodes(client).values()
    experiment = submit(client, slow(0.4, searcher=LONG))
    wait_for_steps(experiment, 2)
    with pytest.raises(NotFound, match="there is no cluster x; there are: ray"):
        client.remove_cluster("x")
    removed = client.remove_cluster("ray")
    trial_ids = [trial.id for trial in experiment.view.trials]
    assert (removed.num_agents, removed.trial_ids, removed.problem) == (len(pids), trial_ids, "")
    assert client.clusters() == []
    assert agents_on_nodes(client) == {}
    assert not any(psutil.pid_exists(pid) for pid in pids)
    reason = wait_until(lambda: experiment.view.trials[0].waiting_for, "its trial waits")
    assert "2 slots" in reason
    assert experiment.view.trials[0].restarts == 0
    experiment.kill()
