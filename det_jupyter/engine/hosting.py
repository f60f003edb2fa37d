"""Decides which nodes of a cluster get agents, and how many more nodes are requested. Pure.

node                              host       then
offers too little                 none       it gets none, and `why_unsuitable` returns why
new                               none       an agent is started
its agent has failed              ended      the host is ended; another starts after a pause
idle for idle_s                   running    the host is ended: the node is given back
given back, and trials wait       none       an agent is started
does not exist, and trials wait   -          a node is requested from the cluster
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from det_jupyter.contract.messages import AskForNodes, ClusterNode, EndHost
from det_jupyter.contract.values.text import count

_PAUSES_S = (1.0, 300.0)  # first and longest pause after an agent that has failed
_CONNECT_S = 60.0  # how long an agent may take to connect
_MOST_ASKED = 8  # nodes that are requested at a time


@dataclass(slots=True)
class _Known:
    """The state of a node between two decisions."""

    pause_s: float = _PAUSES_S[0]
    not_before: float = 0.0  # when another agent may be started
    unlinked_since: float | None = None
    idle_since: float | None = None
    is_released: bool = False  # given back, because it was idle
    is_ending: bool = False  # its host has been ordered to end


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The trials that wait in the cluster's pool."""

    slots: int = 0  # slots of all these trials together
    largest: int = 0  # slots of the largest trial that has to be on one agent


@dataclass(slots=True, kw_only=True)
class Hosting:
    """Decides for one cluster, and keeps the state of each node.

    Args:
        slots: What a node offers: "gpu" for its GPUs, or a number of CPU places.
        idle_s: After this time without a trial a node is given back; None: never.
    """

    slots: Literal["gpu"] | int
    idle_s: float | None = None
    _known: dict[str, _Known] = field(default_factory=dict)
    _size: int = 0  # slots of the largest node that there was last
    _asked: AskForNodes = field(default_factory=lambda: AskForNodes(num=0))

    def slots_of(self, node: ClusterNode) -> int:
        """Return how many slots a node offers."""
        if self.slots == "gpu":
            return int(node.gpus)
        return self.slots if node.cpus >= self.slots else 0

    def why_unsuitable(self, node: ClusterNode) -> str:
        """Return why a node gets no agent; "" if it gets one."""
        if self.slots_of(node) > 0:
            return ""
        if self.slots == "gpu":
            return f"node {node.hostname} has no GPU"
        cpus = count(int(node.cpus), "CPU")
        return f"node {node.hostname} has {cpus}, and an agent needs {self.slots}"

    def decide(
        self,
        nodes: Collection[ClusterNode],
        *,
        connected: Collection[str],
        busy: Collection[str],
        demand: Demand,
        now: float,
    ) -> tuple[list[str], list[EndHost | AskForNodes]]:
        """Return the ids of nodes whose agents are started, and the other orders.

        Args:
            nodes: All nodes of the cluster.
            connected: The agents that are connected to the master.
            busy: The connected agents that run trials.
            demand: The waiting trials.
            now: Monotonic time.
        """
        live = [node for node in nodes if node.is_alive and self.slots_of(node) > 0]
        self._known = {node.node_id: self._known.get(node.node_id, _Known()) for node in live}
        starts: list[str] = []
        orders: list[EndHost | AskForNodes] = []
        missing = demand.slots
        for node in sorted(live, key=lambda node: node.node_id):
            known = self._known[node.node_id]
            if node.host == "none":
                is_wanted = not known.is_released or missing > 0
                if is_wanted and now >= known.not_before:
                    starts.append(node.node_id)
                    known.is_released = False
                    known.unlinked_since = known.idle_since = None
                    known.is_ending = False
                if is_wanted:
                    missing -= self.slots_of(node)
            elif node.host == "starting":
                missing -= self.slots_of(node)
            elif not known.is_ending and self._must_end(node, known, connected, busy, demand, now):
                known.is_ending = True
                orders.append(EndHost(node_id=node.node_id))
        asked = self._nodes_to_ask_for(live, missing, demand)
        if asked != self._asked:
            self._asked = asked
            orders.append(asked)
        return starts, orders

    def forget_requests(self) -> None:
        """Forget which nodes were requested: the cluster's bridge was restarted."""
        self._asked = AskForNodes(num=0)

    def _must_end(
        self,
        node: ClusterNode,
        known: _Known,
        connected: Collection[str],
        busy: Collection[str],
        demand: Demand,
        now: float,
    ) -> bool:
        if node.agent in connected:
            known.unlinked_since = None
            known.pause_s = _PAUSES_S[0]
        elif known.unlinked_since is None:
            known.unlinked_since = now
        has_failed = node.host == "ended" or (
            known.unlinked_since is not None and now - known.unlinked_since > _CONNECT_S
        )
        if has_failed:
            known.not_before = now + known.pause_s
            known.pause_s = min(2 * known.pause_s, _PAUSES_S[1])
            return True
        if node.agent in busy or demand.slots > 0 or known.idle_since is None:
            known.idle_since = now
        if self.idle_s is None or now - known.idle_since <= self.idle_s:
            return False
        known.is_released = True
        return True

    def _nodes_to_ask_for(
        self, live: Collection[ClusterNode], missing: int, demand: Demand
    ) -> AskForNodes:
        """Return the request for the missing nodes, of the size of the largest present one.

        A request is as large as a whole node, so that no node with an agent can fulfil it. Before
        the first node exists, it is as small as possible: the cluster could not fulfil one that is
        larger than its nodes.
        """
        if (most := max((self.slots_of(node) for node in live), default=0)) > 0:
            self._size = most
        largest = self._size or (demand.largest if self.slots == "gpu" else self.slots)
        if not self._size and self.slots == "gpu":
            missing = min(missing, max(1, largest))  # the first node shows the size
        largest = max(1, largest)
        num = min(math.ceil(max(0, missing) / largest), _MOST_ASKED)
        if self.slots == "gpu":
            return AskForNodes(num=num, gpus=float(largest if num else 0))
        cpus = max((node.cpus for node in live), default=float(self.slots))
        return AskForNodes(num=num, cpus=cpus if num else 0.0)


def departed(
    before: Mapping[str, ClusterNode], after: Mapping[str, ClusterNode]
) -> list[ClusterNode]:
    """Return the nodes that were alive before and are listed as dead, or not at all, now."""
    gone = [id for id, node in before.items() if node.is_alive]
    return [
        after.get(id, before[id].model_copy(update={"is_alive": False}))
        for id in gone
        if id not in after or not after[id].is_alive
    ]
