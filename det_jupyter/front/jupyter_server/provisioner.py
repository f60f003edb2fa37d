"""Attaches Jupyter Server to the kernel of a rank, which somebody else started and which trains.

Jupyter's kernel manager believes that it owns a process. What it does to it has to stop here:

    it shuts down    first interrupts, then asks, terminates, kills     only detaches
    it cleans up     removes the files of the kernel's IPC sockets      links of this attachment
    it restarts      shuts down, and starts again                       attaches again
    it interrupts    SIGINT                                             ends the cell that runs
    it revives       restarts a dead kernel, five times                 the rank is dead at once

A rank lives as long as its process; when that has ended, the master says why.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any, cast

import zmq
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from tornado.web import HTTPError
from traitlets import Int

from det_jupyter.contract.host.paths import read_private
from det_jupyter.errors import Conflict, DetError
from det_jupyter.front.jupyter_server.ranks import RunningRank, find_rank, why_ended

_KERNEL_UP_S = 8.0
_POLL_S = 0.05
_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
_LINGER_MS = 1000
_LOST = 1  # the exit status of a rank that ended


class RankProvisioner(KernelProvisionerBase):
    """One attachment to a rank; several may be attached to the same one."""

    parent: Any  # the KernelManager, whose parent is the server's
    trial_id = Int()
    rank = Int()

    _attached: RunningRank | None = None
    _links: tuple[Path, ...] = ()

    @property
    def has_process(self) -> bool:
        return self._attached is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments of the launch: there is no command."""
        return {**await super().pre_launch(**kwargs), "cmd": []}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Attach, and return the connection of the rank's kernel.

        Raises:
            HTTPError: The rank does not run, or cannot be reached; the message is a sentence.
        """
        try:
            rank = await asyncio.to_thread(find_rank, self.trial_id, self.rank)
            connection = await self._connection_of(rank)
        except DetError as error:
            self._forget_start()
            raise HTTPError(409, str(error)) from None
        self._attached = rank
        self.connection_info = self._linked(connection)
        return self.connection_info

    async def post_launch(self, **kwargs: Any) -> None:
        """Let the manager notice at once when the rank has ended: it cannot be started again."""
        restarter = getattr(self.parent, "_restarter", None)
        if restarter is not None:  # it polls, and is not made where autorestart is off
            restarter.restart_limit = 0

    async def poll(self) -> int | None:
        """Return None while attached to a rank that lives."""
        rank = self._attached
        if rank is None:
            return 0
        if rank.process.is_alive:
            return None
        await self._note_end(rank)
        return _LOST

    async def wait(self) -> int | None:
        """Return at once: what this waits for is to be detached."""
        self._detach()
        return 0

    async def send_signal(self, signum: int) -> None:
        """Interrupt the cell that runs; ignore all other signals, and all during a shutdown.

        The manager interrupts a kernel before it shuts it down, which would end the cell of
        another attachment.
        """
        is_leaving = self._attached is None or self.parent.shutting_down
        if signum == signal.SIGINT and not is_leaving:
            self._interrupt_cell()

    async def kill(self, restart: bool = False) -> None:
        """Detach; the rank's kernel answers the manager's request, and stays."""
        self._detach()

    terminate = shutdown_requested = kill

    async def cleanup(self, restart: bool = False) -> None:
        """Detach, and remove the links."""
        self._detach()
        self._unlink()

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """Return a short time: to detach takes none."""
        return 0.2

    def _detach(self) -> None:
        self._attached = None

    def _forget_start(self) -> None:
        """Jupyter keeps a start that failed as pending, and then the server cannot stop."""
        pending = getattr(self.parent.parent, "_pending_kernels", {})
        pending.pop(self.kernel_id, None)

    async def _connection_of(self, rank: RunningRank) -> dict[str, Any]:
        """Wait until its kernel listens; it starts soon after the first step."""
        deadline = time.monotonic() + _KERNEL_UP_S
        while True:
            connection = _read(Path(rank.connection_file))
            if connection and all(path.is_socket() for path in _sockets(connection).values()):
                return connection
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_POLL_S)
        if connection:
            raise Conflict(
                f"{rank.name} is on another computer (agent {rank.agent_id}): consoles reach the "
                "ranks of this one"
            )
        raise Conflict(
            f"the kernel of {rank.name} is not up yet: it starts soon after the first step; try "
            "again in a moment"
        )

    def _linked(self, connection: dict[str, Any]) -> KernelConnectionInfo:
        """Return a connection through links, which the manager may remove.

        They are beside the sockets: in a folder of the user alone, whose path is short enough,
        and which is removed when the run is over.
        """
        self._unlink()
        assert self.kernel_id is not None
        prefix = f"{Path(connection['ip']).parent}/{self.kernel_id[:8]}"
        links = []
        for port, path in _sockets(connection).items():
            link = Path(f"{prefix}-{port}")
            link.unlink(missing_ok=True)  # the manager's own attempt at a restart left it
            link.symlink_to(path)
            links.append(link)
        self._links = tuple(links)
        kept = {name: connection[name] for name in (*_PORTS, "transport", "signature_scheme")}
        return cast(KernelConnectionInfo, kept | {"ip": prefix, "key": connection["key"].encode()})

    def _unlink(self) -> None:
        for link in self._links:
            link.unlink(missing_ok=True)
        self._links = ()

    def _interrupt_cell(self) -> None:
        session, info = self.parent.session, self.connection_info
        control: zmq.Socket[bytes]
        with zmq.Context.instance().socket(zmq.DEALER) as control:
            control.setsockopt(zmq.LINGER, _LINGER_MS)
            control.connect(f"ipc://{info['ip']}-{info['control_port']}")
            session.send(control, session.msg("interrupt_request", {}))

    async def _note_end(self, rank: RunningRank) -> None:
        self._detach()
        self._unlink()
        try:
            why = await asyncio.to_thread(why_ended, self.trial_id, self.rank)
        except DetError as error:
            why = f"{rank.name} has ended ({error})"
        self.parent.reason = why  # Jupyter Server shows it of a kernel that it still has
        self.log.warning("Kernel %s: %s", self.kernel_id, why)


def _read(connection_file: Path) -> dict[str, Any]:
    try:
        connection: dict[str, Any] = json.loads(read_private(connection_file))
    except FileNotFoundError:
        return {}
    return connection


def _sockets(connection: dict[str, Any]) -> dict[int, Path]:
    ports = [connection[name] for name in _PORTS]
    return {port: Path(f"{connection['ip']}-{port}") for port in ports}
