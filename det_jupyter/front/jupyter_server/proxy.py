"""The master's requests for pages: the token is added here, and browsers never see it."""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qsl, urlencode

import httpx
from tornado import web
from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError

from det_jupyter.connection.session import API, TIMEOUT
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.errors import DetError, MasterUnreachable
from det_jupyter.front.jupyter_server.handlers import Endpoint, answered, require
from det_jupyter.front.jupyter_server.master import MasterLine
from det_jupyter.front.jupyter_server.routes import find_route

_MARK = "/det-jupyter/api/"
_OURS = {"token", "_xsrf", "no_track_activity"}  # of Jupyter Server, which the master is not told
_PASSED_DOWN = ("Content-Type", "Content-Length", "Cache-Control", "Content-Disposition")
_MOST_AT_ONCE = 16
# Another process took over the port, or the master is leaving: it has not done what it was asked.
_ASK_NEXT = (httpx.codes.UNAUTHORIZED, httpx.codes.SERVICE_UNAVAILABLE)


def master_client(transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """Return a client for masters, wherever they are."""
    return httpx.AsyncClient(
        limits=httpx.Limits(max_connections=_MOST_AT_ONCE, max_keepalive_connections=4),
        timeout=TIMEOUT,
        transport=transport,
        trust_env=False,  # no proxy on the loopback
        verify=False,  # plain HTTP: building an SSL context would take 20-50 ms
        headers={"Accept-Encoding": "identity"},
    )


@web.stream_request_body
class Proxy(Endpoint):
    """Passes a request on to the master, and its answer back, part by part."""

    def initialize(self, master: MasterLine, client: httpx.AsyncClient, most_bytes: int) -> None:
        self._master, self._client, self._most_bytes = master, client, most_bytes
        self._body = bytearray()

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler does
        """Refuse strangers, and what is too large, before the body is read."""
        await super().prepare()
        if not self.current_user:  # which Jupyter Server checks only where a handler asks for it
            raise web.HTTPError(403)
        connection = cast(HTTP1Connection, self.request.connection)
        connection.set_max_body_size(self._most_bytes)  # for a size that is not announced
        announced = self.request.headers.get("Content-Length", "")
        if announced.isdigit() and int(announced) > self._most_bytes:
            self.set_header("Connection", "close")
            raise web.HTTPError(413, f"the request is too large; expected at most "
                                     f"{self._most_bytes} bytes")  # fmt: skip

    def data_received(self, chunk: bytes) -> None:
        self._body += chunk

    @answered
    async def get(self, path: str) -> None:
        """Pass the request on, if this user may make it."""
        _, _, raw = self.request.path.partition(_MARK)
        route, path = find_route(self.request.method, raw)
        await require(self, route.action, route.resource)
        response = await self._ask(path)
        try:
            await self._pass_back(response)
        finally:
            await response.aclose()

    post = put = delete = get

    async def _ask(self, path: str) -> httpx.Response:
        """Return the answer's beginning; another master is asked if the first has just left."""
        info = await self._master.find()
        response, failure = await self._try(info, path)
        if response is not None and response.status_code not in _ASK_NEXT:
            return response
        successor = await self._master.find()
        if successor != info:
            if response is not None:
                await response.aclose()
            response, failure = await self._try(successor, path)
        if response is None:
            raise _unreachable(successor, failure)
        if response.status_code == httpx.codes.UNAUTHORIZED:  # a browser would ask to log in
            await response.aclose()
            raise _unreachable(successor, "what listens there is not the master of its file")
        return response

    async def _try(self, info: MasterInfo, path: str) -> tuple[httpx.Response | None, str]:
        """Return the answer's beginning; None, and why, if the master was not reached at all."""
        try:
            return await self._send(info, path), ""
        except httpx.ConnectError as error:
            return None, str(error)

    async def _send(self, info: MasterInfo, path: str) -> httpx.Response:
        query = [
            (key, value)
            for key, value in parse_qsl(self.request.query, keep_blank_values=True)
            if key not in _OURS
        ]
        request = self._client.build_request(
            self.request.method,
            f"{info.url}{API}/{path}" + (f"?{urlencode(query)}" if query else ""),
            content=bytes(self._body) if self.request.method in ("POST", "PUT") else None,
            headers={"Authorization": f"Bearer {info.token}", "Content-Type": "application/json"},
        )
        try:
            return await self._client.send(request, stream=True)
        except httpx.ConnectError:
            raise
        except httpx.PoolTimeout:
            raise MasterUnreachable(
                f"{_MOST_AT_ONCE} requests wait for the master already; try again"
            ) from None
        except httpx.TransportError as error:
            raise _unreachable(info, str(error) or type(error).__name__) from None

    async def _pass_back(self, response: httpx.Response) -> None:
        self.set_status(response.status_code)
        for name in _PASSED_DOWN:
            if name in response.headers:
                self.set_header(name, response.headers[name])
        kind = response.headers.get("Content-Type", "application/json")
        try:
            async for part in response.aiter_raw():
                self.write(part)
                await self.flush()  # back when it is sent: a slow page slows the master's answer
        except StreamClosedError:
            return  # the page is gone
        except httpx.TransportError as error:
            self.log.warning("the master's answer to %s broke off: %s", self.request.path, error)
            cast(HTTP1Connection, self.request.connection).close()
            return
        self.finish(set_content_type=kind)


def _unreachable(info: MasterInfo, what: str) -> DetError:
    return MasterUnreachable(
        f"the det_jupyter master at {info.url} does not answer ({what}); what was asked may be "
        "done or not: look, and ask again if it is not"
    )
