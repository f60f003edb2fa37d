"""Consoles into ranks on an agent of another computer, through the tunnels of the agent.

The agent runs on this computer, so its own connection files are moved away while a rank is used:
what reaches it has used the sockets that the master has made.
"""

from __future__ import annotations

import json
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.answers.answering import answer
from det_jupyter.client.handles.rank import Rank
from det_jupyter.errors import Conflict
from tests.e2e.test_remote_agents import requests
from tests.integration.console_support import Server, jupyter_server
from tests.nodes import Node
from tests.processes import DetHome, wait_until
from tests.trials import LONG, slow, submit, wait_for_steps

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def home(home_of_nodes: DetHome) -> DetHome:
    """Return the private det_jupyter with agents of other computers."""
    return home_of_nodes


@pytest.fixture(scope="module")
def node(home: DetHome, nodes: dict[str, Node]) -> Iterator[Node]:
    """Return the agent `b`, which alone offers slots to trials."""
    client = home.client()
    client.session.post("/agents/c/slots", {"enabled": False})
    yield nodes["b"]
    client.session.post("/agents/c/slots", {"enabled": True})
    client.session.close()


@pytest.fixture(scope="module")
def server(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a real Jupyter Server."""
    with jupyter_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def training(home: DetHome, node: Node) -> Iterator[Experiment]:
    """Return an experiment whose trial trains on the two ranks of the agent."""
    client = home.client()
    experiment = submit(client, slow(0.1, searcher=LONG))
    wait_for_steps(experiment, 3)
    for rank in ranks(experiment):
        wait_until(Path(rank.connection_file).exists, "the rank can be reached")
    yield experiment
    if not experiment.view.state.is_terminal:
        experiment.kill()
    client.session.close()


@pytest.fixture
def hidden(training: Experiment, node: Node) -> Iterator[None]:
    """Move the connection files of the agent away."""
    files = list(node.home.glob("data/runs/*/kernel-*.json"))
    assert len(files) == 2
    for file in files:
        file.rename(file.with_suffix(".hidden"))
    yield
    for file in files:
        file.with_suffix(".hidden").rename(file)


def ranks(experiment: Experiment) -> list[Rank]:
    """Return the ranks of the experiment's trial, when they run."""
    wait_until(lambda: trains(experiment), "the ranks train")
    found: list[Rank] = experiment.trials[0].ranks
    return found


def trains(experiment: Experiment) -> bool:
    allocation = experiment.view.trials[0].allocation
    return allocation is not None and any(rank.device for rank in allocation.ranks)


def sockets_of(rank: Rank) -> list[Path]:
    prefix = Path(json.loads(Path(rank.connection_file).read_text())["ip"])
    return sorted(prefix.parent.glob(f"{prefix.name}-*"))


@pytest.mark.usefixtures("hidden")
def test_rank_is_reached_by_private_sockets_of_the_master(
    training: Experiment, home: DetHome, node: Node
) -> None:
    rank = ranks(training)[1]
    assert rank.execute("rank, world_size") == (1, 2)
    assert rank.execute("float(loss)") > 0
    assert Path(rank.connection_file).is_relative_to(home.path / "runtime")
    assert stat.S_IMODE(Path(rank.connection_file).stat().st_mode) == 0o600
    folder = sockets_of(rank)[0].parent
    assert sum(path.is_socket() for path in folder.iterdir()) == 10
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.parent == Path((home.path / "runtime" / "master.sockets").read_text())
    assert folder.parent != Path((node.home / "runtime" / "agent.sockets").read_text())


@pytest.mark.usefixtures("hidden")
def test_stacks_of_all_ranks_are_shown(client: Client, training: Experiment) -> None:
    trial = training.trials[0]
    wait_until(
        lambda: all("in train_batch" in stack for stack in trial.stacks().values()),
        "both ranks are in train_batch",
    )
    page = answer(client, training.id, {"type": "stacks", "trial_id": trial.id})
    assert [one["rank"] for one in page["stacks"] if not one["error"]] == [0, 1]


def test_much_output_arrives_whole(
    training: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = ranks(training)[0]
    rank.execute("for i in range(40): print('x' * 100_000)")
    assert len(capsys.readouterr().out) == 40 * 100_001


@pytest.mark.usefixtures("hidden")
def test_jupyterlab_attaches_interrupts_and_detaches(server: Server, training: Experiment) -> None:
    trial_id = training.trials[0].id
    kernel = server.attach(trial_id, 1)
    assert kernel.run("rank, world_size") == "(1, 2)"
    with closing(kernel.connect()) as line:
        number = kernel.ask(line, "import time\nprint('on')\nwhile True: time.sleep(0.01)")
        kernel.wait_for_output(line, number)
        assert server.http.post(f"{kernel.path}/interrupt").status_code == 204
        assert kernel.result(line, number) == "KeyboardInterrupt"
    assert server.http.delete(kernel.path).status_code == 204
    assert server.attach(trial_id, 1).run("1 + 1") == "2"


def test_consoles_work_again_when_the_master_was_killed(
    server: Server, training: Experiment, home: DetHome, node: Node
) -> None:
    rank, kernel = ranks(training)[1], server.attach(training.trials[0].id, 0)
    assert kernel.run("rank") == "0"
    master = home.master()
    master.kill()
    master.wait()
    client = home.client()  # starts the next one
    node.wait_until_connected(client)
    client.session.close()
    wait_until(Path(rank.connection_file).exists, "the rank can be reached")
    assert rank.execute("rank") == 1
    assert kernel.run("rank") == "0"
    assert ranks(training)[1].view.process == rank.view.process


def test_agent_can_open_only_tunnels_to_its_own_ranks(
    training: Experiment, client: Client, node: Node
) -> None:
    run = training.view.trials[0].allocation
    assert run is not None
    kernel = {"allocation_id": run.id, "rank": 1, "key": "0" * 64}
    with requests(node) as http:
        assert http.get("/agents/b/tunnels/guess").status_code == 404
        assert http.post("/agents/b/tunnels/guess", content=b"x").status_code == 404
        assert http.post("/agents/c/tunnels/guess", content=b"x").status_code == 403
        other = http.post("/agents/b/kernels?session=guess", json=kernel)
        assert (other.status_code, "not registered" in other.text) == (409, True)


def test_killed_agent_ends_consoles_with_a_sentence(
    server: Server, training: Experiment, node: Node
) -> None:
    rank, kernel = ranks(training)[1], server.attach(training.trials[0].id, 0)
    assert kernel.run("rank") == "0"
    folder = sockets_of(rank)[0].parent
    began, kill = time.monotonic(), threading.Timer(0.5, node.end, [signal.SIGKILL])
    kill.start()
    with pytest.raises(Conflict, match="does not answer: agent b is not connected"):
        rank.execute("import time; time.sleep(60)", timeout=50)
    assert time.monotonic() - began < 20
    kill.join()
    assert not Path(rank.connection_file).exists()
    assert not any(path.is_socket() for path in folder.iterdir())
    node.start()
    with closing(kernel.connect()) as line:
        while json.loads(line.recv())["content"].get("execution_state") != "dead":
            pass
    trial_id = training.trials[0].id
    assert f"rank 0 of trial {trial_id} has ended: the trial " in server.log.read_text()
    wait_until(lambda: trains(training), "the trial goes on")
    wait_until(lambda: not folder.exists(), "the sockets of the former run are removed")
    assert ranks(training)[1].execute("rank") == 1


def test_sockets_and_file_are_removed_with_the_run(training: Experiment) -> None:
    rank = ranks(training)[1]
    assert rank.execute("rank") == 1
    folder = sockets_of(rank)[0].parent
    training.kill()
    wait_until(lambda: not folder.exists(), "the sockets are removed")
    assert not Path(rank.connection_file).exists()
    with pytest.raises(Conflict, match="does not answer: it has ended"):
        rank.execute("rank")
