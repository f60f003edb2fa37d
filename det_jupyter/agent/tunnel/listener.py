"""The listening end of the tunnel: accepts connections of the other agents of a gang."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import ssl
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.agent.tunnel.connections import (
    ACCEPTED,
    LIMIT_BYTES,
    PREPARED_S,
    STARTS,
    Connection,
    FirstLine,
    end_soon,
    join,
    objects_socket,
    port_file,
    server_name,
)
from det_jupyter.agent.tunnel.copies import HeldCopies
from det_jupyter.agent.tunnel.peers import answer_measure, offer_port
from det_jupyter.contract.host.pending_connections import PendingConnections
from det_jupyter.contract.host.tls_listener import TlsListener, listen_for_tls
from det_jupyter.contract.messages import GangLink
from det_jupyter.contract.values.pauses import growing_pauses
from det_jupyter.errors import DetError

logger = logging.getLogger(__name__)

_REQUEST_S = 10.0  # time limit for the handshake, and again for the request
_PAUSES_S = (0.002, 0.05)  # first and longest pause between two attempts to connect to rank 0
_MOST_REQUESTS = 64  # most connections at a time that have not sent the secret


@dataclass(slots=True, eq=False, kw_only=True)
class AcceptedGang:
    """A gang with a part on this computer, or a check of connections.

    Args:
        server_name: Name of its certificate.
        secret: Secret of the gang.
        store: As in the ranks' specs, if rank 0 is here. None: it is not.
        waits_for: Agents whose parts are not prepared yet.
        copies: What its ranks have of sharded models, if rank 0 is here.
    """

    server_name: str
    secret: str
    store: Path | None
    waits_for: set[str]
    copies: HeldCopies | None = None
    is_prepared: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    def note_prepared(self, agents: list[str]) -> None:
        self.waits_for.difference_update(agents)
        if not self.waits_for:
            self.is_prepared.set()

    async def gather(self) -> None:
        """Wait until the other agents have prepared their ranks of the gang.

        Raises:
            StartFailed: One has not within `PREPARED_S`; another attempt may succeed.
        """
        try:
            async with asyncio.timeout(PREPARED_S):
                await self.is_prepared.wait()
        except TimeoutError:
            late = " and ".join(sorted(self.waits_for))
            raise StartFailed(
                f"{late} did not prepare the ranks there within {PREPARED_S:g} s"
            ) from None

    async def connect(self, want: Literal["objects", "store"]) -> Connection:
        """Return a connection to rank 0, once it listens."""
        assert self.store is not None
        pauses = growing_pauses(*_PAUSES_S)
        while True:
            with suppress(OSError, ValueError):
                if want == "objects":
                    path = objects_socket(self.store)
                    return await asyncio.open_unix_connection(path, limit=LIMIT_BYTES)
                port = int(port_file(self.store).read_text())
                return await asyncio.open_connection("127.0.0.1", port, limit=LIMIT_BYTES)
            await asyncio.sleep(next(pauses))


class GangListener:
    """Accepts connections of other agents, for the gangs with a part on this computer."""

    def __init__(self) -> None:
        # Without a name that is known, a connection gets the certificate of the newest gang.
        self._context = _new_context()
        self._context.sni_callback = self._choose_certificate
        self._contexts: dict[str, ssl.SSLContext] = {}  # by name, of the gangs in `_gangs`
        self._certificate = ""
        self._gangs: dict[str, AcceptedGang] = {}
        # Any program can finish the handshake. If too many connections have sent no request, the
        # oldest are closed.
        self._pending: PendingConnections[asyncio.StreamWriter] = PendingConnections(
            lambda writer: writer.transport.abort(), most=_MOST_REQUESTS, head_s=_REQUEST_S
        )
        self._has_refused = False
        self._listener: TlsListener | None = None
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self, port: int = 0) -> None:
        """Listen on all interfaces, at any free port if none is given.

        Raises:
            DetError: The port cannot be opened.
        """
        self._listener = listener = _bind(port)
        self.port = listener.getsockname()[1]
        # Without a certificate every handshake fails; the first gang brings one.
        self._server = await asyncio.start_server(
            self._serve,
            sock=listener,
            ssl=self._context,
            ssl_handshake_timeout=_REQUEST_S,
            limit=LIMIT_BYTES,
        )

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    @contextmanager
    def accepting(
        self,
        allocation_id: str,
        link: GangLink,
        *,
        store: Path | None = None,
        waits_for: Collection[str] = (),
        copies: HeldCopies | None = None,
    ) -> Iterator[AcceptedGang]:
        """Accept connections for a gang, or for a check of connections, within the block.

        Args:
            link: The gang's link, with the key of the certificate.
            store: As in the ranks' specs, if rank 0 is here.
            waits_for: The agents of the other parts, if rank 0 is here.
            copies: What its ranks have of sharded models, if rank 0 is here.
        """
        name = server_name(link.certificate)
        if link.certificate != self._certificate:  # newer than that of earlier gangs
            _load(self._context, link.certificate + "\n" + link.key)
            self._certificate = link.certificate
        if name not in self._contexts:
            context = _new_context()
            _load(context, link.certificate + "\n" + link.key)
            self._contexts[name] = context
        gang = AcceptedGang(
            server_name=name,
            secret=link.secret,
            store=store,
            waits_for=set(waits_for),
            copies=copies,
        )
        self._gangs[allocation_id] = gang
        try:
            yield gang
        finally:
            del self._gangs[allocation_id]
            if not any(other.server_name == name for other in self._gangs.values()):
                del self._contexts[name]
            end_soon(gang.connections)

    def _choose_certificate(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext
    ) -> None:
        if name is not None and (context := self._contexts.get(name)) is not None:
            connection.context = context

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._listener is not None
        self._listener.note_handshake(writer.transport)
        try:
            await self._answer((reader, writer))
        except (OSError, asyncio.CancelledError):  # lost; or the gang has ended
            pass
        finally:
            writer.close()

    async def _answer(self, connection: Connection) -> None:
        reader, writer = connection
        request = await self._read_request(reader, writer)
        gang = self._gangs.get(request.gang) if request else None
        if request is None or gang is None:
            return
        if not hmac.compare_digest(request.secret.encode(), gang.secret.encode()):
            if not self._has_refused:
                self._has_refused = True
                peer = writer.get_extra_info("peername")
                logger.warning("allocation=%s: %s has a wrong secret", request.gang, peer)
            return
        task = asyncio.current_task()
        assert task is not None
        gang.connections.add(task)
        task.add_done_callback(gang.connections.discard)
        writer.write(ACCEPTED)
        match request.want:
            case "port":
                await offer_port(connection)
            case "measure":
                await answer_measure(connection)
            case "start":
                gang.note_prepared(request.agents)
                await gang.is_prepared.wait()
                writer.write(STARTS)
                await writer.drain()
            case "objects" | "store" as want if gang.store is not None:
                await join(connection, await gang.connect(want))
            case "copies" if gang.copies is not None:
                await gang.copies.answer(connection)
            case "own_copies" if gang.copies is not None:
                await gang.copies.ask(connection, request.agents)

    async def _read_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> FirstLine | None:
        """Return the request; None if it is invalid or was dropped as one of too many."""
        self._pending.add(writer)
        try:
            return FirstLine.model_validate_json(await reader.readline())
        except ValueError:  # also a ValidationError, or a line that is too long
            return None
        finally:
            self._pending.remove(writer)


def _bind(port: int) -> TlsListener:
    try:
        return listen_for_tls(port)
    except OSError as error:
        raise DetError(
            f"port {port}, for other agents, cannot be opened: {error.strerror}; choose another "
            "with `--port N`"
        ) from None


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _load(context: ssl.SSLContext, chain: str) -> None:
    """Load a certificate with its key, which ssl reads from files only."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("certificate"), "w") as memory:
            memory.write(chain)
            memory.flush()
            context.load_cert_chain(f"/proc/self/fd/{memory.fileno()}")
        return
    with tempfile.NamedTemporaryFile("w") as file:  # mode 0600
        file.write(chain)
        file.flush()
        context.load_cert_chain(file.name)
