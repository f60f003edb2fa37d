"""Unix sockets and connection files on this computer for kernels of ranks on other computers.

    the agent sends a rank's kernel      five sockets and the connection file are created
    a program connects to a socket       a tunnel (tunnels.py)
    the run is over, or its agent is     both are removed. A connected agent sends its kernels
    not connected                        again; the paths stay the same

So the connection file exists while the rank can be reached, and is used like the file of a rank on
this computer. It has the path in the rank's view (`console_file`). The sockets are in a folder
that the next master uses too, so that attached programs then reach the rank again.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.connection_files import (
    NUMBERS,
    socket_path,
    write_connection_file,
)
from det_jupyter.contract.host.socket_folders import keep_socket_folder, remove_socket_folder
from det_jupyter.contract.messages import OpenTunnel, RankKernel
from det_jupyter.errors import DetError, NotFound
from det_jupyter.master.service.agents.links import AgentLink
from det_jupyter.master.service.agents.tunnels import Place, Tunnels
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

_CHECK_S = 0.2
_BACKLOG = 16


@dataclass(slots=True, kw_only=True)
class _Console:
    """The sockets and the file of one rank."""

    agent_id: str
    link: AgentLink  # link of the agent that has sent the kernel
    kernel: RankKernel
    prefix: str  # prefix of the sockets' paths
    file: Path
    servers: list[asyncio.Server] = field(default_factory=list)


class Consoles:
    """The consoles of all ranks on other computers.

    Args:
        service: The master's service.
    """

    def __init__(self, service: Service) -> None:
        self.tunnels = Tunnels()
        self._service = service
        self._consoles: dict[Place, _Console] = {}
        self._runs: set[str] = set()  # allocations that have a folder
        self._changing = asyncio.Lock()
        self._note = paths.runtime_dir() / "master.sockets"

    async def open(self, agent_id: str, session: str, kernel: RankKernel) -> None:
        """Create the sockets and the connection file for a kernel. Idempotent.

        Raises:
            Conflict: The session does not belong to the registered agent process.
            NotFound: The rank does not run on this agent.
        """
        link = self._service.links.get(agent_id, session)
        self._check_place(agent_id, kernel)
        place = (kernel.allocation_id, kernel.rank)
        async with self._changing:
            known = self._consoles.get(place)
            if known is not None and known.kernel == kernel and known.agent_id == agent_id:
                known.link = link
                return
            if self._service.is_leaving:
                return
            if known is not None:
                self._close(place)
            try:
                await self._open(place, agent_id, link, kernel)
            except (OSError, DetError) as error:  # too many open files, or a full disk
                logger.warning("run %s: rank %d has no console: %s", *place, error)

    def _check_place(self, agent_id: str, kernel: RankKernel) -> None:
        found = self._service.machine.state.find_allocation(kernel.allocation_id)
        if found is None or found[1].agent_of(kernel.rank) != agent_id:
            raise NotFound(
                f"rank {kernel.rank} of run {kernel.allocation_id} is not on {agent_id}"
            )

    async def _open(
        self, place: Place, agent_id: str, link: AgentLink, kernel: RankKernel
    ) -> None:
        folder = keep_socket_folder(self._note) / kernel.allocation_id
        folder.mkdir(mode=0o700, exist_ok=True)
        self._runs.add(kernel.allocation_id)
        console = _Console(
            agent_id=agent_id,
            link=link,
            kernel=kernel,
            prefix=f"{folder}/{kernel.rank}",
            file=paths.console_file(*place),
        )
        self._consoles[place] = console
        try:
            for number in NUMBERS:
                serve = partial(self._carry, console, number)
                listener = _bind(socket_path(console.prefix, number))
                console.servers.append(await asyncio.start_unix_server(serve, sock=listener))
            # This is last, because the file shows that the kernel can be reached.
            write_connection_file(console.file, prefix=console.prefix, key=kernel.key)
        except (OSError, DetError):
            self._close(place)
            raise

    async def _carry(
        self,
        console: _Console,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        kernel, link = console.kernel, console.link

        def order(tunnel_id: str) -> None:
            link.send(
                OpenTunnel(
                    id=tunnel_id,
                    allocation_id=kernel.allocation_id,
                    rank=kernel.rank,
                    socket=number,
                )
            )

        place = (kernel.allocation_id, kernel.rank)
        await self.tunnels.carry(console.agent_id, place, order, reader, writer)

    async def keep_current(self) -> None:
        """Close the consoles of runs that are over and agents that are away, until cancelled."""
        with suppress(OSError, DetError):
            self._remove_leftovers()
        while True:
            await asyncio.sleep(_CHECK_S)
            try:
                async with self._changing:
                    for place, console in list(self._consoles.items()):
                        if not self._is_current(console):
                            self._close(place)
                self._remove_folders()
            except Exception:  # a disk that fails, for example; it is tried again
                logger.exception("consoles cannot be removed")

    def _is_current(self, console: _Console) -> bool:
        if not self._service.links.is_current(console.agent_id, console.link):
            return False
        try:
            self._check_place(console.agent_id, console.kernel)
        except NotFound:
            return False
        return True

    def _close(self, place: Place) -> None:
        console = self._consoles.pop(place)
        for server in console.servers:
            server.close()
        self.tunnels.end_of(place)
        console.file.unlink(missing_ok=True)
        for number in NUMBERS:
            socket_path(console.prefix, number).unlink(missing_ok=True)

    def _remove_leftovers(self) -> None:
        """Remove the files that a killed master has left."""
        for file in paths.consoles_dir().glob("*.json"):
            file.unlink(missing_ok=True)
        if self._note.exists():
            self._runs |= {each.name for each in keep_socket_folder(self._note).iterdir()}

    def _remove_folders(self) -> None:
        """Remove the folders of runs that are over."""
        state = self._service.machine.state
        for run in [run for run in self._runs if state.find_allocation(run) is None]:
            shutil.rmtree(keep_socket_folder(self._note) / run, ignore_errors=True)
            self._runs.remove(run)

    async def close(self) -> None:
        """End all tunnels, and remove sockets and files; the folders of active runs stay."""
        async with self._changing:
            for place in list(self._consoles):
                self._close(place)
        self._remove_folders()
        if not self._runs:
            remove_socket_folder(self._note)


def _bind(path: Path) -> socket.socket:
    """Return a listening unix socket at this path; a former socket there is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
