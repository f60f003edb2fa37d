"""A bridge to a cluster in the process of the test, and the nodes of that cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from det_jupyter.contract.messages import BridgeReport, ClusterNode, Wire

A, B = "a" * 12, "b" * 12


class Bridge:
    """A bridge that passes on what the test puts into it: a report, or how it ends."""

    def __init__(self) -> None:
        self.sent: list[Wire] = []
        self.coming: asyncio.Queue[BridgeReport | int | TimeoutError] = asyncio.Queue()
        self.status = 0

    async def put(self, what: BridgeReport | int | TimeoutError) -> None:
        """Let it report, be silent for long, or end with a status; return when that is taken."""
        self.coming.put_nowait(what)
        for _ in range(10):
            await asyncio.sleep(0)

    def send(self, order: Wire) -> None:
        """Keep an order."""
        self.sent.append(order)

    async def reports(self, timeout_s: float) -> AsyncIterator[BridgeReport]:
        """Yield what was put into it, until it ends."""
        while not isinstance(each := await self.coming.get(), int):
            if isinstance(each, TimeoutError):
                raise each
            yield each
        self.status = each

    async def end(self) -> int:
        """Return how it has ended."""
        return self.status


def node(id: str, **others: Any) -> ClusterNode:
    """Return a live node with four CPUs."""
    return ClusterNode(node_id=id, hostname=f"node-{id[0]}", **({"cpus": 4} | others))


def running(id: str, **others: Any) -> ClusterNode:
    """Return a node whose agent runs."""
    agent = f"ray-node-{id[0]}-{id[:6]}"
    return node(id, host="running", agent=agent, **others)
