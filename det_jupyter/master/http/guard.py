"""What every request passes before a route sees it: the token, our name, and the body's bounds.

Every request needs the token. It must also name us as the loopback, or a web page could reach us
by a DNS name of its own that it lets point here. A request that is refused here has its connection
closed and its body left unread; other bodies are read up to a size and with limited pauses.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from det_jupyter.master.http.answers import dismissal

logger = logging.getLogger(__name__)

MOST_BODY_BYTES = 64 * 1024 * 1024
BODY_S = 30.0  # the longest pause within the body of a request
_TOO_LARGE = f"the request is too large; expected at most {MOST_BODY_BYTES >> 20} MB"
_LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}


class _Body:
    """Passes the body of a request on, within bounds of size and time."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._num_bytes = 0
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:  # then the only news is that the other side is gone
            return await self._receive()
        try:
            async with asyncio.timeout(BODY_S):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, f"the body did not go on for {BODY_S:g} s") from None
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes > MOST_BODY_BYTES:
            raise HTTPException(413, _TOO_LARGE, headers={"connection": "close"})
        self._is_whole = not message.get("more_body", False)
        return message


class Guard:
    """Passes requests with the token on to the app, and notes when users last sent one."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._authorization = f"Bearer {token}".encode()
        self._last_request_at = time.monotonic()
        self._num_open = 0  # requests of users, followers among them

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if host.rpartition(":")[0] not in _LOOPBACK and host not in _LOOPBACK:
            problem = f"Host: got {host[:100]!r}, expected 127.0.0.1 or localhost"
            await dismissal(403, problem)(scope, receive, send)
        elif not hmac.compare_digest(headers.get(b"authorization", b""), self._authorization):
            problem = "Authorization: expected the token that the master's file names"
            await dismissal(401, problem)(scope, receive, send)
        elif _announced_bytes(headers) > MOST_BODY_BYTES:
            await dismissal(413, _TOO_LARGE)(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_users = "/agents/" not in scope["path"]
        self._num_open += is_users
        try:
            await self._app(scope, _Body(receive), send)
        except Exception:  # answered already, unless an answer had begun
            logger.exception("%s %s failed", scope["method"], scope["path"])
        finally:
            if is_users:
                self._num_open -= 1
                self._last_request_at = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last request of a user ended; 0 while one is open."""
        return 0.0 if self._num_open else time.monotonic() - self._last_request_at


def _announced_bytes(headers: Mapping[bytes, bytes]) -> int:
    length = headers.get(b"content-length", b"")
    return int(length) if length.isdigit() else 0  # what is not announced is counted
