"""Connects the parts of a gang on several computers, through TLS between their agents.

A part is the ranks on the agents of one process. The chief's agent listens; the other agents
forward to it what their ranks send to rank 0:

    another computer                                       the chief's computer
    rank ── unix socket ──┐         TLS          ┌── unix socket ── rank 0: exchange of objects
                        agent ───────────── chief's agent
    rank ── loopback ─────┘                      └── loopback ───── rank 0: torch's store

An agent opens a connection with a line of JSON (FirstLine). It contains the gang's secret, and
what is requested:

    start       the part is prepared. Answered by `ok`, and by `go` when all parts are: then each
                agent starts its ranks
    objects     answered by `ok`; then bytes are copied both ways, as soon as rank 0 listens
    store       the same
    copies, own_copies
                answered by `ok`; then copies of sharded models are requested (copies.py)
    port        answered by `ok`, and by the number of a port that is open until the connection is
                closed; of any part (peers.py)
    measure     answered by `ok`; then bytes are answered; of any part

Other connections are closed. When one side closes, the bytes that it sent before are delivered,
and then the other side is closed too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.agent.tunnel import peers
from det_jupyter.agent.tunnel.connections import (
    LIMIT_BYTES,
    PREPARED_S,
    STARTS,
    end_soon,
    join,
    objects_socket,
    port_file,
)
from det_jupyter.agent.tunnel.copies import HeldCopies
from det_jupyter.agent.tunnel.dialing import Dialer
from det_jupyter.agent.tunnel.interfaces import find_network
from det_jupyter.agent.tunnel.listener import GangListener
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import Cut, GangLink, GangNetwork
from det_jupyter.errors import LaunchError

logger = logging.getLogger(__name__)

# How long to wait for the master to end this part after the chief's part: it has the reason.
_ENDED_S = 15.0


@dataclass(frozen=True, slots=True)
class LinkedPart:
    """A part of a gang that is connected with the others.

    Args:
        network: How its ranks reach the others.
        dialer: Connects to the agents of the others.
        join_others: Returns when all parts are prepared; see `gather`.
        copies: What the ranks here have of sharded models, if they copy them.
    """

    network: GangNetwork
    dialer: Dialer
    join_others: Callable[[], Coroutine[Any, Any, None]]
    copies: HeldCopies | None = None

    async def gather(self) -> None:
        """Report that this part is prepared; return when all are, and reach each other.

        Raises:
            Unreached: Another computer cannot be reached.
            LaunchError: Another program answers at the address of its agent.
            StartFailed: Another part is not prepared in time, or has ended.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(peers.check_ports(self.dialer))
                group.create_task(self.join_others())
        except* (LaunchError, StartFailed) as errors:
            raise errors.exceptions[0] from None

    async def watch(self) -> Cut:
        """Return when another computer cannot be reached any more."""
        cut = await peers.watch(self.dialer)
        if self.copies is not None:
            self.copies.cut_off()
        return cut


@asynccontextmanager
async def open_part(
    allocation_id: str,
    link: GangLink,
    *,
    agents: Container[str],
    store: Path,
    listener: GangListener | None,
    master: str = "",
    copies: HeldCopies | None = None,
) -> AsyncIterator[LinkedPart]:
    """Connect a part with the other ones, and accept their connections, within the block.

    Args:
        agents: The agents of this process.
        store: As in the ranks' specs.
        listener: That of this process; None on the master's computer.
        master: Address of the master's computer; "": it is this one.
        copies: What the ranks here have of sharded models, if they copy them.

    Raises:
        LaunchError: This computer has no network to the others.
    """
    here = [agent for agent in link.agents if agent in agents]
    groups = [link.agents.index(agent) for agent in here]
    network = await asyncio.to_thread(find_network, link, groups, master=master)
    dialer = Dialer(gang=allocation_id, link=link, here=here)
    is_chief = 0 in groups
    async with AsyncExitStack() as held:
        if copies is not None:
            held.callback((await copies.listen(store)).close)
        if listener is not None:
            others = {agent for agent in link.agents if agent not in agents} if is_chief else set()
            gang = held.enter_context(
                listener.accepting(
                    allocation_id, link, store=store, waits_for=others, copies=copies
                )
            )
            if is_chief:
                yield LinkedPart(network, dialer, gang.gather, copies)
                return
        if is_chief:  # the master gives rank 0 to an agent that others can reach
            raise LaunchError(f"rank 0 is on {here[0]}, which accepts no other agents")
        tunnel = PartTunnel(dialer=dialer, copies=copies)
        await tunnel.open(store)
        held.callback(tunnel.close)
        yield LinkedPart(network, dialer, tunnel.gather, copies)


@dataclass(slots=True, kw_only=True)
class PartTunnel:
    """The connections to the chief's agent, of a part that is on another computer."""

    dialer: Dialer
    copies: HeldCopies | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _servers: list[asyncio.Server] = field(default_factory=list)

    async def open(self, store: Path) -> None:
        """Listen at the unix socket and on the loopback interface, for the ranks."""
        objects = objects_socket(store)
        self._servers = [
            await asyncio.start_unix_server(
                self._forwarder("objects"), objects, limit=LIMIT_BYTES
            ),
            await asyncio.start_server(
                self._forwarder("store"), "127.0.0.1", 0, limit=LIMIT_BYTES
            ),
        ]
        port = self._servers[1].sockets[0].getsockname()[1]
        paths.write_private(port_file(store), str(port))

    def close(self) -> None:
        """Stop listening, and close the connections soon."""
        for server in self._servers:
            server.close()
        end_soon(self._tasks)

    async def gather(self) -> None:
        """Report that this part is prepared, and wait until all parts are; see `gather`."""
        reader, writer = await self.dialer.connect(0, "start")
        try:
            async with asyncio.timeout(PREPARED_S):
                has_come = await reader.readline() == STARTS
        except (OSError, TimeoutError):
            has_come = False
        finally:
            writer.close()
        if not has_come:
            await asyncio.sleep(_ENDED_S)
            raise StartFailed(
                f"the agent of rank 0, at {self.dialer.where(0)}, has ended its part of the gang"
            )
        if self.copies is not None:
            await self._exchange_copies(self.copies)

    async def _exchange_copies(self, copies: HeldCopies) -> None:
        others = [agent for agent in self.dialer.link.agents if agent not in self.dialer.here]
        asking = await self.dialer.connect(0, "copies")
        self._start(copies.ask(asking, others))
        self._start(copies.answer(await self.dialer.connect(0, "own_copies")))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forwarder(
        self, want: Literal["objects", "store"]
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            try:
                await join((reader, writer), await self.dialer.connect(0, want))
            except (LaunchError, StartFailed) as error:
                logger.error("allocation=%s: %s", self.dialer.gang, error)
            except (OSError, asyncio.CancelledError):  # lost; or the gang has ended
                pass
            finally:
                writer.close()

        return forward
