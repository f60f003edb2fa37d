"""The listener for agents on other computers: TLS, and only the routes that they need.

Each agent has a token of its own, which is valid for its own routes. Requests of users are not
served here: those need the master's token and the loopback interface (guard.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import suppress
from functools import cached_property

from fastapi import APIRouter, FastAPI, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from det_jupyter.contract.host.tls_listener import TlsListener, listen_for_tls
from det_jupyter.contract.messages import AddAgent, AgentCredentials, Wire
from det_jupyter.errors import Conflict, DetError
from det_jupyter.master.http.guard import BoundedBody, too_large
from det_jupyter.master.http.responses import (
    API,
    DiskSpace,
    JsonResponse,
    add_error_handlers,
    add_routes,
    closing_refusal,
    new_routes,
)
from det_jupyter.master.http.routes_agents import agent_routes, remote_routes
from det_jupyter.master.http.routes_checks import checked_agent_routes
from det_jupyter.master.http.routes_tunnels import is_tunnel, tunnel_routes
from det_jupyter.master.http.routes_uploads import upload_routes
from det_jupyter.master.http.server import Server
from det_jupyter.master.machine.model.events import AgentRemoved
from det_jupyter.master.service.agents.agent_access import AgentAccess, outward_address
from det_jupyter.master.service.connection_checks import ConnectionChecks
from det_jupyter.master.service.consoles import Consoles
from det_jupyter.master.service.reports.checkpoint_inbox import CheckpointInbox
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

_REFUSES_S = 60.0  # how long the port stays open after the last agent was removed, to refuse it


class AgentGuard:
    """ASGI middleware that accepts only requests with the token of the agent in the path.

    Args:
        app: The application.
        access: The tokens of agents.
    """

    def __init__(self, app: ASGIApp, access: AgentAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        agent = self._access.agent_of(token) if kind == "Bearer" else None
        if agent is None:
            problem = (
                "the master does not accept this token: the agent was removed (det agent remove), "
                "or added again, which makes another token; add it on the master's computer, and "
                "start it with the credentials of that"
            )
            await closing_refusal(401, problem)(scope, receive, send)
            self._access.note_refused(token)
        elif not scope["path"].startswith(f"{API}/agents/{agent}/"):
            problem = f"this token is for the routes of agent {agent} only"
            await closing_refusal(403, problem)(scope, receive, send)
        elif problem := too_large(headers):
            await closing_refusal(413, problem)(scope, receive, send)
        else:
            body = receive if is_tunnel(scope["path"]) else BoundedBody(receive)
            try:
                await self._app(scope, body, send)
            except Exception:  # the app has answered it, unless a response had begun
                logger.exception("%s %s failed", scope["method"], scope["path"])


def create_agent_app(
    service: Service,
    access: AgentAccess,
    consoles: Consoles,
    inbox: CheckpointInbox,
    checks: ConnectionChecks,
    data_dir: str,
) -> AgentGuard:
    """Return the ASGI application of the listener."""
    app = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    add_error_handlers(app, DiskSpace(data_dir), service)
    add_routes(
        app,
        agent_routes(service, is_remote=True),
        remote_routes(service, inbox),
        tunnel_routes(consoles),
        upload_routes(service, inbox),
        checked_agent_routes(checks),
    )
    return AgentGuard(app, access)


class AgentListener:
    """Serves agents on other computers, once one has been added.

    Attributes:
        inbox: Receives the checkpoints that agents upload.
        checks: Checks the agents' connections.
    """

    def __init__(self, service: Service, access: AgentAccess, data_dir: str) -> None:
        self.consoles = Consoles(service)
        self.inbox = CheckpointInbox(service.store.path.parent)
        self.checks = ConnectionChecks(service, access)
        self._service, self._access, self._data_dir = service, access, data_dir
        self._serving: asyncio.Task[None] | None = None
        self._server: Server | None = None
        self._clusters: set[str] = set()  # clusters whose nodes may become agents at any time
        self._changing = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None

    @cached_property  # most masters have no agent on another computer
    def _app(self) -> AgentGuard:
        return create_agent_app(
            self._service, self._access, self.consoles, self.inbox, self.checks, self._data_dir
        )

    async def open(self, cluster: str = "") -> int:
        """Start to listen on all interfaces, unless this listens already; return the port.

        Args:
            cluster: The cluster that needs the port, until `close_unneeded`; "": an agent needs
                it.

        Raises:
            DetError: Another program uses the port that agents connect to, or the certificate
                cannot be read.
        """
        async with self._changing:
            if self._serving is None or self._serving.done():
                await self._open()
            if cluster:
                self._clusters.add(cluster)
        assert self._access.port is not None
        return self._access.port

    async def _open(self) -> None:
        listener = _bind(self._access.port)
        port: int = listener.getsockname()[1]
        started = asyncio.Event()
        try:
            self._server = Server(
                self._app,
                on_started=started.set,
                certificate=self._access.certificate,
                key=self._access.key,
                on_connected=listener.note_handshake,
            )
        except OSError as error:  # ssl.SSLError is one
            listener.close()
            raise DetError(
                f"agents of other computers cannot connect: {self._access.certificate} or key.pem "
                f"cannot be used ({error.strerror or error}); remove both files, and add the "
                "agents again"
            ) from None
        if port != self._access.port:
            self._access.set_port(port)
        self._serving = asyncio.create_task(self._serve(self._server, listener))
        await started.wait()
        logger.info("agents of other computers can connect to port %d", port)

    async def _serve(self, server: Server, listener: socket.socket) -> None:
        with listener:
            await server.serve(sockets=[listener])

    async def close(self) -> None:
        """Stop listening, and close the connections."""
        await self.consoles.close()
        if self._closing is not None and self._closing is not asyncio.current_task():
            self._closing.cancel()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            with suppress(asyncio.CancelledError):
                await self._serving

    def close_soon(self) -> None:
        """Call `close_unneeded` in a minute, and then each minute until no agent is expected.

        Until then, processes of removed agents are refused when they connect, and so exit.
        """
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._close_later())

    async def _close_later(self) -> None:
        while True:
            await asyncio.sleep(_REFUSES_S)
            await self.close_unneeded()
            if self._access.agents or not self._access.needs_port(time.time()):
                return

    async def close_unneeded(self, cluster: str = "") -> None:
        """Stop listening if no agent may connect; the next agent gets another port.

        Args:
            cluster: A cluster that does not need the port any more.
        """
        async with self._changing:
            self._clusters.discard(cluster)
            if not self._access.needs_port(time.time()) and not self._clusters:
                await self.close()
                self._access.set_port(None)


def _bind(port: int | None) -> TlsListener:
    """Return a socket bound to all interfaces; to any free port if none is given."""
    try:
        return listen_for_tls(port or 0)
    except OSError as error:
        raise DetError(
            f"agents of other computers connect to port {port}, which cannot be opened: "
            f"{error.strerror}; end the program that uses it, or remove all of these agents, and "
            "add them again"
        ) from None


def access_routes(service: Service, access: AgentAccess, listener: AgentListener) -> APIRouter:
    """Return the routes with which users add and remove agents of other computers."""
    routes = new_routes()

    @routes.post("/agents/{agent_id:path}/credentials", response_model=AgentCredentials)
    async def add(agent_id: str, body: AddAgent) -> Response:
        """Allow an agent on another computer to connect; return its credentials."""
        agent = service.machine.state.agents.get(agent_id)
        is_here = agent_id == socket.gethostname() if agent is None else not agent.is_remote
        if is_here:  # it is an agent of this computer, which may not have registered yet
            raise Conflict(f"{agent_id} is the name of an agent of this computer; choose another")
        if cluster := access.cluster_of(agent_id):
            raise Conflict(
                f"{agent_id} is the name of an agent of cluster {cluster}; choose another"
            )
        address = body.address or outward_address()
        token = access.add(agent_id)
        await listener.open()
        return JsonResponse(access.credentials(agent_id, token, address))

    @routes.delete("/agents/{agent_id:path}/credentials", response_model=Wire)
    async def remove(agent_id: str) -> Response:
        """Refuse an agent of another computer from now on; its trials are ended there."""
        if cluster := access.cluster_of(agent_id):
            raise Conflict(
                f"agent {agent_id} is on a node of cluster {cluster}, and would be started again; "
                f"to use none of its slots: det agent disable {agent_id}; to end all agents of "
                f"the cluster: det cluster remove {cluster}"
            )
        agent = service.machine.state.agents.get(agent_id)
        access.remove(agent_id, awaited_from=time.time() if agent is not None else None)
        service.links.drop(agent_id)
        service.take(AgentRemoved(agent_id=agent_id))
        listener.close_soon()
        return JsonResponse(Wire())

    return routes
