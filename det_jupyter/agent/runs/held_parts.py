"""What the ranks of a gang here share besides their processes, as long as ranks may need it.

tunnel    of a gang on several computers: connections to its other parts
memory    for copies of sharded models: of a gang on one computer until its ranks have ended;
          on several until the master closes the run, as ranks elsewhere may request copies
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from contextlib import AsyncExitStack

from det_jupyter.agent.runs.remote_master import RemoteMaster
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.runs.specs import shared_store
from det_jupyter.agent.tunnel.copies import copies_shards, holding_copies
from det_jupyter.agent.tunnel.part import LinkedPart, open_part


class HeldParts:
    """The parts of gangs here.

    Args:
        agents: The agents of this process.
        remote: The master, if it is on another computer.
    """

    def __init__(self, agents: Container[str], remote: RemoteMaster | None) -> None:
        self._agents = agents
        self._remote = remote
        self._held: dict[str, asyncio.Task[None]] = {}  # by allocation id

    async def open(self, run: AgentRun, held: AsyncExitStack) -> LinkedPart | None:
        """Open memory and tunnel of a run until `held` is closed; None: all ranks are here.

        Raises:
            LaunchError: This computer has no network to the others.
        """
        copies, remote = None, self._remote
        if copies_shards(run.plan):
            copies = held.enter_context(holding_copies(run.dir, run.ranks, run.plan.homes))
        if run.link is None:
            return None
        assert run.sockets is not None
        part = open_part(
            run.id,
            run.link,
            agents=self._agents,
            store=shared_store(run.sockets),
            listener=remote.listener if remote is not None else None,
            master=remote.address if remote is not None else "",
            copies=copies,
        )
        return await held.enter_async_context(part)

    def hold(self, allocation_id: str, held: AsyncExitStack) -> None:
        """Keep what a run has opened until it is closed, though its ranks here have ended."""
        self._held[allocation_id] = asyncio.create_task(_hold(held.pop_all()))

    def close(self, allocation_id: str) -> None:
        """Close what is kept of a run, if there is anything."""
        if held := self._held.pop(allocation_id, None):
            held.cancel()


async def _hold(held: AsyncExitStack) -> None:
    async with held:
        await asyncio.Event().wait()
