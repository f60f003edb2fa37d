"""All clusters of a master, with bridges in the process of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AddCluster, BridgeReport
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.errors import Conflict, DetError
from det_jupyter.master.background import clusters as module
from det_jupyter.master.background import one_cluster
from det_jupyter.master.background.clusters import Clusters
from det_jupyter.master.machine.model.events import ClustersChanged
from det_jupyter.master.service.pools_file import read_pools
from tests.integration.cluster_support import A, Bridge, node
from tests.integration.master_support import Bench


class World:
    """Clusters that answer at once, unless they are named in `silent`."""

    def __init__(self, folder: Path) -> None:
        self.service = Bench(folder / "det.sqlite3").service
        self.service.access.add("other")
        self.bridges: dict[str, Bridge] = {}
        self.silent: set[str] = set()
        self.failures: list[Exception] = []  # of the next attempts to listen
        self.closed: list[str] = []
        self.clusters = Clusters(self.service, self.service.access, self.listen, self.close)

    async def listen(self, cluster: str) -> int:
        if self.failures:
            raise self.failures.pop(0)
        self.service.access.set_port(4711)
        return 4711

    async def close(self, cluster: str) -> None:
        self.closed.append(cluster)

    async def start(self, config: ClusterConfig, module: str, master: str) -> Bridge:
        bridge = self.bridges[config.name] = Bridge()
        if config.name not in self.silent:
            bridge.coming.put_nowait(BridgeReport(nodes=[node(A)], is_connected=True))
        return bridge

    def sent(self, name: str) -> list[str]:
        return [order.model_dump()["kind"] for order in self.bridges[name].sent]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    world = World(tmp_path)
    monkeypatch.setattr(one_cluster, "Bridge", world)
    yield world
    world.service.close()


def run(world: World, scene: Callable[[Clusters], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await scene(world.clusters)
        finally:
            await world.clusters.close(end_hosts=False)

    asyncio.run(whole())


def request(name: str = "ray", pool: str = "") -> AddCluster:
    config = {"engine": "ray", "address": "127.0.0.1:6379", "slots": 2, "name": name}
    return AddCluster(config=config, pool=pool)


def pools() -> dict[str, list[str]]:
    found = read_pools()
    assert found is not None
    return {pool.pool_name: list(pool.agents) for pool in found.pools}


def test_a_cluster_is_in_the_pool_that_was_named_last_and_in_no_other(world: World) -> None:
    async def scene(clusters: Clusters) -> None:
        assert (await clusters.add(request(pool="night"))).pool == "night"
        await clusters.add(request("b", pool="night"))
        assert pools()["night"] == ["ray-*", "b-*"]
        world.bridges["ray"].coming.put_nowait(0)
        await clusters.remove("ray")
        assert (await clusters.add(request(pool="day"))).pool == "day"
        assert (pools()["night"], pools()["day"]) == (["b-*"], ["ray-*"])

    run(world, scene)


def test_a_cluster_without_a_pool_changes_no_pools(world: World) -> None:
    async def scene(clusters: Clusters) -> None:
        before = list(world.service.machine.state.pools)
        assert (await clusters.add(request())).pool == "default"
        assert world.service.machine.state.pools == before
        assert [each.name for each in clusters.statuses()] == ["ray"]
        assert world.service.machine.state.clusters == ["ray"]

    run(world, scene)


def test_a_cluster_that_is_not_connected_in_time_is_not_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_S", 0.01)
    world.silent = {"ray"}

    async def scene(clusters: Clusters) -> None:
        with pytest.raises(Conflict, match=r"not been loaded and connected within 0\.01 s; see"):
            await clusters.add(request(pool="night"))
        assert clusters.statuses() == []
        assert world.closed == ["ray"]
        assert list(world.service.machine.state.pool_configs) == ["default"]

    run(world, scene)


def test_a_cluster_is_refused_while_the_port_for_its_agents_is_taken(world: World) -> None:
    world.failures = [DetError("port 1 is taken")]

    async def scene(clusters: Clusters) -> None:
        with pytest.raises(Conflict, match="port 1 is taken"):
            await clusters.add(request())
        assert world.bridges == {}
        await clusters.add(request())
        assert [status.state for status in clusters.statuses()] == ["connected"]

    run(world, scene)


@pytest.mark.parametrize("end_hosts", [True, False])
def test_agents_end_with_the_master_only_if_they_shall(world: World, end_hosts: bool) -> None:
    async def scene(clusters: Clusters) -> None:
        await clusters.add(request())
        bridge, sent = world.bridges["ray"], len(world.sent("ray"))
        bridge.coming.put_nowait(0)
        await clusters.close(end_hosts=end_hosts)
        assert world.sent("ray")[sent:] == ["end_bridge"] * end_hosts

    run(world, scene)


def test_removing_a_cluster_that_is_not_connected_says_that_its_agents_may_run_on(
    world: World,
) -> None:
    async def scene(clusters: Clusters) -> None:
        await clusters.add(request())
        bridge = world.bridges["ray"]
        await bridge.put(BridgeReport(problem="the head is gone"))
        await bridge.put(3)
        removed = await clusters.remove("ray")
        assert removed.problem == "the head is gone"
        assert world.service.access.agents == ["other"]
        found = read_pools()
        assert found is not None
        assert found.clusters == []
        assert world.closed == ["ray"]

    run(world, scene)


def test_a_cluster_that_is_silent_is_noted_while_the_master_watches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep, looks = asyncio.sleep, 0

    async def sleep_no_time(seconds: float) -> None:
        nonlocal looks
        looks += seconds == 1.0
        await sleep(0)

    async def scene(clusters: Clusters) -> None:
        monkeypatch.setattr(asyncio, "sleep", sleep_no_time)
        watching = asyncio.create_task(clusters.run())
        await clusters.add(request())
        assert world.service.nodes.notes["ray"] == ""
        monkeypatch.setattr(one_cluster, "_SILENT_S", -1.0)
        for _ in range(100):
            await sleep(0)
        watching.cancel()
        assert looks >= 2
        silent = "cluster ray: the cluster has not answered since"
        assert world.service.nodes.notes["ray"].startswith(silent)

    run(world, scene)


def test_clusters_that_a_former_master_had_are_forgotten(world: World) -> None:
    world.service.take(ClustersChanged(names=["old"]))

    async def scene(clusters: Clusters) -> None:
        watching = asyncio.create_task(clusters.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        watching.cancel()
        assert world.service.machine.state.clusters == []

    run(world, scene)
