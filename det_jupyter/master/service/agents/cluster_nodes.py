"""Data about clusters: which agent is on which node, and sentences about both.

`background/one_cluster.py` writes them; registration, supervision and reasons read them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.service.agents.agent_access import AgentAccess

_EXITING_S = 5.0  # how long processes of a node may outlive it


@dataclass(slots=True, kw_only=True)
class AgentNode:
    """The node of an agent.

    Attributes:
        cluster: The cluster's name.
        node_id: The node, as the cluster identifies it.
        left: A sentence on when and how it has left the cluster; "": it has not left.
        exited_at: When its raylet (or similar process) ended in order, monotonic; None: it has
            not, or the node may only be unreachable.
    """

    cluster: str
    node_id: str
    left: str = ""
    exited_at: float | None = None


@dataclass(slots=True)
class ClusterNodes:
    """The nodes of all clusters."""

    of_agents: dict[str, AgentNode] = field(default_factory=dict)
    # By cluster: why it provides no more slots.
    notes: dict[str, str] = field(default_factory=dict)

    def left(self, agent_id: str) -> str:
        """Return when and how an agent's node has left its cluster; "" if it has not."""
        node = self.of_agents.get(agent_id)
        return node.left if node is not None else ""

    def place_of(self, agent_id: str, state: MachineState, access: AgentAccess) -> tuple[str, str]:
        """Return an agent's cluster and node; "" if there is none, or if the node is not known.

        When the master starts, agents register before their cluster is connected.
        """
        if (known := self.of_agents.get(agent_id)) is not None:
            return known.cluster, known.node_id
        before = state.agents.get(agent_id) or state.lost_agents.get(agent_id)
        if before is not None and before.cluster:
            return before.cluster, before.node
        return access.cluster_of(agent_id), ""

    def note_on(self, agent_id: str) -> str:
        """Return the problem of an agent's cluster; "" if there is none, or no cluster."""
        node = self.of_agents.get(agent_id)
        return self.notes.get(node.cluster, "") if node is not None else ""

    def has_exited(self, agent_id: str) -> bool:
        """Return whether an agent's node has exited for so long that nothing runs there."""
        node = self.of_agents.get(agent_id)
        at = node.exited_at if node is not None else None
        return at is not None and time.monotonic() - at > _EXITING_S
