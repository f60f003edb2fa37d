"""Agents of other computers: each has a home of its own, and reaches the master over TLS alone.

They run on this computer, so a path of the master would be found here; no test may depend on that:
what a run needs has to be below the home of its agent.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import torch

from det_jupyter.client import Client, Experiment
from det_jupyter.connection import connect
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import is_frozen
from det_jupyter.contract.messages import ClusterCheck, PreviewRequest, State
from det_jupyter.contract.messages.verdicts import NetworkUse
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master.stopping import end_everything
from det_jupyter.storage.buckets.process import transfers
from tests.bucket_server import BUCKET, serving
from tests.nodes import Node
from tests.processes import DetHome, processes_below, wait_until
from tests.trials import (
    LONG,
    TRIAL_SOURCE,
    Gate,
    allocation_after,
    slow,
    small_config,
    submit,
    wait_for_steps,
)

pytestmark = pytest.mark.e2e

STEPS = 24
LENGTH = {"name": "single", "metric": "error", "max_length": {"batches": STEPS}}
BEGINNING = "self.context = context\n"  # of the trial's __init__
# In one batch of the first run, rank 0 holds the GIL for longer than any test waits.
HOLDING_SOURCE = TRIAL_SOURCE.replace(
    "        x, y = batch\n        loss",
    """        if batch_idx == 12 and self.context.distributed.rank == 0:
            import ctypes, os
            if not os.path.exists("held"):
                open("held", "w").close()
                ctypes.PyDLL(None).sleep(600)
        x, y = batch
        loss""",
)


@pytest.fixture(scope="module")
def home(home_of_nodes: DetHome) -> DetHome:
    """Return the private det_jupyter with agents of other computers."""
    return home_of_nodes


@pytest.fixture(scope="module")
def undisturbed(home: DetHome, nodes: dict[str, Node]) -> Iterator[Experiment]:
    """Return an experiment that ran without faults."""
    client = home.client()
    experiment = submit(client, small_config(searcher=LENGTH))
    experiment.wait()
    yield experiment
    client.session.close()


def assert_same(experiment: Experiment, undisturbed: Experiment) -> None:
    """Check that losses and final weights are equal, bit for bit."""
    expected, found = final_weights(undisturbed), final_weights(experiment)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert losses(experiment) == losses(undisturbed)


def agents_of(experiment: Experiment) -> list[str]:
    allocation = experiment.view.trials[0].allocation
    return [] if allocation is None else sorted(set(allocation.agent_ids))


def final_weights(experiment: Experiment) -> dict[str, torch.Tensor]:
    last = max(experiment.checkpoints(), key=lambda c: c.steps_completed)
    assert last.steps_completed == STEPS
    weights: dict[str, torch.Tensor] = last.load().model.state_dict()
    return weights


def losses(experiment: Experiment) -> tuple[list[int], list[float | None]]:
    (found,) = [c for c in experiment.curves() if (c.group, c.name) == ("batches", "loss")]
    return found.steps, found.values


def test_trial_trains_elsewhere_and_its_checkpoints_arrive(
    client: Client, home: DetHome, nodes: dict[str, Node], undisturbed: Experiment
) -> None:
    (notice,) = client.preview(PreviewRequest(config=small_config())).notices
    assert "on agents of other computers (b, c) is uploaded to this one" in notice
    assert "checkpoints are uploaded from agent" in undisturbed.view.trials[0].notices[0]
    checkpoints = undisturbed.checkpoints()
    assert losses(undisturbed)[0] == list(range(1, STEPS + 1))
    assert all(
        Path(each.path).parent == home.path / "data" / "checkpoints" for each in checkpoints
    )
    assert final_weights(undisturbed)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.long)]
)
def test_trial_whose_agent_ends_goes_on_elsewhere_bit_identical(
    client: Client, nodes: dict[str, Node], undisturbed: Experiment, number: int, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 10)
    config = small_config(searcher=LENGTH, min_validation_period={"batches": STEPS})
    experiment = submit(client, config, gate.source())
    gate.wait(experiment)
    (first,) = agents_of(experiment)
    nodes[first].end(number)
    if number == signal.SIGKILL:  # else its successor says at once that the run is lost
        nodes[first].start()
    gate.open()
    experiment.wait()
    if number == signal.SIGTERM:
        assert agents_of(experiment) != [first]
        assert [agent.slots for agent in client.agents() if agent.id == first] == [[]]
        # The ranks have left as for a preemption.
        assert len({each.steps_completed for each in experiment.checkpoints()} - {STEPS}) == 1
        nodes[first].start()
    nodes[first].wait_until_connected(client)
    assert_same(experiment, undisturbed)


@pytest.mark.long
def test_ranks_end_while_their_agent_is_stopped(
    client: Client, home: DetHome, nodes: dict[str, Node], undisturbed: Experiment
) -> None:
    experiment = submit(client, small_config(searcher=LENGTH), HOLDING_SOURCE)
    wait_until((home.path / "notebook" / "held").exists, "a rank holds the GIL")
    (first,) = agents_of(experiment)
    agent = nodes[first].processes[-1].pid
    os.kill(agent, signal.SIGSTOP)
    try:
        names = {" ".join(p.cmdline()[3:5]) for p in processes_below(nodes[first].home)}
        assert "det_jupyter.rank.zygote --socket" in names
        wait_until(lambda: len(processes_below(nodes[first].home)) == 2, "the ranks have ended")
        assert is_frozen(agent)
    finally:
        os.kill(agent, signal.SIGCONT)
    experiment.wait()
    assert experiment.view.trials[0].restarts == 0
    assert_same(experiment, undisturbed)


@pytest.mark.long
def test_resuming_is_verified_on_two_machines(
    nodes: dict[str, Node], undisturbed: Experiment
) -> None:
    found = undisturbed.verify_resume(batches=12, pause_at=5, machines=2)
    assert found.is_identical
    assert sorted(found.agents) == ["b", "c"]


def test_neither_token_nor_secrets_are_on_the_disk_of_a_node(
    client: Client, nodes: dict[str, Node]
) -> None:
    secret = "correct-horse-battery"
    environment = {"environment_variables": [f"SECRET_WORD={secret}"]}
    check = f"import os; assert len(os.environ['SECRET_WORD']) == {len(secret)}"
    source = TRIAL_SOURCE.replace(BEGINNING, f"{BEGINNING}        {check}\n")
    each_four = {"batches": 4}
    config = slow(0.1, searcher=LONG, environment=environment, min_validation_period=each_four)
    experiment = submit(client, config, source)
    wait_for_steps(experiment, 8)  # a checkpoint is saved after 4
    hidden = [secret.encode(), *(node.credentials.token.encode() for node in nodes.values())]
    for path in (path for node in nodes.values() for path in node.home.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            assert not any(each in content for each in hidden), path
    experiment.kill()


def test_tensorboard_files_and_traces_arrive_while_the_trial_trains(
    client: Client, home: DetHome, nodes: dict[str, Node]
) -> None:
    enable = "context.set_enable_tensorboard_logging(True)"
    source = TRIAL_SOURCE.replace(BEGINNING, f"{BEGINNING}        {enable}\n")
    config = slow(0.05, searcher=LONG, min_validation_period={"batches": 4})
    experiment = submit(client, config, source)
    wait_for_steps(experiment, 5)
    trial = experiment.trials[0]
    (trace,) = trial.profile(2, [1])
    folders = [
        home.path / "data" / of / str(experiment.id) / str(trial.id)
        for of in ("tensorboard", "traces")
    ]
    wait_until(lambda: list(folders[0].glob("*tfevents*")), "event files arrive")
    experiment.cancel()
    assert experiment.wait() is State.CANCELED
    assert trace.path is not None
    assert trace.path.parent == folders[1]
    assert trace.path.stat().st_size == trace.view.size_bytes
    written = {
        path.name: path.read_bytes()
        for node in nodes.values()
        for path in (node.home / "data").glob(f"tensorboard/{experiment.id}/{trial.id}/*")
    }
    assert {path.name: path.read_bytes() for path in folders[0].iterdir()} == written
    assert any(b"Determined/val_error" in content for content in written.values())
    experiment.delete()
    wait_until(lambda: not any(folder.exists() for folder in folders), "the files are removed")


SHARDED = """
from det_jupyter import core
from det_jupyter.contract.messages.verdicts import NetworkUse
from det_jupyter.errors import CheckpointError


