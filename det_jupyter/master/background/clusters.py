"""Makes the nodes of clusters agents, by a bridge for each cluster.

    pools.yaml, requests ──► Clusters ──► _Cluster ──orders──► bridge ──► cluster's nodes
                                             ▲                   │           │ start agents,
                                             └──────reports──────┘           ▼ which dial us

A bridge that has ended is started again, with growing pauses; what runs on the nodes goes on. What
is decided is in engine/hosting.py. A node gets a name and a token when its agent starts.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from det_jupyter.config.pools import parse_pools
from det_jupyter.contract.messages import (
    AddCluster,
    AgentCredentials,
    BridgeReport,
    ClusterNode,
    ClusterStatus,
    EndBridge,
    RemovedCluster,
    SetPools,
    StartHost,
)
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.contract.values.text import count, short_time
from det_jupyter.engine import BRIDGES
from det_jupyter.engine.hosting import Demand, Hosting, departed
from det_jupyter.errors import ConfigError, Conflict, DetError, NotFound, Problem
from det_jupyter.master.background.bridge import Bridge, bridge_log, last_line
from det_jupyter.master.machine.model.events import AgentLost, AgentRemoved
from det_jupyter.master.service.agent_access import AgentAccess, outward_address
from det_jupyter.master.service.cluster_nodes import AgentNode
from det_jupyter.master.service.pools_file import read_pools, write_clusters
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

_SILENT_S = 10.0  # a bridge reports every second
_HUNG_S = 90.0  # a bridge that is silent for longer is killed
_FIRST_S = 25.0  # how long a bridge may take to connect, until `add` gives up
_PAUSES_S = (1.0, 30.0)  # first and longest pause between two starts of a bridge
_END_S = 25.0  # how long the agents of a removed cluster may take to end
_SLOW_S = 20.0  # a host that starts for longer waits for something
_RECENT_S = 600.0  # how long agents of nodes that have left are listed


class _Cluster:
    """One cluster, with its bridge."""

    def __init__(self, config: ClusterConfig, service: Service, access: AgentAccess) -> None:
        self.config = config
        self.problem = ""  # why the bridge is not connected
        self.connected = asyncio.Event()
        self.failed = asyncio.Event()  # set when a bridge has ended
        self.port: int | None = None  # of the listener for agents
        self.change: Literal["", "added", "removed"] = ""  # what is being done with it
        self._service = service
        self._access = access
        self._bridge: Bridge | None = None
        self._nodes: dict[str, ClusterNode] = {}
        self._num_asked = 0
        self._starting_since: dict[str, float] = {}  # by node
        self._failures: dict[str, str] = {}  # by node: what its agent printed before it failed
        self._reported_at = time.monotonic()
        self._silent_since = time.time()
        self._is_ending = False
        idle_s = None if config.idle_minutes is None else 60 * config.idle_minutes
        self._hosting = Hosting(slots=config.slots, idle_s=idle_s)

    async def run(self, master: str) -> None:
        """Keep a bridge running, until cancelled or until it has ended as ordered."""
        pause_s = _PAUSES_S[0]
        while not self._is_ending:
            try:
                self._bridge = await Bridge.start(self.config, BRIDGES[self.config.engine], master)
                self._hosting.forget_requests()
                await self._follow(self._bridge)
            except DetError as error:
                self.problem = str(error)
            except Exception:  # a full disk, for example; it is tried again
                logger.exception("cluster %s: its bridge failed", self.config.name)
            finally:
                await self._end_bridge()
            pause_s = _PAUSES_S[0] if self.connected.is_set() else min(2 * pause_s, _PAUSES_S[1])
            self.connected.clear()
            self._note()
            self.failed.set()
            if not self._is_ending:
                logger.warning("cluster %s: %s", self.config.name, self.problem)
                await asyncio.sleep(pause_s)

    async def _end_bridge(self) -> None:
        if self._bridge is not None:
            bridge, self._bridge = self._bridge, None
            status = await bridge.end()
            if not self.problem and not self.connected.is_set():
                self.problem = (
                    f"its bridge ({self.config.bridge_python or sys.executable}) ended with exit "
                    f"status {status}: {last_line(self.config.name)}"
                )
            self.problem = self.problem or (
                f"the connection to the cluster broke at {short_time(time.time(), time.time())} "
                f"(exit status {status} of its bridge; see {bridge_log(self.config.name)}); "
                "it is tried again"
            )

    async def _follow(self, bridge: Bridge) -> None:
        try:
            async for report in bridge.reports(_HUNG_S):
                self._reported_at, self._silent_since = time.monotonic(), time.time()
                if report.is_connected:
                    self.problem = ""
                    self._take(report, bridge)
                    self.connected.set()
                else:
                    self.problem = report.problem
        except TimeoutError:
            self.problem = self._silence()

    def _silence(self) -> str:
        since = short_time(self._silent_since, time.time())
        return f"the cluster has not answered since {since}"

    def _take(self, report: BridgeReport, bridge: Bridge) -> None:
        """Compare the nodes with the agents, and send the orders that follow."""
        after = {node.node_id: node for node in report.nodes}
        for node in departed(self._nodes, after):
            self._depart(node)
        self._nodes, self._num_asked = after, report.num_asked
        self._remember(after)
        self._forget(after)
        if self._is_ending:
            return
        connected = self._service.links.connected()
        indexes = self._service.machine.indexes
        starts, orders = self._hosting.decide(
            report.nodes,
            connected=connected,
            busy=[agent for agent in connected if indexes.trials_on_agent(agent)],
            demand=self._demand(),
            now=time.monotonic(),
        )
        for node_id in starts:
            logger.info("cluster %s: an agent on node %s is started", self.config.name, node_id)
            bridge.send(StartHost(node_id=node_id, credentials=self._credentials(after[node_id])))
        for order in orders:
            logger.info("cluster %s: %s", self.config.name, order)
            bridge.send(order)
        self._note()

    def _remember(self, nodes: Mapping[str, ClusterNode]) -> None:
        """Store which agents the nodes have, and how their hosts fare."""
        known = self._service.nodes.of_agents
        now = time.monotonic()
        for node_id, node in nodes.items():
            if not node.is_alive:
                continue
            if node.host == "starting":
                self._starting_since.setdefault(node_id, now)
            else:
                self._starting_since.pop(node_id, None)
            if node.host == "ended" and node.output:
                self._failures[node_id] = node.output.strip().rpartition("\n")[2]
            elif node.agent and self._service.links.is_connected(node.agent):
                self._failures.pop(node_id, None)
            name = node.agent or self.config.agent_name(node.hostname, node_id)
            known.setdefault(name, AgentNode(cluster=self.config.name, node_id=node_id))

    def _depart(self, node: ClusterNode) -> None:
        """Store that a node has left; its agent's runs are given up, at once if it has exited."""
        at = time.time()
        left = f"node {node.hostname} left cluster {self.config.name} at {short_time(at, at)}"
        logger.warning("%s (%s)", left, node.node_id)
        self._failures.pop(node.node_id, None)
        self._starting_since.pop(node.node_id, None)
        for known in self._service.nodes.of_agents.values():
            if known.node_id == node.node_id:
                known.left = left
                known.exited_at = time.monotonic() if node.has_exited else None

    def _forget(self, nodes: Mapping[str, ClusterNode]) -> None:
        """Forget agents of nodes that left some time ago, and make their tokens void."""
        state = self._service.machine.state
        live = {id for id, node in nodes.items() if node.is_alive}
        for agent_id, agent in list(state.lost_agents.items()):
            is_mine = agent.cluster == self.config.name and agent.node not in live
            if is_mine and time.time() - (agent.left_at or 0.0) > _RECENT_S:
                self._service.take(AgentRemoved(agent_id=agent_id))
                self._service.nodes.of_agents.pop(agent_id, None)
                if agent_id in self._access.agents:
                    self._access.remove(agent_id)

    def _credentials(self, node: ClusterNode) -> AgentCredentials:
        assert self.port is not None
        name = self.config.agent_name(node.hostname, node.node_id)
        address = self.config.master_address or outward_address(*self.config.host_and_port)
        token = self._access.add(name, cluster=self.config.name)
        return self._access.credentials(name, token, address)

    def _demand(self) -> Demand:
        snapshot = self._service.machine.queue.snapshot(self.pool)
        sizes = [max(1, request.slots) for request in snapshot.waiting.values()]
        return Demand(slots=sum(sizes), largest=max(sizes, default=0))

    @property
    def pool(self) -> str:
        """The pool of its agents."""
        return self._service.machine.state.pool_of_agent(f"{self.config.name}-")

    def _note(self) -> None:
        """Store why the cluster gives no more slots, for the reasons of waiting trials."""
        parts = []
        if problem := self._connection_problem():
            parts.append(f"cluster {self.config.name}: {problem}")
        if self._num_asked:
            parts.append(
                f"cluster {self.config.name} has been asked for {count(self._num_asked, 'node')} "
                "more"
            )
        self._service.nodes.notes[self.config.name] = "; ".join(parts)

    def check_silence(self) -> None:
        """Store that the bridge is silent, if it is; called often."""
        if time.monotonic() - self._reported_at > _SILENT_S:
            self._note()

    def _connection_problem(self) -> str:
        if self.connected.is_set() and time.monotonic() - self._reported_at > _SILENT_S:
            return self._silence()
        return "" if self.connected.is_set() else self.problem

    def status(self) -> ClusterStatus:
        """Return how it is."""
        problem = self._connection_problem()
        live = [node for node in self._nodes.values() if node.is_alive]
        state = self._service.machine.state
        agents = [
            agent
            for id, known in self._service.nodes.of_agents.items()
            if known.cluster == self.config.name and self._service.links.is_connected(id)
            if (agent := state.agents.get(id)) is not None
        ]
        return ClusterStatus(
            name=self.config.name,
            engine=self.config.engine,
            address=self.config.address,
            slots=str(self.config.slots),
            pool=self.pool,
            state=(
                "not connected"
                if problem
                else "connected"
                if self.connected.is_set()
                else "connecting"
            ),
            num_nodes=len(live) if self.connected.is_set() and not problem else 0,
            num_agents=len(agents),
            num_slots=sum(len(agent.slots) for agent in agents),
            num_asked=self._num_asked,
            problems=[*([problem] if problem else []), *self._node_problems(live)],
        )

    def _node_problems(self, live: list[ClusterNode]) -> list[str]:
        """Return why nodes have no agents."""
        now, problems = time.monotonic(), []
        for node in live:
            if text := self._failures.get(node.node_id):
                problems.append(f"node {node.hostname}: its agent ended: {text}")
            elif now - self._starting_since.get(node.node_id, now) > _SLOW_S:
                what = "GPUs" if self.config.slots == "gpu" else f"{self.config.slots} CPUs"
                problems.append(
                    f"node {node.hostname}: its agent waits for {what} that other programs of "
                    "the cluster hold"
                )
            elif text := self._hosting.why_unsuitable(node):
                problems.append(text)
        return problems

    async def end(self) -> None:
        """End its agents in order, and its bridge; make their tokens void."""
        self._is_ending = True
        if self._bridge is not None:
            self._bridge.send(EndBridge())

    def close_agents(self) -> None:
        """Make the tokens of its agents void, and give up what runs there."""
        known = self._service.nodes.of_agents
        names = {
            *self._access.agents_of(self.config.name),
            *(id for id, node in known.items() if node.cluster == self.config.name),
        }
        for agent_id in names:
            if agent_id in self._access.agents:
                self._access.remove(agent_id)
            self._service.links.drop(agent_id)
            self._service.take(AgentRemoved(agent_id=agent_id))
            known.pop(agent_id, None)
        self._service.nodes.notes.pop(self.config.name, None)

    @property
    def trial_ids(self) -> list[int]:
        """The trials that run on its agents."""
        indexes = self._service.machine.indexes
        known = self._service.nodes.of_agents
        mine = [id for id, node in known.items() if node.cluster == self.config.name]
        return sorted({trial.id for id in mine for trial in indexes.trials_on_agent(id)})


