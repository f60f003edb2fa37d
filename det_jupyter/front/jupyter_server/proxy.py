"""Relays requests of pages to the master, adding its token, which browsers never get."""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qsl, urlencode

import httpx
from tornado import web
from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError

from det_jupyter.connection import API, TIMEOUT
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.errors import DetError, MasterUnreachable
from det_jupyter.front.jupyter_server.handlers import Endpoint, authenticated, require
from det_jupyter.front.jupyter_server.master_lookup import MasterLookup
from det_jupyter.front.jupyter_server.routes import find_route

_MARK = "/det-jupyter/api/"
_OURS = {
    "token",
    "_xsrf",
    "no_track_activity",
}  # parameters of Jupyter Server, which are not relayed
_RELAYED_HEADERS = ("Content-Type", "Content-Length", "Cache-Control", "Content-Disposition")
_MOST_AT_ONCE = 16
# Another process has the port, or the master is stopping: the request was not carried out.
_RETRY_STATUS = (httpx.codes.UNAUTHORIZED, httpx.codes.SERVICE_UNAVAILABLE)


def master_client(transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """Return an HTTP client for requests to masters."""
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
    """Relays a request to the master and streams the response."""

    def initialize(self, master: MasterLookup, client: httpx.AsyncClient, most_bytes: int) -> None:
        self._master, self._client, self._most_bytes = master, client, most_bytes
        self._body = bytearray()

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler does
        """Refuse users who are not logged in, and large requests, before the body is read."""
        await super().prepare()
        if not self.current_user:  # Jupyter Server does not check it here
            raise web.HTTPError(403)
        connection = cast(HTTP1Connection, self.request.connection)
        connection.set_max_body_size(self._most_bytes)  # for a body without Content-Length
        content_length = self.request.headers.get("Content-Length", "")
        if content_length.isdigit() and int(content_length) > self._most_bytes:
            self.set_header("Connection", "close")
            raise web.HTTPError(413, f"the request is too large; expected at most "
                                     f"{self._most_bytes} bytes")  # fmt: skip

    def data_received(self, chunk: bytes) -> None:
        self._body += chunk

    @authenticated
    async def get(self, path: str) -> None:
        """Relay the request if the user may make it; for all methods."""
        _, _, raw = self.request.path.partition(_MARK)
        route, path = find_route(self.request.method, raw)
        await require(self, route.action, route.resource)
        response = await self._request(path)
        try:
            await self._stream_back(response)
        finally:
            await response.aclose()

    post = put = delete = get

    async def _request(self, path: str) -> httpx.Response:
        """Return the response, its body unread; retry with the next master if one has stopped."""
        info = await self._master.find()
        response, failure = await self._try(info, path)
        if response is not None and response.status_code not in _RETRY_STATUS:
            return response
        successor = await self._master.find()
        if successor != info:
            if response is not None:
                await response.aclose()
            response, failure = await self._try(successor, path)
        if response is None:
            raise _unreachable(successor, failure)
        if response.status_code == httpx.codes.UNAUTHORIZED:  # a browser would show a login dialog
            await response.aclose()
            raise _unreachable(successor, "another program listens at its address")
        return response

    async def _try(self, info: MasterInfo, path: str) -> tuple[httpx.Response | None, str]:
        """Return the response, its body unread; None and the reason if the connection failed."""
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

    async def _stream_back(self, response: httpx.Response) -> None:
        self.set_status(response.status_code)
        for name in _RELAYED_HEADERS:
            if name in response.headers:
                self.set_header(name, response.headers[name])
        kind = response.headers.get("Content-Type", "application/json")
        try:
            async for part in response.aiter_raw():
                self.write(part)
                await (
                    self.flush()
                )  # waits until it is sent, so that nothing accumulates for a slow page
        except StreamClosedError:
            return  # the page was closed
        except httpx.TransportError as error:
            self.log.warning("the master's answer to %s broke off: %s", self.request.path, error)
            cast(HTTP1Connection, self.request.connection).close()
            return
        self.finish(set_content_type=kind)


def _unreachable(info: MasterInfo, what: str) -> DetError:
    return MasterUnreachable(
        f"the det_jupyter master at {info.url} does not answer ({what}); the request may have "
        "been carried out: check, and repeat it if it was not"
    )
