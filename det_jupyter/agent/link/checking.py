"""Measures the connections of this agent: to the master, and to other agents.

Of another agent, the time to connect by TCP is measured. It shows a port that a firewall closes.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import httpx

from det_jupyter.contract.messages import CheckConnections, ConnectionsChecked, Peer

_SIZE_BYTES = 4 * 2**20
_NUM_TRIES = 3
_CONNECT_S = 3.0
_FOLDER_S = 5.0  # how long a folder may take to answer; one on a network may never


async def measure(
    http: httpx.AsyncClient, base: str, command: CheckConnections
) -> ConnectionsChecked:
    """Return what was measured.

    Args:
        http: The connection to the master.
        base: The path of this agent's routes.
        command: What to measure.

    Raises:
        httpx.HTTPError: The master does not answer.
    """
    latency_s = min([await _timed(http, "GET", f"{base}/clock") for _ in range(_NUM_TRIES)])
    path = f"{base}/probe?num_bytes={_SIZE_BYTES}"
    down_s = await _timed(http, "GET", path)
    up_s = await _timed(http, "POST", f"{base}/probe", content=bytes(_SIZE_BYTES))
    outcomes = await asyncio.gather(*(_connect(peer) for peer in command.peers))
    named = {peer.agent: found for peer, found in zip(command.peers, outcomes, strict=True)}
    return ConnectionsChecked(
        latency_s=latency_s,
        down_bytes_per_s=_SIZE_BYTES / down_s,
        up_bytes_per_s=_SIZE_BYTES / up_s,
        peers={agent: found for agent, found in named.items() if isinstance(found, float)},
        closed={agent: found for agent, found in named.items() if isinstance(found, str)},
        has_folder=not command.probe or await _finds(Path(command.probe)),
    )


async def _finds(probe: Path) -> bool:
    try:
        async with asyncio.timeout(_FOLDER_S):
            return await asyncio.to_thread(_take, probe)
    except TimeoutError:
        return False


async def _timed(
    http: httpx.AsyncClient, method: str, path: str, content: bytes | None = None
) -> float:
    began = time.perf_counter()
    answer = await http.request(method, path, content=content)
    answer.raise_for_status()
    return time.perf_counter() - began


async def _connect(peer: Peer) -> float | str:
    """Return the least time to connect to an agent, or why it cannot be reached."""
    times = []
    for _ in range(_NUM_TRIES):
        began = time.perf_counter()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(peer.address, peer.port)
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return error.strerror or str(error)
        times.append(time.perf_counter() - began)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return min(times)


def _take(probe: Path) -> bool:
    """Remove the master's file; return whether it was there."""
    try:
        probe.unlink()
    except OSError:
        return False
    return True
