"""All clusters of a master: those of pools.yaml, and those that requests add and remove.

pools.yaml, requests ──► Clusters ──► Cluster ──orders──► bridge ──► cluster's nodes
                                         ▲                   │           │ start agents,
                                         └──────reports──────┘           ▼ which dial us
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from det_jupyter.config.pools import parse_pools
from det_jupyter.contract.messages import (
    AddCluster,
    ClusterStatus,
    Loss,
    RemovedCluster,
    SetPools,
)
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.contract.values.text import error_message
from det_jupyter.errors import ConfigError, Conflict, DetError, NotFound, Problem
from det_jupyter.master.background.bridge import bridge_log
from det_jupyter.master.background.one_cluster import Cluster, close_agents
from det_jupyter.master.machine.model.events import AgentLost, ClustersChanged
from det_jupyter.master.service.agents.agent_access import AgentAccess
from det_jupyter.master.service.pools_file import read_pools, write_clusters
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

_FIRST_S = 60.0  # time for the bridge of a new cluster to load Ray and connect
_END_S = 25.0  # time for the agents of a removed cluster to end


class Clusters:
    """All clusters of a master.

    Args:
        service: The master's service.
        access: Stores the tokens of agents.
        open_listener: Opens the port for agents of other computers, for the cluster of this name;
            returns the port.
        close_listener: Closes the port if neither another cluster nor an agent needs it.
    """

    def __init__(
        self,
        service: Service,
        access: AgentAccess,
        open_listener: Callable[[str], Awaitable[int]],
        close_listener: Callable[[str], Awaitable[None]],
    ) -> None:
        self._service = service
        self._access = access
        self._open_listener = open_listener
        self._close_listener = close_listener
        self._clusters: dict[str, Cluster] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Start the bridges of the clusters in pools.yaml; watch all clusters, until cancelled."""
        with suppress(DetError):  # `status` shows problems of the file
            found = read_pools()
            for config in found.clusters if found else ():
                self._start(config)
            # Clusters that were deleted from the file, or whose removal a killed master had begun.
            for name in self._access.clusters - self._clusters.keys():
                logger.warning("cluster %s is not in the file any more: its agents end", name)
                close_agents(name, self._service, self._access)
        self._note_names()  # also an empty list
        while True:
            await asyncio.sleep(1.0)
            for cluster in self._clusters.values():
                cluster.check_silence()

    def _start(self, config: ClusterConfig) -> Cluster:
        cluster = Cluster(config, self._service, self._access)
        self._clusters[config.name] = cluster
        self._tasks[config.name] = asyncio.create_task(self._keep(cluster))
        self._note_names()
        return cluster

    def _note_names(self) -> None:
        """Store the names of the clusters: their pools may grow beyond the present nodes."""
        if list(self._clusters) != self._service.machine.state.clusters:
            self._service.take(ClustersChanged(names=list(self._clusters)))

    async def _keep(self, cluster: Cluster) -> None:
        while True:
            try:
                master = self._access.master_id
                cluster.port = await self._open_listener(cluster.config.name)
                break
            # The port is taken, cryptography is missing, or the disk is full.
            except (DetError, OSError) as error:
                cluster.problem = error_message(error)
                cluster.failed.set()
                await asyncio.sleep(2.0)
        await cluster.run(master)

    async def add(self, request: AddCluster) -> ClusterStatus:
        """Connect to a cluster, and store its settings.

        Raises:
            ConfigError: The settings are not valid.
            Conflict: A cluster has this name, or it cannot be connected to; the message has the
                reason and what to do.
        """
        config = _parse(request)
        read_pools()  # a problem of the file is reported before anything is done
        if request.pool:
            _check_pool_name(request.pool)
        if (known := self._clusters.get(config.name)) is not None:
            raise Conflict(
                f"there is a cluster {config.name} already, at {known.config.address}; give this "
                "one another name (--name), or remove that one first"
            )
        cluster = self._start(config)
        cluster.change = "added"
        pools = None
        try:
            await _first(cluster)
            if request.pool:
                pools = self._pools()
                changed = _with_pattern(pools, config.agent_pattern, request.pool)
                self._service.apply(SetPools(pools=changed))
            stored = read_pools()
            self._store([*stored.clusters, config] if stored else [config])
        except BaseException:  # a cancellation too: the cluster is removed again
            if pools is not None:  # so that no empty pool is left
                self._service.apply(SetPools(pools=pools))
            await self._drop(cluster)
            raise
        finally:
            cluster.change = ""
        return cluster.status()

    def _pools(self) -> list[dict[str, Any]]:
        return self._service.machine.state.pools

    def _store(self, clusters: list[ClusterConfig]) -> None:
        write_clusters(self._pools(), clusters, read_pools())

    async def _stop(self, cluster: Cluster) -> None:
        task = self._tasks[cluster.config.name]
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _drop(self, cluster: Cluster) -> None:
        """End a cluster's bridge, revoke its agents' tokens, and forget it."""
        await self._stop(cluster)
        close_agents(cluster.config.name, self._service, self._access)
        del self._clusters[cluster.config.name], self._tasks[cluster.config.name]
        self._note_names()
        await self._close_listener(cluster.config.name)

    async def remove(self, name: str) -> RemovedCluster:
        """End a cluster's agents and the connection to it; return a description of the effects.

        Raises:
            NotFound: There is no such cluster.
            Conflict: The cluster is being added or removed.
        """
        cluster = self._clusters.get(name)
        if cluster is None:
            known = ", ".join(self._clusters) or "none"
            raise NotFound(f"there is no cluster {name}; there are: {known}")
        if cluster.change:
            raise Conflict(
                f"cluster {name} is being {cluster.change}, which takes a minute at most; "
                "det cluster list shows when that is done"
            )
        status = cluster.status()
        answer = RemovedCluster(num_agents=status.num_agents, trial_ids=cluster.trial_ids)
        found = read_pools()
        if found is not None:
            self._store([each for each in found.clusters if each.name != name])
        cluster.change = "removed"
        try:
            await self._end(cluster, status, answer)
        finally:
            cluster.change = ""
        return answer

    async def _end(self, cluster: Cluster, status: ClusterStatus, answer: RemovedCluster) -> None:
        """End a cluster's agents and forget it; add problems to the answer."""
        name = cluster.config.name
        if status.state == "connected":
            await cluster.end()
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await asyncio.shield(self._tasks[name])
        else:
            answer.problem = status.problems[0] if status.problems else "it is not connected"
        nodes, agents = self._service.nodes, self._service.machine.state.agents
        mine = [
            id for id, node in nodes.of_agents.items() if node.cluster == name and id in agents
        ]
        # An agent that ends in order registers without slots, and nothing runs there any more. The
        # others may only be cut off: they count as lost when their ranks' leases have ended
        # (agent_supervisor.py).
        left = [agent_id for agent_id in mine if not agents[agent_id].slots]
        cut_off = [id for id in mine if id not in left and not nodes.left(id)]
        if cut_off and not answer.problem:
            answer.problem = f"{' and '.join(cut_off)} did not answer"
        await self._drop(cluster)
        for agent_id in left:
            self._service.take(AgentLost(agent_id=agent_id, loss=Loss.LEAVING))

    def statuses(self) -> list[ClusterStatus]:
        """Return the status of each cluster."""
        return [cluster.status() for cluster in self._clusters.values()]

    async def close(self, *, end_hosts: bool) -> None:
        """End the bridges.

        Args:
            end_hosts: Also end the agents; else they continue, for the next master.
        """
        tasks = list(self._tasks.values())
        if end_hosts:
            for cluster in self._clusters.values():
                await cluster.end()
            if tasks:
                await asyncio.wait(tasks, timeout=_END_S)
        for cluster in list(self._clusters.values()):
            await self._stop(cluster)