class Clusters:
    """All clusters of a master.

    Args:
        service: The master's service.
        access: Stores the tokens of agents.
        open_listener: Opens the port that agents of other computers connect to, for the cluster
            of this name; returns it.
        close_listener: Closes it, if neither another cluster nor an agent needs it.
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
        self._clusters: dict[str, _Cluster] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Start the bridges of the clusters in pools.yaml; watch over all, until cancelled."""
        with suppress(DetError):  # `status` shows the problems of the file
            for config in found.clusters if (found := read_pools()) else ():
                self._start(config)
        while True:
            await asyncio.sleep(1.0)
            for cluster in self._clusters.values():
                cluster.check_silence()

    def _start(self, config: ClusterConfig) -> _Cluster:
        cluster = _Cluster(config, self._service, self._access)
        self._clusters[config.name] = cluster
        self._tasks[config.name] = asyncio.create_task(self._keep(cluster))
        return cluster

    async def _keep(self, cluster: _Cluster) -> None:
        while True:
            try:
                master = self._access.master_id
                cluster.port = await self._open_listener(cluster.config.name)
                break
            except DetError as error:  # the port is taken, or cryptography is missing
                cluster.problem = str(error)
                cluster.failed.set()
                await asyncio.sleep(2.0)
        await cluster.run(master)

    async def add(self, request: AddCluster) -> ClusterStatus:
        """Connect to a cluster, and store it.

        Raises:
            ConfigError: Its settings are not valid.
            Conflict: There is one of this name, or it cannot be connected to; the message says why
                and what to do.
        """
        config = _parse(request)
        read_pools()  # a problem of the file is reported before anything is done
        if (known := self._clusters.get(config.name)) is not None:
            raise Conflict(
                f"there is a cluster {config.name} already, at {known.config.address}; give this "
                "one another name (--name), or remove that one first"
            )
        cluster = self._start(config)
        cluster.change = "added"
        try:
            await _first(cluster)
            if request.pool:
                pools = _with_pattern(self._pools(), config.agent_pattern, request.pool)
                self._service.apply(SetPools(pools=pools))
            stored = read_pools()
            self._store([*stored.clusters, config] if stored else [config])
        except BaseException:
            await self._drop(cluster)
            raise
        finally:
            cluster.change = ""
        return cluster.status()

    def _pools(self) -> list[dict[str, Any]]:
        return self._service.machine.state.pools

    def _store(self, clusters: list[ClusterConfig]) -> None:
        write_clusters(self._pools(), clusters, read_pools())

    async def _stop(self, cluster: _Cluster) -> None:
        task = self._tasks[cluster.config.name]
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _drop(self, cluster: _Cluster) -> None:
        """End a cluster's bridge, make the tokens of its agents void, and forget it."""
        await self._stop(cluster)
        cluster.close_agents()
        del self._clusters[cluster.config.name], self._tasks[cluster.config.name]
        await self._close_listener(cluster.config.name)

    async def remove(self, name: str) -> RemovedCluster:
        """End a cluster's agents, and connect to it no more; return what that does.

        Raises:
            NotFound: There is no such cluster.
            Conflict: It is being added or removed.
        """
        cluster = self._clusters.get(name)
        if cluster is None:
            known = ", ".join(self._clusters) or "none"
            raise NotFound(f"there is no cluster {name}; there are: {known}")
        if cluster.change:
            raise Conflict(
                f"cluster {name} is being {cluster.change}, which takes half a minute at most; "
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

    async def _end(self, cluster: _Cluster, status: ClusterStatus, answer: RemovedCluster) -> None:
        """End a cluster's agents and forget it; add to the answer why that is not in order."""
        name = cluster.config.name
        if status.state == "connected":
            await cluster.end()
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await asyncio.shield(self._tasks[name])
        else:
            answer.problem = status.problems[0] if status.problems else "it is not connected"
        agents = [id for id, node in self._service.nodes.of_agents.items() if node.cluster == name]
        await self._drop(cluster)
        if status.state == "connected":  # nothing runs there any more
            for agent_id in agents:
                self._service.take(AgentLost(agent_id=agent_id))

    def statuses(self) -> list[ClusterStatus]:
        """Return all clusters."""
        return [cluster.status() for cluster in self._clusters.values()]

    async def close(self, *, end_hosts: bool) -> None:
        """End the bridges.

        Args:
            end_hosts: Also end the agents; else they go on, for the next master.
        """
        tasks = list(self._tasks.values())
        if end_hosts:
            for cluster in self._clusters.values():
                await cluster.end()
            if tasks:
                await asyncio.wait(tasks, timeout=_END_S)
        for cluster in list(self._clusters.values()):
            await self._stop(cluster)


async def _first(cluster: _Cluster) -> None:
    """Wait until a new cluster is connected.

    Raises:
        Conflict: It is not.
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


def _with_pattern(pools: list[dict[str, Any]], pattern: str, name: str) -> list[dict[str, Any]]:
    """Return pools of which only `name`, which is added if it is absent, has this pattern."""
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
