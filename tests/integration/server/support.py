"""Requests and sockets to a Jupyter server under test, with any credentials."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.problems import sentences_of

XSRF = "0123456789abcdef0123456789abcdef"


@dataclass
class Answer:
    """What was answered."""

    status: int
    body: bytes
    headers: Any

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """The sentences of a refusal."""
        return "\n".join(sentences_of(self.data))


class Client:
    """Talks to a server as its user, unless given other headers."""

    def __init__(self, app: Any, http: Any, base_url: str, port: int) -> None:
        self.app = app
        self.token = {"Authorization": f"token {app.identity_provider.token}"}
        self.base_url, self.port = base_url, port
        self._http = http

    @property
    def http_port(self) -> int:
        """The port that answers."""
        port: int = self._http.get_http_port()
        return port

    async def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> Answer:
        """Make a request; `path` is below det-jupyter/."""
        if body is None and method in ("POST", "PUT"):
            body = {}
        try:
            response = await self._http.fetch(
                f"{self.base_url}det-jupyter/{path}",
                method=method,
                headers=self.token if headers is None else headers,
                body=body if body is None or isinstance(body, (bytes, str)) else json.dumps(body),
                follow_redirects=False,
                request_timeout=60,
                **options,
            )
        except HTTPClientError as error:
            if error.response is None:
                raise
            response = error.response
        return Answer(response.code, response.body, response.headers)

    async def cookie(self) -> str:
        """Log in; return the cookies of a browser: of the login, and against forgery."""
        response = await self._http.fetch(f"{self.base_url}api/me", headers=self.token)
        login = SimpleCookie()
        for text in response.headers.get_list("Set-Cookie"):
            login.load(text)
        return "; ".join([f"_xsrf={XSRF}", *(f"{k}={m.value}" for k, m in login.items())])

    async def socket(
        self, headers: dict[str, str] | None = None, query: str = ""
    ) -> WebSocketClientConnection:
        """Open a socket; HTTPClientError if it is refused."""
        url = f"ws://127.0.0.1:{self.port}{self.base_url}det-jupyter/socket{query}"
        request = HTTPRequest(url, headers=self.token if headers is None else headers)
        return await websocket_connect(request, max_message_size=1 << 30)

    async def socket_status(self, headers: dict[str, str], query: str = "") -> int:
        """Return 101 if a socket opens, else the status with which it is refused."""
        try:
            (await self.socket(headers, query)).close()
        except HTTPClientError as error:
            return error.code
        return 101


async def do(socket: WebSocketClientConnection, what: str, **fields: Any) -> None:
    """Have the stand-in do something."""
    await socket.write_message(json.dumps({"op": "do", "what": what, **fields}))


async def heard(socket: WebSocketClientConnection) -> Any:
    """Return the next frame: JSON, bytes, or None at the end."""
    message = await socket.read_message()
    if message is None:
        socket.close()  # which it says it wants, also when it is over
    return json.loads(message) if isinstance(message, str) else message