async def _first(cluster: Cluster) -> None:
    """Wait until a new cluster is connected.

    Raises:
        Conflict: The connection fails.
    """
    waits = [
        asyncio.create_task(cluster.connected.wait()),
        asyncio.create_task(cluster.failed.wait()),
    ]
    try:
        await asyncio.wait(waits, timeout=_FIRST_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if not cluster.connected.is_set():
        raise Conflict(
            cluster.problem
            or f"{cluster.config.address}: Ray has not been loaded and connected within "
            f"{_FIRST_S:g} s; see {bridge_log(cluster.config.name)}, and try again"
        )


def _parse(request: AddCluster) -> ClusterConfig:
    try:
        return parse_pools({"clusters": [request.config]}).clusters[0]
    except ConfigError as error:
        prefix = "clusters[0]."
        raise ConfigError(
            [Problem(p.path.removeprefix(prefix), p.text) for p in error.problems]
        ) from None


def _check_pool_name(name: str) -> None:
    """Check the name of a pool, which may not exist yet.

    Raises:
        ConfigError: The name is not valid.
    """
    try:
        parse_pools({"pools": [{"pool_name": name}]})
    except ConfigError as error:
        raise ConfigError([Problem("pool", p.text) for p in error.problems]) from None


def _with_pattern(pools: list[dict[str, Any]], pattern: str, name: str) -> list[dict[str, Any]]:
    """Return the pools with this pattern moved to pool `name`, which is added if it is missing."""
    changed = [
        pool | {"agents": [each for each in pool.get("agents", []) if each != pattern]}
        for pool in pools
    ]
    if all(pool["pool_name"] != name for pool in changed):
        changed.append({"pool_name": name, "agents": []})
    for pool in changed:
        if pool["pool_name"] == name:
            pool["agents"].append(pattern)
    return [pool.model_dump(mode="json") for pool in parse_pools({"pools": changed}).pools]
