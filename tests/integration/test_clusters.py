"""The master's side of clusters, with a bridge to a cluster that does not exist."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import AddCluster, ClusterNode, RunReport
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master.background import clusters as clusters_module
from det_jupyter.master.background import one_cluster
from det_jupyter.master.background.bridge import bridge_log
from det_jupyter.master.background.clusters import Clusters
from det_jupyter.master.service.pools_file import read_pools
from tests.integration.master_support import RUN, Bench, make_registration, make_request
from tests.waiting import until

PORT = 4711


class World:
    """A master's clusters, and the folder of the one that its bridge pretends to reach."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bench = Bench(folder / "det.sqlite3")
        access = self.bench.service.access

        async def open_listener(cluster: str) -> int:
            access.set_port(PORT)
            self.listens_for.add(cluster)
            return PORT

        async def close_listener(cluster: str) -> None:
            self.listens_for.remove(cluster)

        self.access = access
        self.listens_for: set[str] = set()
        self.clusters = Clusters(self.bench.service, access, open_listener, close_listener)

    def set_nodes(self, *nodes: ClusterNode) -> None:
        scratch = self.folder / "scratch"
        scratch.write_text(json.dumps([node.model_dump() for node in nodes]))
        os.replace(scratch, self.folder / "nodes.json")

    def orders(self) -> list[dict[str, Any]]:
        path = self.folder / "orders.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def request(self, pool: str = "", **settings: Any) -> AddCluster:
        config = {"engine": "ray", "address": "127.0.0.1:6379", "slots": 2}
        config["token_file"] = str(self.folder / "token")
        return AddCluster(config=config | settings, pool=pool)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a master whose bridges are `tests.fake_bridge`."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(one_cluster, "BRIDGES", {"ray": "tests.fake_bridge"})
    world = World(tmp_path)
    yield world
    world.bench.service.close()


