"""Nodes of a real Ray cluster become agents: two nodes, each of processes of this computer.

Skipped without Ray, which is not in the extra `test`: starting a cluster takes 10 s and more, and
may fail on a busy computer.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.errors import Conflict, NotFound
from tests.processes import DetHome, det_home, wait_until
from tests.trials import slow, submit, wait_for_steps

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

TOKEN = "0123456789abcdef" * 2
_START_S = 180.0


class RayCluster:
    """A cluster with a head and one node, which admits only who has the token."""

    def __init__(self, folder: Path) -> None:
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        with open(folder / "cluster.log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.ray_cluster"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN},
            )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.end()
            pytest.skip(f"a Ray cluster cannot be started here: {(folder / 'cluster.log')}")
        self.node_id = self.order("add")

    def order(self, word: str) -> str:
        """Have the cluster do something; return the id of the node, if it has added one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().split()[-1]

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Return a running cluster."""
    cluster = RayCluster(tmp_path_factory.mktemp("ray"))
    yield cluster
    cluster.end()


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Return a short folder for temporary files of the agents on the nodes."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


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
def joined(home: DetHome, ray_cluster: RayCluster) -> None:
    """Have the cluster's nodes be agents."""
    client = home.client()
    for _ in range(5):  # on a busy computer, Ray is not always loaded in time
        with suppress(Conflict):
            client.add_cluster(settings(ray_cluster, token_file=str(ray_cluster.token_file)))
            break
    wait_until(lambda: len(agents_on_nodes(client)) == 2, "both nodes have agents")
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


def test_without_the_token_a_cluster_is_refused_in_a_sentence(
    client: Client, ray_cluster: RayCluster, tmp_path: Path
) -> None:
    with pytest.raises(Conflict, match="needs a token, and there is none here"):
        client.add_cluster(settings(ray_cluster))
    (tmp_path / "wrong").write_text("f" * 32)
    with pytest.raises(Conflict, match="refuses the token; copy the head's"):
        client.add_cluster(settings(ray_cluster, token_file=str(tmp_path / "wrong")))
    assert client.clusters() == []


def test_an_address_without_a_cluster_is_refused_at_once(client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(Conflict, match=r"nothing can be reached at port 1 of 127.0.0.1"):
        client.add_cluster({"engine": "ray", "address": "127.0.0.1:1"})
    assert time.monotonic() - began < 10


@pytest.mark.usefixtures("joined")
def test_a_trial_trains_on_a_node(client: Client, ray_cluster: RayCluster) -> None:
    (status,) = client.clusters()
    assert (status.state, status.num_nodes, status.num_slots) == ("connected", 2, 4)
    experiment = submit(client, slow(0.02))
    wait_for_steps(experiment, 5)
    assert agent_of(experiment) in agents_on_nodes(client)
    experiment.wait(120)
    assert experiment.view.state == "COMPLETED"
    with pytest.raises(Conflict, match="there is a cluster ray already, at"):
        client.add_cluster(settings(ray_cluster))


@pytest.mark.usefixtures("joined")
def test_trials_run_on_while_bridge_and_master_are_replaced(client: Client, home: DetHome) -> None:
    agents = agents_on_nodes(client)
    experiment = submit(client, slow(0.1))
    wait_for_steps(experiment, 5)
    (bridge,) = bridges(client)
    bridge.send_signal(signal.SIGKILL)
    home.master().kill()
    experiment.wait(120)
    assert experiment.view.state == "COMPLETED"
    assert experiment.view.trials[0].restarts == 0
    wait_until(lambda: client.clusters()[0].state == "connected", "it is connected", 120)
    assert agents_on_nodes(client) == agents


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("how", ["remove", "kill"])
def test_a_trial_whose_node_leaves_goes_on_elsewhere(
    client: Client, ray_cluster: RayCluster, how: str
) -> None:
    wait_until(lambda: len(agents_on_nodes(client)) == 2, "both nodes have agents", 120)
    (leaves,) = [id for id in agents_on_nodes(client) if id.endswith(ray_cluster.node_id[:6])]
    (stays,) = agents_on_nodes(client).keys() - {leaves}
    blocker = submit(client, slow(0.5))  # one trial on each node
    moved = submit(client, slow(0.1))
    for each in (blocker, moved):
        wait_for_steps(each, 2)
    if agent_of(moved) != leaves:
        blocker, moved = moved, blocker
    blocker.kill()
    wait_until(lambda: blocker.view.state.is_terminal, "the other one has ended")
    ray_cluster.order(how)
    wait_until(lambda: agent_of(moved) == stays, "it is elsewhere", 120)
    assert moved.view.trials[0].restarts == 0
    moved.kill()
    ray_cluster.node_id = ray_cluster.order("add")


@pytest.mark.usefixtures("joined")
def test_a_removed_cluster_leaves_no_agent(client: Client) -> None:
    pids = agents_on_nodes(client).values()
    with pytest.raises(NotFound, match="there is no cluster x; there are: ray"):
        client.remove_cluster("x")
    removed = client.remove_cluster("ray")
    assert (removed.num_agents, removed.problem) == (len(pids), "")
    assert client.clusters() == []
    assert agents_on_nodes(client) == {}
    assert not any(psutil.pid_exists(pid) for pid in pids)
