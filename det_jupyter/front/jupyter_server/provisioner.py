"""Attaches Jupyter Server to the kernel of a running rank.

Jupyter's kernel manager assumes that it owns the process. A rank must survive it, so each
operation is replaced:

    manager           does to a kernel                              here
    shuts down        interrupts, requests, terminates, kills       detaches
    cleans up         removes the files of the IPC sockets          removes links to them
    restarts          shuts down and starts again                   attaches again
    interrupts        SIGINT                                        interrupts the running cell
    autorestarts      restarts a dead kernel, up to five times      reports it dead at once

A kernel is dead when its rank's process has ended; the reason is fetched from the master. The
kernel of a rank on another computer is also dead when its agent was not connected for some time.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any, cast

import zmq
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from tornado.web import HTTPError
from traitlets import Int

from det_jupyter.contract.host.connection_files import PORTS, read_connection_file, socket_path
from det_jupyter.errors import Conflict, DetError, MasterUnreachable
from det_jupyter.front.jupyter_server.rank_kernels import (
    RunningRank,
    find_rank,
    why_ended,
    why_unreachable,
)

_KERNEL_UP_S = 8.0
_POLL_S = 0.05
_AWAY_S = 10.0  # how long a rank may be unreachable; the master may be restarted meanwhile
_LINGER_MS = 1000
_ENDED_STATUS = 1  # the exit status that `poll` returns of an ended rank


class RankProvisioner(KernelProvisionerBase):
    """One attachment to a rank; several may be attached to the same one."""

    parent: Any  # the KernelManager, whose parent is the server's
    trial_id = Int()
    rank = Int()

    _attached: RunningRank | None = None
    _links: tuple[Path, ...] = ()
    _unreachable_since: float | None = None  # monotonic time

    @property
    def has_process(self) -> bool:
        return self._attached is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments of `launch_kernel`, with an empty command."""
        return {**await super().pre_launch(**kwargs), "cmd": []}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Attach; return the connection info of the rank's kernel.

        Raises:
            HTTPError: The rank does not run or cannot be reached.
        """
        try:
            rank = await asyncio.to_thread(find_rank, self.trial_id, self.rank)
            connection = await self._wait_for_kernel(rank)
        except DetError as error:
            # Jupyter keeps a failed start as pending, and then the server cannot stop.
            getattr(self.parent.parent, "_pending_kernels", {}).pop(self.kernel_id, None)
            raise HTTPError(409, str(error)) from None
        self._attached, self._unreachable_since = rank, None
        self.connection_info = self._link_sockets(connection)
        return self.connection_info

    async def post_launch(self, **kwargs: Any) -> None:
        """Turn off automatic restarts: a rank that has ended cannot be started again."""
        restarter = getattr(self.parent, "_restarter", None)
        if restarter is not None:  # absent where autorestart is off
            restarter.restart_limit = 0

    async def poll(self) -> int | None:
        """Return None while attached to a rank whose process runs, else an exit status."""
        rank = self._attached
        if rank is None:
            return 0
        if rank.is_reachable:
            self._unreachable_since = None
            return None
        why = await asyncio.to_thread(self._why_dead, rank)
        if not why:
            return None
        self._detach()
        self._unlink()
        self.parent.reason = why  # Jupyter Server shows it of a kernel in its list
        self.log.warning("Kernel %s: %s", self.kernel_id, why)
        return _ENDED_STATUS

    async def wait(self) -> int | None:
        """Detach and return at once; the manager calls this after a shutdown."""
        self._detach()
        return 0

    async def send_signal(self, signum: int) -> None:
        """Interrupt the running cell on SIGINT; ignore other signals, and all during a shutdown.

        The manager interrupts a kernel before it shuts it down, which would end a cell that
        another attachment runs.
        """
        is_detaching = self._attached is None or self.parent.shutting_down
        if signum == signal.SIGINT and not is_detaching:
            self._interrupt_cell()

    async def kill(self, restart: bool = False) -> None:
        """Detach; the rank's kernel continues."""
        self._detach()

    terminate = shutdown_requested = kill

    async def cleanup(self, restart: bool = False) -> None:
        """Detach, and remove the links."""
        self._detach()
        self._unlink()

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """Return a short time, as detaching is immediate."""
        return 0.2

    def _detach(self) -> None:
        self._attached = None

    async def _wait_for_kernel(self, rank: RunningRank) -> dict[str, Any]:
        """Wait until a rank's kernel listens, shortly after its first step; return its connection.

        Raises:
            Conflict: It does not listen in time.
        """
        deadline = time.monotonic() + _KERNEL_UP_S
        while True:
            connection = read_connection_file(Path(rank.connection_file))
            if connection and all(path.is_socket() for path in _sockets(connection).values()):
                return connection
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_POLL_S)
        if rank.is_remote and (why := await asyncio.to_thread(why_unreachable, rank.agent_id)):
            raise Conflict(f"{rank.name} cannot be reached: {why}")
        raise Conflict(
            f"the kernel of {rank.name} is not up yet: it starts soon after the first step; try "
            "again in a moment"
        )

    def _link_sockets(self, connection: dict[str, Any]) -> KernelConnectionInfo:
        """Return a connection through symbolic links to the sockets, which the manager may remove.

        The links are beside the sockets: in a folder that is private to the user, has a short
        path, and is removed after the run.
        """
        self._unlink()
        assert self.kernel_id is not None
        prefix = f"{Path(connection['ip']).parent}/{self.kernel_id[:8]}"
        links = []
        for port, path in _sockets(connection).items():
            link = Path(f"{prefix}-{port}")
            link.unlink(missing_ok=True)  # left by a restart of the manager
            link.symlink_to(path)
            links.append(link)
        self._links = tuple(links)
        kept = {name: connection[name] for name in (*PORTS, "transport", "signature_scheme")}
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

    def _why_dead(self, rank: RunningRank) -> str:
        """Return why a rank that cannot be reached is dead; "" if it may come back. Blocks."""
        if rank.is_remote:
            now = time.monotonic()
            self._unreachable_since = self._unreachable_since or now
            try:
                is_running = find_rank(self.trial_id, self.rank).process == rank.process
                why = why_unreachable(rank.agent_id) or "its kernel does not answer"
            except MasterUnreachable as error:
                is_running, why = True, str(error)
            except DetError:  # it has ended
                is_running, why = False, ""
            if is_running:
                is_late = now - self._unreachable_since > _AWAY_S
                return f"{rank.name} cannot be reached: {why}" if is_late else ""
        try:
            return why_ended(self.trial_id, self.rank)
        except DetError as error:
            return f"{rank.name} has ended ({error})"


def _sockets(connection: dict[str, Any]) -> dict[int, Path]:
    numbers = [connection[name] for name in PORTS]
    return {number: socket_path(connection["ip"], number) for number in numbers}
