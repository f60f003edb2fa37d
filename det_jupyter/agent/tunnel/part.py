"""Connects the parts of a gang on several computers, through TLS to the chief's agent.

A part is the ranks on the agents of one process. The chief's agent listens; the other agents
forward to it what their ranks send to rank 0:

    another computer                                       the chief's computer
    rank ── unix socket ──┐         TLS          ┌── unix socket ── rank 0: exchange of objects
                        agent ───────────── chief's agent
    rank ── loopback ─────┘                      └── loopback ───── rank 0: torch's store

An agent opens a connection with a line of JSON (Request). It contains the gang's secret, and what
is requested:

    start       the part is prepared. Answered by `ok`, and by `go` when all parts are: then each
                agent starts its ranks
    objects     answered by `ok`; then bytes are copied both ways, as soon as rank 0 listens
    store       the same

Other connections are closed. When one side closes, the bytes that it sent before are delivered,
and then the other side is closed too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.agent.tunnel.connections import (
    ACCEPTED,
    LIMIT_BYTES,
    PREPARED_S,
    STARTS,
    Connection,
    Request,
    end_soon,
    join,
    objects_socket,
    port_file,
)
from det_jupyter.agent.tunnel.interfaces import find_network
from det_jupyter.agent.tunnel.listener import GangListener
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.tls_client import trusting
from det_jupyter.contract.messages import GangLink, GangNetwork, GangPlan
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import LaunchError

logger = logging.getLogger(__name__)

_REACHED_S = 60.0  # within this time the chief's agent has to answer
# When the chief's part has ended, the master has the reason, and ends this part within this time.
_ENDED_S = 15.0
_ATTEMPT_S = 5.0  # for one connection, its handshake and the answer
_PAUSES_S = (0.005, 0.5)  # first and longest pause between two attempts


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a gang that is connected with the chief's agent, or is the chief's.

    Args:
        network: How its ranks reach the others.
        gather: To call when this part is prepared; returns when all parts are. Raises LaunchError
            if the chief's agent cannot be reached, StartFailed if another part is not prepared in
            time.
    """

    network: GangNetwork
    gather: Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def open_part(
    plan: GangPlan,
    link: GangLink,
    *,
    agents: Container[str],
    store: Path,
    listener: GangListener | None,
    master: str = "",
) -> AsyncIterator[Part]:
    """Connect a part with the chief's agent, or accept the other parts, within the block.

    Args:
        agents: The agents of this process.
        store: As in the ranks' specs.
        listener: That of this process.
        master: Address of the master's computer; "": it is this one.

    Raises:
        LaunchError: This computer has no network to the others.
    """
    homes = list(dict.fromkeys(plan.homes))
    here = [home for home in homes if home in agents]
    groups = [homes.index(home) for home in here]
    network = await asyncio.to_thread(find_network, link, groups, master=master)
    if plan.homes[0] in here:
        if listener is None:  # the master gives rank 0 to an agent that others can reach
            raise LaunchError(f"rank 0 is on {plan.homes[0]}, which accepts no other agents")
        others = {home for home in homes if home not in agents}
        with listener.carrying(plan.allocation_id, link, store=store, waits_for=others) as gang:
            yield Part(network, gang.gather)
        return
    tunnel = PartTunnel(allocation_id=plan.allocation_id, link=link, agents=here)
    await tunnel.open(store)
    try:
        yield Part(network, tunnel.gather)
    finally:
        tunnel.close()


@dataclass(slots=True, kw_only=True)
class PartTunnel:
    """The connections of a part that is on another computer than the chief.

    Args:
        allocation_id: Of the gang.
        agents: The agents of the part.
    """

    allocation_id: str
    link: GangLink
    agents: list[str]
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
        """Report that this part is prepared, and wait until all parts are.

        Raises:
            LaunchError: The chief's agent cannot be reached.
            StartFailed: It has not answered in time; another attempt may succeed.
        """
        reader, writer = await self._connect("start")
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
                f"the agent of rank 0, at {self._where}, has ended its part of the gang"
            )

    @property
    def _where(self) -> str:
        return f"{self.link.addresses[0]} port {self.link.port}"

    def _forwarder(
        self, want: Literal["objects", "store"]
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            try:
                await join((reader, writer), await self._connect(want))
            except (LaunchError, StartFailed) as error:
                logger.error("allocation=%s: %s", self.allocation_id, error)
            except (OSError, asyncio.CancelledError):  # lost; or the gang has ended
                pass
            finally:
                writer.close()

        return forward

    async def _connect(self, want: Literal["start", "objects", "store"]) -> Connection:
        """Return a connection to the chief's agent that it has accepted.

        Raises:
            LaunchError, StartFailed: See `gather`.
        """
        context = trusting(self.link.certificate)
        request = Request(
            gang=self.allocation_id, want=want, secret=self.link.secret, agents=self.agents
        )
        line = request.model_dump_json().encode() + b"\n"
        deadline = time.monotonic() + _REACHED_S
        pause_s, longest_s = _PAUSES_S
        while True:
            try:
                async with asyncio.timeout(_ATTEMPT_S):
                    connection = await self._open(context, line)
                if connection is not None:
                    return connection
                problem: Exception | None = None
            except (OSError, TimeoutError) as error:
                problem = error
            if time.monotonic() > deadline:
                raise self._not_reached(problem)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _open(self, context: ssl.SSLContext, line: bytes) -> Connection | None:
        """Return a connection; None if the chief's agent does not carry the gang (yet)."""
        reader, writer = await asyncio.open_connection(
            self.link.addresses[0], self.link.port, ssl=context, limit=LIMIT_BYTES
        )
        try:
            _keep_alive(writer)
            writer.write(line)
            if await reader.readline() == ACCEPTED:
                return reader, writer
        except BaseException:
            writer.close()
            raise
        writer.close()
        return None

    def _not_reached(self, problem: Exception | None) -> Exception:
        here = f"{socket.gethostname()} (agent {', '.join(self.agents)})"
        if problem is None:
            return StartFailed(
                f"the agent of rank 0, at {self._where}, has not begun to start its part of the "
                f"gang within {_REACHED_S:g} s"
            )
        if isinstance(problem, ssl.SSLCertVerificationError):
            reason = "what answers there has another certificate"
        elif isinstance(problem, TimeoutError):
            reason = "no answer: a firewall may drop the packets"
        else:
            reason = getattr(problem, "strerror", None) or error_text(problem)
        return LaunchError(
            f"{here} could not connect to the agent of rank 0, at {self._where}, within "
            f"{_REACHED_S:g} s: {reason}; open that port between the computers, or start the "
            "agent there with `--port N` and, if others reach it at another address, with "
            "`--address HOST`"
        )


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Let the system find out that the other computer is gone, and routers keep the connection."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