def run(world: World, script: Callable[[Clusters], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await script(world.clusters)
        finally:
            await world.clusters.close(end_hosts=False)
        assert not [each for each in psutil.Process().children() if each.is_running()
                    and "tests.fake_bridge" in each.cmdline()]  # fmt: skip

    asyncio.run(whole())


def node(id: str, **others: Any) -> ClusterNode:
    return ClusterNode(node_id=id, hostname=f"node-{id[0]}", **({"cpus": 4} | others))


A, B = "a" * 12, "b" * 12


def test_each_node_gets_an_agent_with_a_token_of_its_own(world: World) -> None:
    world.set_nodes(node(A), node(B))

    async def script(clusters: Clusters) -> None:
        status = await clusters.add(world.request(pool="night"))
        assert (status.state, status.num_nodes, status.pool) == ("connected", 2, "night")
        await until(lambda: len(world.orders()) == 2, "it has changed")
        given = [order["credentials"] for order in world.orders()]
        assert [each["agent"] for each in given] == ["ray-node-a-aaaaaa", "ray-node-b-bbbbbb"]
        assert [world.access.agent_of(each["token"]) for each in given] == [
            each["agent"] for each in given
        ]
        assert all(each["url"].endswith(f":{PORT}") for each in given)
        assert world.bench.service.machine.state.clusters == ["ray"]
        with pytest.raises(Conflict, match=r"there is a cluster ray already, at 127\.0\.0\.1"):
            await clusters.add(world.request())

    run(world, script)
    stored = read_pools()
    assert stored is not None
    assert [each.name for each in stored.clusters] == ["ray"]
    assert [pool.agents for pool in stored.pools if pool.pool_name == "night"] == [["ray-*"]]


def test_a_cluster_that_cannot_be_reached_is_not_stored(world: World) -> None:
    async def script(clusters: Clusters) -> None:
        with pytest.raises(Conflict, match="there is no such cluster"):
            await clusters.add(world.request())
        with pytest.raises(ConfigError, match="address: got 'a b'"):
            await clusters.add(world.request(address="a b"))
        assert clusters.statuses() == []
        assert world.listens_for == set()

    run(world, script)
    assert read_pools() is None


def test_what_is_wrong_with_the_pool_is_said_before_anything_is_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set_nodes(node(A))
    state = world.bench.service.machine.state

    async def script(clusters: Clusters) -> None:
        with pytest.raises(ConfigError, match=r"^pool: got .*, expected one line"):
            await clusters.add(world.request(pool="a\nb"))
        assert not bridge_log("ray").exists()
        monkeypatch.setattr(clusters_module, "write_clusters", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await clusters.add(world.request(pool="night"))
        assert list(state.pool_configs) == ["default"]
        assert state.clusters == []

    run(world, script)


def test_a_bridge_that_was_killed_is_started_again_and_finds_its_hosts(world: World) -> None:
    world.set_nodes(node(A, host="running", agent="ray-node-a-aaaaaa"))

    async def script(clusters: Clusters) -> None:
        await clusters.add(world.request())
        (bridge,) = [each for each in psutil.Process().children()
                     if "tests.fake_bridge" in each.cmdline()]  # fmt: skip
        bridge.send_signal(signal.SIGKILL)
        await until(lambda: clusters.statuses()[0].state == "not connected", "it has changed")
        (problem,) = clusters.statuses()[0].problems
        assert "exit status -9 of its bridge" in problem
        await until(lambda: clusters.statuses()[0].state == "connected", "it has changed")
        assert world.orders() == []

    run(world, script)


def test_removal_ends_the_agents_and_makes_their_tokens_void(world: World) -> None:
    world.set_nodes(node(A))

    async def script(clusters: Clusters) -> None:
        await clusters.add(world.request())
        await until(world.orders, "it has changed")
        with pytest.raises(NotFound, match="there is no cluster x; there are: ray"):
            await clusters.remove("x")
        removed = await clusters.remove("ray")
        assert (removed.num_agents, removed.trial_ids, removed.problem) == (0, [], "")
        assert world.orders()[-1] == {"kind": "end_bridge"}
        assert world.listens_for == set()

    run(world, script)
    assert world.access.agents == []
    stored = read_pools()
    assert stored is not None
    assert stored.clusters == []


@pytest.mark.parametrize("leaves", [True, False])
def test_trials_of_a_removed_clusters_agent_start_elsewhere_at_once_only_if_it_left_in_order(
    world: World, leaves: bool
) -> None:
    name, service = "ray-node-a-aaaaaa", world.bench.service
    world.set_nodes(node(A, host="running", agent=name))

    def register(**changes: Any) -> None:
        changes["versions"] = installed_versions()
        registration = make_registration("first").model_copy(update=changes)
        service.register(name, registration, is_remote=True)

    async def script(clusters: Clusters) -> None:
        await clusters.add(world.request())
        register()
        await service.submit(make_request())
        assert service.machine.indexes.trials_on_agent(name)
        if leaves:
            register(slots=[], runs=[RunReport(allocation_id=RUN, alive=True)])
        removed = await clusters.remove("ray")
        assert bool(service.machine.indexes.trials_on_agent(name)) == (not leaves)
        assert removed.problem == ("" if leaves else f"{name} did not answer")

    run(world, script)


def test_a_cluster_that_is_being_added_or_removed_cannot_be_removed(world: World) -> None:
    world.set_nodes(node(A))

    async def script(clusters: Clusters) -> None:
        adding = asyncio.create_task(clusters.add(world.request()))
        await asyncio.sleep(0)
        with pytest.raises(Conflict, match="cluster ray is being added"):
            await clusters.remove("ray")
        await adding
        removing = asyncio.create_task(clusters.remove("ray"))
        await asyncio.sleep(0)
        with pytest.raises(Conflict, match="cluster ray is being removed"):
            await clusters.remove("ray")
        await removing

    run(world, script)


def test_clusters_that_are_added_at_the_same_time_are_all_stored(world: World) -> None:
    world.set_nodes(node(A))

    async def script(clusters: Clusters) -> None:
        await asyncio.gather(*(clusters.add(world.request(name=name)) for name in ("a", "b")))

    run(world, script)
    stored = read_pools()
    assert stored is not None
    assert sorted(each.name for each in stored.clusters) == ["a", "b"]


def test_a_cluster_that_cannot_be_stored_is_not_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set_nodes(node(A))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def script(clusters: Clusters) -> None:
        monkeypatch.setattr(clusters_module, "write_clusters", fail)
        with pytest.raises(OSError, match="No space left"):
            await clusters.add(world.request())
        assert clusters.statuses() == []
        assert world.access.agents == []

    run(world, script)


def test_the_cause_is_told_at_once_if_the_port_cannot_be_stored(world: World) -> None:
    world.set_nodes(node(A))

    def fail(_: int | None) -> None:
        raise OSError(28, "No space left on device")

    world.access.set_port = fail  # type: ignore[method-assign,assignment]
    world.listens_for.add("ray")

    async def script(clusters: Clusters) -> None:
        with pytest.raises(Conflict, match="No space left on device"):
            await clusters.add(world.request())
        assert clusters.statuses() == []

    run(world, script)


def test_clusters_of_the_file_are_connected_when_the_master_starts(world: World) -> None:
    world.set_nodes(node(A, cpus=1))
    (world.folder / "data").mkdir(mode=0o700)
    token = world.folder / "token"
    paths.pools_file().write_text(
        f'clusters: [{{engine: ray, address: "h:1", slots: 2, token_file: {token}}}]'
    )

    async def script(clusters: Clusters) -> None:
        running = asyncio.create_task(clusters.run())
        await until(
            lambda: clusters.statuses() and clusters.statuses()[0].state == "connected",
            "it has changed",
        )
        assert clusters.statuses()[0].problems == ["node node-a has 1 CPU, and an agent needs 2"]
        running.cancel()

    run(world, script)


def test_agents_of_a_cluster_that_is_not_in_the_file_any_more_cannot_connect(world: World) -> None:
    (world.folder / "data").mkdir(mode=0o700)
    paths.pools_file().write_text("pools: []")
    token = world.access.add("old-node-a-aaaaaa", cluster="old")
    world.access.add("b")

    async def script(clusters: Clusters) -> None:
        running = asyncio.create_task(clusters.run())
        await until(lambda: world.access.agents == ["b"], "it has changed")
        assert world.access.agent_of(token) is None
        running.cancel()

    run(world, script)


def test_clusters_of_a_file_that_cannot_be_read_keep_their_agents(world: World) -> None:
    (world.folder / "data").mkdir(mode=0o700)
    paths.pools_file().write_text("pools: {")
    world.access.add("old-node-a-aaaaaa", cluster="old")

    async def script(clusters: Clusters) -> None:
        running = asyncio.create_task(clusters.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.access.agents == ["old-node-a-aaaaaa"]
        running.cancel()

    run(world, script)
