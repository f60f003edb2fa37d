"""Measures the connections of this agent: to the master, and to other agents.

The connection to another agent is measured through the tunnel, so that a firewall between the two
is noticed. Each agent is measured by one other at a time, so that two do not share its network.
"""

from __future__ import annotations

import asyncio
import os
import time

import httpx

from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.agent.tunnel import peers
from det_jupyter.agent.tunnel.dialing import Dialer, Unreached, connect_problem
from det_jupyter.contract.messages import (
    CheckConnections,
    ConnectionsChecked,
    Cut,
    PeerMeasured,
)
from det_jupyter.errors import LaunchError

_SIZE_BYTES = 4 * 2**20
_NUM_TRIES = 3
_CUT_S = 6.0  # how long another agent that does not answer is tried
_PEER_S = 12.0  # time limit for one other agent, which gets the command a moment later
_FOLDER_S = 5.0  # how long a folder may take to answer; one on a network may never


async def measure(
    http: httpx.AsyncClient,
    base: str,
    command: CheckConnections,
    agent: str,
) -> ConnectionsChecked:
    """Return what was measured. The caller accepts connections of the other agents meanwhile.

    Args:
        http: The connection to the master.
        base: The path of this agent's routes.
        command: The measurements to make.
        agent: This agent.

    Raises:
        httpx.HTTPError: The master does not answer.
    """
    latency_s = min([await _timed(http, "GET", f"{base}/clock") for _ in range(_NUM_TRIES)])
    size = _SIZE_BYTES if command.num_bytes else 1
    down_s = await _timed(http, "GET", f"{base}/probe?num_bytes={size}")
    up_s = await _timed(http, "POST", f"{base}/probe", content=bytes(size))
    measured, closed = await _measure_others(command, agent)
    return ConnectionsChecked(
        latency_s=latency_s,
        down_bytes_per_s=size / down_s,
        up_bytes_per_s=size / up_s,
        peers=measured,
        closed=closed,
        has_folder=not command.probe or await _finds(command.probe),
    )


async def _finds(probe: str) -> bool:
    try:
        async with asyncio.timeout(_FOLDER_S):
            return await asyncio.to_thread(os.path.exists, probe)
    except TimeoutError:
        return False


async def _timed(
    http: httpx.AsyncClient, method: str, path: str, content: bytes | None = None
) -> float:
    began = time.perf_counter()
    answer = await http.request(method, path, content=content)
    answer.raise_for_status()
    return time.perf_counter() - began


async def _measure_others(
    command: CheckConnections, agent: str
) -> tuple[dict[str, PeerMeasured], list[Cut]]:
    link = command.link
    dialer = Dialer(gang=command.check_id, link=link, here=[agent], cut_s=_CUT_S)
    measured: dict[str, PeerMeasured] = {}
    closed: list[Cut] = []
    own = link.agents.index(agent)
    for group in sorted(dialer.others, key=lambda group: (group - own) % len(link.agents)):
        try:
            async with asyncio.timeout(_PEER_S):
                found = await peers.measure(dialer, group, command.num_bytes)
            measured[link.agents[group]] = found
        except Unreached as error:
            closed.append(error.cut)
        except (OSError, TimeoutError) as error:
            why = f"{connect_problem(error)} at {dialer.where(group)}"
            closed.append(dialer.cut_from(group, why))
        except (LaunchError, StartFailed) as error:
            closed.append(dialer.cut_from(group, str(error)))
    return measured, closed
