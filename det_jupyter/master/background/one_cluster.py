"""One cluster: its bridge, its nodes and their agents. See clusters.py for all of them.

A bridge that has ended is started again, with growing pauses; processes on the nodes continue.
engine/hosting.py decides which nodes get agents. A node gets a name and a token when its agent
starts.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Mapping
from typing import Literal

from det_jupyter.contract.messages import (
    AgentCredentials,
    BridgeReport,
    ClusterNode,
    ClusterStatus,
    EndBridge,
    StartHost,
)
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.contract.values.text import count, short_time
from det_jupyter.engine import BRIDGES
from det_jupyter.engine.hosting import Demand, Hosting, departed
from det_jupyter.errors import DetError
from det_jupyter.master.background.bridge import Bridge, bridge_log, last_line
from det_jupyter.master.machine.model.events import AgentRemoved
from det_jupyter.master.service.agents.agent_access import AgentAccess, outward_address
from det_jupyter.master.service.agents.cluster_nodes import AgentNode
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

_SILENT_S = 10.0  # a bridge that is silent for longer counts as silent: it reports every second
_HUNG_S = 90.0  # a bridge that is silent for longer is killed
_PAUSES_S = (1.0, 30.0)  # first and longest pause between two starts of a bridge
_SLOW_S = 20.0  # a host that starts for longer waits for something, such as resources
_RECENT_S = 600.0  # how long agents of nodes that have left are listed


class Cluster:
    """One cluster, with its bridge."""

    def __init__(self, config: ClusterConfig, service: Service, access: AgentAccess) -> None:
        self.config = config
        self.problem = ""  # why the bridge is not connected
        self.connected = asyncio.Event()
        self.failed = asyncio.Event()  # set when a bridge has ended
        self.port: int | None = None  # port of the listener for agents
        self.change: Literal["", "added", "removed"] = ""  # a change that is under way
        self._service = service
        self._access = access
        self._bridge: Bridge | None = None
        self._nodes: dict[str, ClusterNode] = {}
        self._num_asked = 0
        self._starting_since: dict[str, float] = {}  # by node: since when its agent is starting
        self._failures: dict[str, str] = {}  # by node: the output of its agent before it failed
        self._reported_at = time.monotonic()
        self._silent_since = time.time()
        self._is_ending = False
        idle_s = None if config.idle_minutes is None else 60 * config.idle_minutes
        self._hosting = Hosting(slots=config.slots, idle_s=idle_s)

    async def run(self, master: str) -> None:
        """Keep a bridge running, until cancelled or until it has ended on request."""
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
        """Store which agents the nodes have, and the state of their hosts."""
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
        """Record that a node has left, and give up its agent's runs."""
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
        """Forget agents of nodes that left some time ago, and revoke their tokens."""
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
        waiting = snapshot.waiting.values()
        return Demand(
            slots=sum(max(1, request.slots) for request in waiting),
            largest=max((each.slots for each in waiting if each.is_single_agent), default=0),
        )

    @property
    def pool(self) -> str:
        """The pool of its agents."""
        return self._service.machine.state.pool_of_cluster(self.config.name)

    def _note(self) -> None:
        """Store why the cluster provides no more slots, for the reasons of waiting trials."""
        parts = []
        if problem := self._connection_problem():
            parts.append(f"cluster {self.config.name}: {problem}")
        if self._num_asked:
            parts.append(
                f"cluster {self.config.name} has been asked for {count(self._num_asked, 'node')} "
                "more"
            )
        self._service.nodes.notes[self.config.name] = "; ".join(parts)
        self._service.store_facts()

    def check_silence(self) -> None:
        """Record that the bridge is silent, if it is; called often."""
        if time.monotonic() - self._reported_at > _SILENT_S:
            self._note()

    def _connection_problem(self) -> str:
        if self.connected.is_set() and time.monotonic() - self._reported_at > _SILENT_S:
            return self._silence()
        return "" if self.connected.is_set() else self.problem

    def status(self) -> ClusterStatus:
        """Return the status of the cluster."""
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
        """Return sentences on nodes without agents."""
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
        """End the cluster's agents in order, and its bridge; revoke their tokens."""
        self._is_ending = True
        if self._bridge is not None:
            self._bridge.send(EndBridge())

    @property
    def trial_ids(self) -> list[int]:
        """The ids of trials that run on its agents."""
        indexes = self._service.machine.indexes
        known = self._service.nodes.of_agents
        mine = [id for id, node in known.items() if node.cluster == self.config.name]
        return sorted({trial.id for id in mine for trial in indexes.trials_on_agent(id)})


def close_agents(cluster: str, service: Service, access: AgentAccess) -> None:
    """Revoke the tokens of a cluster's agents, and give up the runs there."""
    known = service.nodes.of_agents
    names = {
        *access.agents_of(cluster),
        *(id for id, node in known.items() if node.cluster == cluster),
    }
    for agent_id in names:
        if agent_id in access.agents:
            access.remove(agent_id)
        service.links.drop(agent_id)
        service.take(AgentRemoved(agent_id=agent_id))
        known.pop(agent_id, None)
    service.nodes.notes.pop(cluster, None)
    service.store_facts()
