"""One cluster of a master, whose bridge says what the test tells it to say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import (
    AgentCredentials,
    AskForNodes,
    BridgeReport,
    ClusterNode,
    StartHost,
    Wire,
)
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.errors import DetError
from det_jupyter.master.background import one_cluster
from det_jupyter.master.background.bridge import bridge_log
from det_jupyter.master.background.one_cluster import Cluster
from det_jupyter.master.machine.model.events import AgentLost, ClustersChanged
from det_jupyter.master.service.agents.agent_access import outward_address
from tests.integration.cluster_support import A, B, Bridge, node, running
from tests.integration.master_support import Bench, make_registration, make_request

AGENT_A = "ray-node-a-aaaaaa"


class Clock:
    """The time of the cluster."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


class World:
    """A cluster that runs, its bridges in the order of their starts, and the pauses between."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.bench = Bench(folder / "det.sqlite3")
        self.service, self.access = self.bench.service, self.bench.service.access
        self.bridges: list[Bridge] = []
        self.failures: list[Exception] = []  # of the next starts
        self.pauses: list[float] = []
        self.clock = Clock()
        config = {"engine": "ray", "address": "127.0.0.1:6379", "slots": 2} | settings
        self.cluster = Cluster(ClusterConfig.model_validate(config), self.service, self.access)
        self.cluster.port = 4711
        self.access.add("other")
        self.access.set_port(4711)
        monkeypatch.setattr(one_cluster, "time", self.clock)
        monkeypatch.setattr(one_cluster, "Bridge", self)

    async def start(self, config: ClusterConfig, module: str, master: str) -> Bridge:
        if self.failures:
            raise self.failures.pop(0)
        self.bridges.append(Bridge())
        return self.bridges[-1]

    @property
    def sent(self) -> list[Wire]:
        return self.bridges[-1].sent

    async def tell(self, *nodes: ClusterNode, **report: Any) -> None:
        """Let the bridge report, and the cluster take it."""
        fields = {"is_connected": True} | report
        await self.put(BridgeReport(nodes=list(nodes), **fields))

    async def put(self, what: BridgeReport | int | TimeoutError) -> None:
        await self.bridges[-1].put(what)

    def connect(self, agent_id: str, num_slots: int = 2) -> None:
        """Let an agent register and stream its commands."""
        slots = make_registration("x").slots[:num_slots]
        changes = {"versions": installed_versions(), "slots": slots}
        registration = make_registration(f"of {agent_id}").model_copy(update=changes)
        self.service.register(agent_id, registration, is_remote=True)
        self.service.links.get(agent_id, f"of {agent_id}").is_streaming = True


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return World(tmp_path, monkeypatch)


def play(world: World, scene: Callable[[], Awaitable[None]]) -> None:
    sleep = asyncio.sleep

    async def sleep_no_time(seconds: float) -> None:
        if seconds > 0:
            world.pauses.append(seconds)
        await sleep(0)

    async def run() -> None:
        running = asyncio.create_task(world.cluster.run("master"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "sleep", sleep_no_time)
            for _ in range(5):
                await sleep(0)
            await scene()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    try:
        asyncio.run(run())
    finally:
        world.service.close()


def test_it_is_connecting_until_the_bridge_says_otherwise(world: World) -> None:
    async def scene() -> None:
        cluster = world.cluster
        cluster.check_silence()  # it has not even begun to report
        assert (cluster.status().state, cluster.status().num_nodes) == ("connecting", 0)
        await world.tell(is_connected=False, problem="no head there")
        status = cluster.status()
        assert (status.state, status.problems) == ("not connected", ["no head there"])
        assert not cluster.connected.is_set()
        await world.tell(node(A), node(B, is_alive=False))
        status = cluster.status()
        assert (status.state, status.problems, status.num_nodes) == ("connected", [], 1)
        assert (status.engine, status.address, status.slots) == ("ray", "127.0.0.1:6379", "2")
        assert cluster.connected.is_set()

    play(world, scene)


def test_agents_are_counted_with_their_slots_while_they_are_connected(world: World) -> None:
    async def scene() -> None:
        await world.tell(running(A), running(B), num_asked=3)
        world.connect(AGENT_A)
        status = world.cluster.status()
        assert (status.num_agents, status.num_slots, status.num_asked) == (1, 2, 3)
        assert world.service.nodes.notes["ray"] == "cluster ray has been asked for 3 nodes more"
        world.service.links.get(AGENT_A, f"of {AGENT_A}").is_streaming = False
        assert world.cluster.status().num_agents == 0

    play(world, scene)


def test_a_started_agent_gets_credentials_of_its_own(world: World) -> None:
    async def scene() -> None:
        await world.tell(node(A))
        (order,) = world.sent
        assert isinstance(order, StartHost)
        assert order.node_id == A
        assert world.access.agent_of(order.credentials.token) == AGENT_A
        assert world.access.cluster_of(AGENT_A) == "ray"
        assert order.credentials.url == f"https://{outward_address('127.0.0.1', 6379)}:4711"

    play(world, scene)


def test_the_address_of_the_master_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    world = World(tmp_path, monkeypatch, master_address="10.0.0.9")

    async def scene() -> None:
        await world.tell(node(A))
        (order,) = world.sent
        assert isinstance(order, StartHost)
        assert isinstance(order.credentials, AgentCredentials)
        assert order.credentials.url == "https://10.0.0.9:4711"

    play(world, scene)


def test_waiting_trials_have_the_cluster_asked_for_nodes(world: World) -> None:
    world.service.links.registered.set()
    world.service.take(ClustersChanged(names=["ray"]))

    async def scene() -> None:
        await world.service.submit(make_request())
        await world.tell()
        assert world.sent == [AskForNodes(num=1, cpus=2.0)]
        await world.tell()
        assert len(world.sent) == 1  # not again
        await world.put(0)  # the next bridge knows nothing of it
        await world.tell()
        assert world.sent == [AskForNodes(num=1, cpus=2.0)]

    play(world, scene)


def test_idle_nodes_are_given_back_after_the_minutes_that_are_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    world = World(tmp_path, monkeypatch, idle_minutes=2)

    async def scene() -> None:
        await world.tell(running(A))
        world.connect(AGENT_A)
        await world.tell(running(A))
        world.clock.now += 119
        await world.tell(running(A))
        assert world.sent == []
        world.clock.now += 2
        await world.tell(running(A))
        assert [order.model_dump()["kind"] for order in world.sent] == ["end_host"]

    play(world, scene)


def test_why_nodes_have_no_agent_is_told(world: World) -> None:
    async def scene() -> None:
        await world.tell(
            node(A, host="starting"),
            node(B, host="ended", output="Traceback\nImportError: torch\n"),
            node("c" * 12, cpus=1),
        )
        ended, small = world.cluster.status().problems
        assert ended == "node node-b: its agent ended: ImportError: torch"
        assert small == "node node-c has 1 CPU, and an agent needs 2"
        world.clock.now += 20
        await world.tell(node(A, host="starting"))
        assert world.cluster.status().problems == []  # for 20 s, a start is nothing to tell
        world.clock.now += 1
        assert world.cluster.status().problems == [
            "node node-a: its agent waits for 2 CPUs that other programs of the cluster hold"
        ]
        await world.tell(running(A))
        assert world.cluster.status().problems == []

    play(world, scene)


def test_the_failure_of_an_agent_is_told_until_the_next_is_connected(world: World) -> None:
    async def scene() -> None:
        await world.tell(node(A, host="ended", output="killed"))
        await world.tell(running(A))
        assert world.cluster.status().problems == ["node node-a: its agent ended: killed"]
        world.connect(AGENT_A)
        await world.tell(running(A))
        assert world.cluster.status().problems == []

    play(world, scene)


@pytest.mark.parametrize("has_exited", [True, False])
def test_a_node_that_leaves_is_told_and_counts_as_over_only_if_it_has_exited(
    world: World, has_exited: bool
) -> None:
    async def scene() -> None:
        await world.tell(running(A), running(B))
        gone = running(A, is_alive=False, has_exited=has_exited)
        await world.tell(gone, running(B))
        nodes = world.service.nodes
        assert nodes.left(AGENT_A).startswith("node node-a left cluster ray at ")
        assert nodes.left("ray-node-b-bbbbbb") == ""
        assert (nodes.of_agents[AGENT_A].exited_at == world.clock.now) == has_exited
        assert world.cluster.status().num_nodes == 1

    play(world, scene)


def test_agents_of_nodes_that_left_are_listed_for_ten_minutes(world: World) -> None:
    async def scene() -> None:
        world.bench.now = world.clock.now
        await world.tell(node(A))
        world.connect(AGENT_A)
        await world.tell(running(A))
        world.service.take(AgentLost(agent_id=AGENT_A))
        state = world.service.machine.state
        state.lost_agents[AGENT_A].left_at = world.clock.now
        await world.tell(running(A))  # it is there, so its agent may come back
        world.clock.now += 600
        await world.tell(running(A, is_alive=False))
        assert AGENT_A in state.lost_agents
        world.clock.now += 1
        await world.tell()
        assert AGENT_A not in state.lost_agents
        assert world.access.agents == ["other"]
        assert AGENT_A not in world.service.nodes.of_agents

    play(world, scene)


def test_lost_agents_of_others_and_of_live_nodes_stay(world: World) -> None:
    async def scene() -> None:
        world.connect("elsewhere")
        world.service.take(AgentLost(agent_id="elsewhere"))
        await world.tell(running(A))
        world.connect(AGENT_A)
        world.service.take(AgentLost(agent_id=AGENT_A))
        world.clock.now += 10_000
        await world.tell(running(A))
        assert set(world.service.machine.state.lost_agents) == {"elsewhere", AGENT_A}

    play(world, scene)


def test_a_bridge_that_ends_is_started_again_after_growing_pauses(world: World) -> None:
    world.failures = [DetError(f"failure {number}") for number in range(6)]

    async def scene() -> None:
        while not world.bridges:
            await asyncio.sleep(0)
        assert world.pauses == [2, 4, 8, 16, 30, 30]
        assert world.cluster.failed.is_set()
        assert world.cluster.problem == "failure 5"
        await world.tell(node(A))
        assert world.cluster.problem == ""
        await world.put(-9)
        assert world.pauses[-1] == 1  # it was connected
        status = world.cluster.status()
        assert status.state == "not connected"
        (problem,) = status.problems
        assert problem.startswith("the connection to the cluster broke at ")
        assert "exit status -9 of its bridge" in problem
        assert world.service.nodes.notes["ray"] == f"cluster ray: {problem}"
        assert len(world.bridges) == 2

    play(world, scene)


def test_a_bridge_that_ends_before_it_is_connected_is_quoted(world: World) -> None:
    bridge_log("ray").write_text("first\nModuleNotFoundError: ray\n")

    async def scene() -> None:
        await world.put(1)
        (problem,) = world.cluster.status().problems
        assert problem.endswith("ended with exit status 1: ModuleNotFoundError: ray")

    play(world, scene)


def test_a_bridge_that_is_silent_is_a_problem_and_is_replaced(world: World) -> None:
    async def scene() -> None:
        await world.tell(node(A))
        world.clock.now += 10
        world.cluster.check_silence()
        assert world.service.nodes.notes["ray"] == ""
        assert world.cluster.status().state == "connected"
        world.clock.now += 1
        world.cluster.check_silence()
        (problem,) = world.cluster.status().problems
        assert problem.startswith("the cluster has not answered since ")
        assert world.service.nodes.notes["ray"] == f"cluster ray: {problem}"
        assert world.cluster.status().num_nodes == 0
        await world.put(TimeoutError())
        assert len(world.bridges) == 2
        assert world.cluster.status().problems == [problem]

    play(world, scene)


def test_it_is_over_when_it_ends_in_order(world: World) -> None:
    async def scene() -> None:
        await world.tell(running(A))
        await world.cluster.end()
        assert [order.model_dump()["kind"] for order in world.sent] == ["end_bridge"]
        await world.tell(node(A), node(B))  # no agent is started any more
        assert len(world.sent) == 1
        await world.put(0)
        assert len(world.bridges) == 1
        assert world.pauses == []

    play(world, scene)


def test_trials_on_its_agents_are_known(world: World) -> None:
    async def scene() -> None:
        await world.tell(running(A))
        world.connect(AGENT_A)
        world.connect("elsewhere")
        for _ in range(2):
            await world.service.submit(make_request())
        on_a = world.service.machine.indexes.trials_on_agent(AGENT_A)
        assert world.cluster.trial_ids == [trial.id for trial in on_a]
        assert len(on_a) == 1

    play(world, scene)
