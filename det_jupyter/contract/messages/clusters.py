"""Clusters whose nodes become agents: views, and messages between the master and its bridges.

A bridge is a program of engine/ that is connected to one cluster. It reads orders from its stdin
and writes reports to its stdout, as JSON lines; its settings are on its command line. It makes no
decision: the master decides which nodes get agents (engine/hosting.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from det_jupyter.contract.messages.gangs import AgentCredentials
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Count, PrintableText


class StartHost(Wire):
    """Start an agent on a node."""

    kind: Literal["start_host"] = "start_host"
    node_id: str
    credentials: AgentCredentials


class EndHost(Wire):
    """End the agent on a node gracefully, and release its resources in the cluster."""

    kind: Literal["end_host"] = "end_host"
    node_id: str


class AskForNodes(Wire):
    """Request this number of additional nodes, of at least this size; 0 withdraws the request."""

    kind: Literal["ask_for_nodes"] = "ask_for_nodes"
    num: Count
    cpus: float = 0
    gpus: float = 0


class EndBridge(Wire):
    """End all agents gracefully, then exit."""

    kind: Literal["end_bridge"] = "end_bridge"


BridgeOrder = Annotated[StartHost | EndHost | AskForNodes | EndBridge, Field(discriminator="kind")]


class ClusterNode(Wire):
    """A node of a cluster, and its host: the process that the cluster runs for our agent there."""

    node_id: str
    hostname: PrintableText
    cpus: float = 0
    gpus: float = 0
    is_alive: bool = True
    # Of a dead node: whether it has exited, so that its processes have ended. Otherwise it may
    # only be unreachable.
    has_exited: bool = False
    host: Literal["none", "starting", "running", "ended"] = "none"
    agent: str = ""  # the agent's name, if the host has one
    output: PrintableText = ""  # the end of what the agent has printed, if it has ended


class BridgeReport(Wire):
    """The present state of all nodes of a cluster; sent every second, and after each change."""

    nodes: list[ClusterNode] = []
    num_asked: Count = 0  # nodes that are requested from the cluster
    is_connected: bool = False
    problem: PrintableText = ""  # why the bridge cannot connect, and what to do; then it exits


class AddCluster(Wire):
    """A request to make the nodes of a cluster agents."""

    config: dict[str, Any]  # as in pools.yaml
    pool: str = ""  # the pool that gets them; "": by the patterns of the pools


class ClusterStatus(Wire):
    """A cluster."""

    name: str
    engine: str
    address: str
    slots: str  # "gpu", or a number of CPU places per node
    pool: str
    state: Literal["connecting", "connected", "not connected"]
    num_nodes: int = 0  # live nodes
    num_agents: int = 0  # connected ones
    num_slots: int = 0  # of these agents
    num_asked: int = 0  # nodes that are requested from the cluster
    problems: list[str] = []  # sentences, the most important first


class RemovedCluster(Wire):
    """The consequences of the removal of a cluster."""

    num_agents: int
    trial_ids: list[int]  # the trials that run on them
    problem: str = ""  # why the agents cannot be ended gracefully
