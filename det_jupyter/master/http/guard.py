"""The checks that every request passes before it is routed: token, Host header, size of the body.

Every request needs the master's token. Its Host header must name the loopback interface: a web
page could otherwise reach the master by a DNS name that resolves to 127.0.0.1 (DNS rebinding). A
request that is refused here has its connection closed and its body unread. Other bodies are read
up to a maximum size, and with a timeout for each part.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from det_jupyter.contract.messages import BACKGROUND
from det_jupyter.master.http.responses import closing_refusal

logger = logging.getLogger(__name__)

MOST_BODY_BYTES = 64 * 1024 * 1024
BODY_S = 30.0  # the longest pause between two parts of a body
_TOO_LARGE = f"the request is too large; expected at most {MOST_BODY_BYTES >> 20} MB"
_BACKGROUND = BACKGROUND.encode()
_LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}


class BoundedBody:
    """Receives a request's body, bounded in size and time."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._num_bytes = 0
        self._is_complete = False

    async def __call__(self) -> Message:
        if self._is_complete:  # the next message is that the client has disconnected
            return await self._receive()
        try:
            async with asyncio.timeout(BODY_S):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                408, f"the rest of the request's body has not come for {BODY_S:g} s; send it again"
            ) from None
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes > MOST_BODY_BYTES:
            raise HTTPException(413, _TOO_LARGE, headers={"connection": "close"})
        self._is_complete = not message.get("more_body", False)
        return message


class Guard:
    """ASGI middleware that checks requests, and measures the time since the last of a user."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._authorization = f"Bearer {token}".encode()
        self._last_request_at = time.monotonic()
        self._num_open = 0  # open requests of users, including those that follow the feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if host.rpartition(":")[0] not in _LOOPBACK and host not in _LOOPBACK:
            problem = f"Host: got {host[:100]!r}, expected 127.0.0.1 or localhost"
            await closing_refusal(403, problem)(scope, receive, send)
        elif not hmac.compare_digest(headers.get(b"authorization", b""), self._authorization):
            problem = "Authorization: expected the token that the master's file names"
            await closing_refusal(401, problem)(scope, receive, send)
        elif problem := too_large(headers):
            await closing_refusal(413, problem)(scope, receive, send)
        else:
            is_of_user = "/agents/" not in scope["path"] and _BACKGROUND not in headers
            await self._serve(scope, receive, send, is_of_user)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, is_of_user: bool) -> None:
        self._num_open += is_of_user
        try:
            await self._app(scope, BoundedBody(receive), send)
        except Exception:  # the app has answered it, unless a response had begun
            logger.exception("%s %s failed", scope["method"], scope["path"])
        finally:
            if is_of_user:
                self._num_open -= 1
                self._last_request_at = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last request of a user ended; 0 while one is open."""
        return 0.0 if self._num_open else time.monotonic() - self._last_request_at


def too_large(headers: Mapping[bytes, bytes]) -> str:
    """Return why a body of the Content-Length is refused; "" if it is accepted."""
    length = headers.get(b"content-length", b"")
    # Without the header, BoundedBody counts the bytes.
    is_large = length.isdigit() and int(length) > MOST_BODY_BYTES
    return _TOO_LARGE if is_large else ""