def save():
    with core.init() as context:
        rank = context.distributed.rank
        with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, uuid):
            (path / f"rank-{rank}").write_text(str(rank))
        with context.checkpoint.restore_path(uuid) as path:
            assert len(list(path.glob("rank-*"))) == 4
        try:
            with context.checkpoint.restore_path("another"):
                pass
        except CheckpointError as error:
            assert "no checkpoint another of experiment" in str(error), error
        if rank == 0:
            context.train.report_validation_metrics(1, {"error": 1.0})
"""


def test_checkpoint_of_ranks_on_two_computers_arrives_whole_and_is_read_back(
    client: Client, home: DetHome, nodes: dict[str, Node]
) -> None:
    config = small_config(entrypoint="save", resources={"slots_per_trial": 4})
    experiment = submit(client, config, SHARDED)
    experiment.wait()
    (checkpoint,) = experiment.checkpoints()
    path = Path(checkpoint.path)
    assert path.parent == home.path / "data" / "checkpoints"
    assert {each.name: each.read_text() for each in path.glob("rank-*")} == {
        f"rank-{rank}": str(rank) for rank in range(4)
    }
    shares = [node.home / "data" / "checkpoints" for node in nodes.values()]
    wait_until(lambda: not [s for each in shares for s in each.glob(".share-*")], "removed")


def test_computers_of_a_gang_store_into_one_bucket_and_read_it_back(
    client: Client, nodes: dict[str, Node]
) -> None:
    with serving() as bucket:
        storage = {"type": "s3", "bucket": BUCKET, "endpoint_url": bucket.url}
        resources = {"slots_per_trial": 4}
        config = small_config(entrypoint="save", resources=resources, checkpoint_storage=storage)
        absent = "checkpoint another: not in s3+http"
        source = SHARDED.replace("no checkpoint another of experiment", absent)
        experiment = submit(client, config, source)
        experiment.wait()
        (checkpoint,) = experiment.checkpoints()
        assert {name for name in checkpoint.files if name.startswith("rank-")} == {
            f"rank-{rank}" for rank in range(4)
        }
        assert sum(name.endswith("/metadata.json") for name in bucket.objects()) == 1
        shares = [node.home / "data" / "copies" for node in nodes.values()]
        wait_until(lambda: not [s for each in shares for s in each.glob(".share-*")], "removed")
        experiment.delete()
        wait_until(lambda: not bucket.objects(), "the checkpoint is deleted")
        transfers.close()


def test_gang_on_two_computers_has_consoles_and_a_verdict_on_its_network(
    client: Client, nodes: dict[str, Node]
) -> None:
    resources = {"slots_per_trial": 4}
    experiment = submit(client, slow(0.1, resources=resources, searcher=LONG))
    wait_for_steps(experiment, 3)
    trial = experiment.trials[0]
    assert [rank.execute("rank, world_size") for rank in trial.ranks] == [
        (rank, 4) for rank in range(4)
    ]
    assert [rank for rank, stack in trial.stacks().items() if "File" in stack] == [0, 1, 2, 3]

    def network() -> NetworkUse | None:
        verdict = experiment.trials[0].verdict
        return verdict.network if verdict is not None else None

    wait_until(lambda: network() is not None, "there is a verdict")
    found = network()
    assert found is not None
    assert [(one.agent, one.interface) for one in found.computers] == [("b", "lo"), ("c", "lo")]
    assert all((one.sent_bytes or 0) > 1000 for one in found.computers)
    assert 0 < found.seconds <= found.batch_s
    assert "  network: exchanges between 2 computers take " in str(experiment.trials[0].verdict)
    experiment.kill()


def test_size_that_whole_computers_do_not_give_is_refused(
    client: Client, nodes: dict[str, Node]
) -> None:
    with pytest.raises(ConfigError, match=r"got 3, but pool default has .*can run: 1, 2, 4$"):
        submit(client, small_config(resources={"slots_per_trial": 3}))


def requests(node: Node, token: str | None = None) -> httpx.Client:
    context = ssl.create_default_context(cadata=node.credentials.certificate)
    context.check_hostname = False
    token = node.credentials.token if token is None else token
    return httpx.Client(
        base_url=f"{node.credentials.url}/api/v1",
        headers={"Authorization": f"Bearer {token}"},
        verify=context,
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/agents/b/clock", 200),
        ("/agents/c/clock", 403),
        ("/agents/b%2f..%2fc/clock", 404),
        ("/experiments", 403),
        ("/master", 403),
        ("/agents/b/blobs/" + "0" * 64, 404),
        ("/agents/b/checkpoints/x/files?name=..%2F..%2Fdet.sqlite3", 404),
    ],
)
def test_token_is_good_for_the_agents_own_routes_only(
    nodes: dict[str, Node], path: str, status: int
) -> None:
    with requests(nodes["b"]) as http:
        assert http.get(path).status_code == status


def test_unknown_token_and_other_certificate_are_refused(
    home: DetHome, nodes: dict[str, Node]
) -> None:
    with requests(nodes["b"], "guess") as http:
        assert http.get("/agents/b/clock").status_code == 401
    master = paths.read_private(home.path / "runtime" / "master.json")
    with requests(nodes["b"], token="x" if not master else master[:20]) as http:
        assert http.get("/agents/b/clock").status_code == 401
    with (
        httpx.Client(base_url=nodes["b"].credentials.url) as http,
        pytest.raises(httpx.ConnectError, match="certificate"),
    ):
        http.get("/api/v1/agents/b/clock")


def test_agents_stay_when_everything_is_stopped_and_their_gangs_end_at_once(
    client: Client, home: DetHome, nodes: dict[str, Node]
) -> None:
    experiment = submit(client, slow(0.05, searcher=LONG))
    allocation = allocation_after(experiment, 5)
    ranks = [psutil.Process(rank.pid) for rank in allocation.ranks]
    end_everything()
    wait_until(lambda: not any(rank.is_running() for rank in ranks), "they have ended")
    renewed = Client(connect())
    for node in nodes.values():
        node.wait_until_connected(renewed)
        assert node.processes[-1].poll() is None
    assert renewed.experiment(experiment.id).state == State.CANCELED


def test_master_that_restarts_is_found_at_its_port_though_that_was_taken_at_first(
    client: Client, home: DetHome, nodes: dict[str, Node], tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 5)
    experiment = submit(client, small_config(searcher=LENGTH), gate.source())
    gate.wait(experiment)
    port = int(nodes["b"].credentials.url.rpartition(":")[2])
    master = home.master()
    master.kill()
    master.wait()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", port))
        other.listen()
        (problem,) = wait_until(Client(connect()).problems, "the problem is reported")
        assert f"port {port}, which cannot be opened" in problem
    gate.open()
    experiment.wait()
    assert losses(experiment)[0] == list(range(1, STEPS + 1))
    nodes["b"].wait_until_connected(client)


def test_check_measures_the_connections_and_names_what_is_wrong(
    client: Client, nodes: dict[str, Node], tmp_path: Path
) -> None:

    def measured() -> ClusterCheck | None:
        """Return what was found, once both had answered in the time that each measurement has."""
        found = client.check_agents(str(tmp_path))
        is_whole = all(each.measured and each.measured.peers for each in found.agents)
        return found if is_whole else None

    found = wait_until(measured, "both agents have measured their connections")
    checks = {each.agent: each.measured for each in found.agents}
    assert checks.keys() == {"b", "c"}
    for name, other in (("b", "c"), ("c", "b")):
        got = checks[name]
        assert got is not None
        assert got.latency_s > 0
        assert got.up_bytes_per_s > 0
        assert got.peers.keys() == {other}
        assert got.has_folder
    assert not [text for text in found.problems if "cannot connect" in text]
    assert list(tmp_path.iterdir()) == []


def test_removed_agent_is_refused(client: Client, nodes: dict[str, Node]) -> None:
    with pytest.raises(NotFound, match="no agent d was added; those that were: b, c"):
        client.remove_agent("d")
    with pytest.raises(Conflict, match="is the name of an agent of this computer"):
        client.add_agent(next(a.id for a in client.agents() if a.id not in nodes))
    with pytest.raises(ConfigError, match="agent: got 'a/b', expected up to 63 letters"):
        client.add_agent("a/b")
    node = Node(client.add_agent("d", "127.0.0.1"), nodes["b"].home)
    with requests(node) as http:
        assert http.get("/agents/d/clock").status_code == 200
        client.remove_agent("d")
        assert http.get("/agents/d/clock").status_code == 401
