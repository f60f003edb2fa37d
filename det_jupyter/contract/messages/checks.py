"""Checks of the connections between the master and agents on other computers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from det_jupyter.contract.messages.gang_links import Cut, GangLink
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Count

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PeerMeasured(Wire):
    """The connection from one agent to another, through the tunnel between them."""

    latency_s: Seconds  # from sending a byte to its answer; the shortest of several times
    bytes_per_s: Seconds | None = None  # None: not measured


class CheckConnections(Wire):
    """Measure the connections to the master and to other agents, and answer by a request.

    All agents of the link get the command, and answer each other.
    """

    kind: Literal["check_connections"] = "check_connections"
    check_id: str
    link: GangLink
    num_bytes: Count = 0  # to send to each at most; 0: only find out whether all are reached
    probe: str = ""  # path of a file that the master has just made


class ConnectionsChecked(Wire):
    """The measurements of an agent."""

    latency_s: Seconds  # from the request to the master's answer; the shortest of several times
    down_bytes_per_s: Seconds  # from the master
    up_bytes_per_s: Seconds
    peers: dict[str, PeerMeasured] = {}  # other agents, those that were reached
    closed: list[Cut] = []  # those that were not
    has_folder: bool = True  # whether the probe was found; True without one


class CheckAgents(Wire):
    """A request to check all agents on other computers."""

    folder: str = ""  # also check that they have this folder in common


class AgentCheck(Wire):
    """An agent, as it was checked."""

    agent: str
    hostname: str
    clock_ahead_s: float = 0.0
    measured: ConnectionsChecked | None = None  # None: it has not answered


class ClusterCheck(Wire):
    """The connections of all agents on other computers."""

    agents: list[AgentCheck]
    problems: list[str]  # sentences, the most important first
