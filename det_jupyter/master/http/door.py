"""Who may come in, and how answers leave: the parts of HTTP that all routes share.

Every request needs the token. It must also name us as the loopback, or a web page could reach us
by a DNS name of its own that it lets point here. A connection that is refused here is closed, and
the body of its request is not read; other bodies are read up to a size, and not for ever.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from det_jupyter.errors import (
    CaptureError,
    ConfigError,
    Conflict,
    DetError,
    MasterUnreachable,
    NotFound,
    ProtocolMismatch,
)
from det_jupyter.wire import Refusal
from det_jupyter.words import error_text, printable

logger = logging.getLogger(__name__)

MOST_BODY_BYTES = 64 * 1024 * 1024
BODY_S = 30.0  # the longest pause within the body of a request
_TOO_LARGE = f"the request is too large; expected at most {MOST_BODY_BYTES >> 20} MB"
_LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}
_STATUS: list[tuple[type[DetError], int]] = [
    (NotFound, 404),
    (Conflict, 409),
    (ProtocolMismatch, 409),
    (ConfigError, 422),
    (CaptureError, 422),
    (MasterUnreachable, 503),  # it is leaving: the client asks the next one
]


class _StrictRequest(Request):
    """A request whose body has to be JSON as others read it, too.

    Python's own reader takes half of a character for a character; nobody could be told of it, and
    no database would keep it.
    """

    async def json(self) -> Any:
        body = await self.body()
        try:
            return from_json(body)
        except ValueError as error:
            raise HTTPException(400, f"the body is no JSON: {error}") from None


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


def new_routes() -> APIRouter:
    """Return a router for routes of ours; they read their bodies strictly."""
    return APIRouter(route_class=_Route)


class JsonResponse(Response):
    """Messages of ours as JSON: pydantic writes them faster, and writes NaN so that it is JSON."""

    media_type = "application/json"

    def __init__(self, content: BaseModel | Sequence[BaseModel], status_code: int = 200) -> None:
        if isinstance(content, BaseModel):
            text = content.model_dump_json()
        else:
            text = "[" + ",".join(item.model_dump_json() for item in content) + "]"
        super().__init__(text, status_code)


class LinesResponse(Response):
    """An answer without an end: JSON lines, sent as they come until the other side is gone.

    Starlette's own does this too, but leaves open when the lines' generator is told of it.
    """

    media_type = "application/x-ndjson"

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        pump = asyncio.create_task(self._pump(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._lines) as lines:  # type: ignore[type-var]  # a generator
            async for part in lines:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def refusal(status_code: int, error: str, problems: Sequence[str]) -> JsonResponse:
    """Return the answer to a request that we do not carry out."""
    said = [printable(problem) for problem in problems]  # they quote it
    return JsonResponse(Refusal(error=error, problems=said), status_code)


def dismissal(status_code: int, problem: str) -> JsonResponse:
    """Return a refusal after which we hang up, whatever is still being sent."""
    response = refusal(status_code, "DetError", [problem])
    response.headers["connection"] = "close"
    return response


class _Body:
    """Hands the body of a request on, so much of it and not for ever."""

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
    """Lets requests with the token through to the app, and notes when people last asked."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._authorization = f"Bearer {token}".encode()
        self.last_request_at = time.monotonic()
        self.num_open = 0  # requests of people, followers among them

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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
        elif "/agents/" in scope["path"]:
            await self._serve(scope, receive, send)
        else:
            await self._serve_people(scope, receive, send)

    async def _serve_people(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_open += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self.num_open -= 1
            self.last_request_at = time.monotonic()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, _Body(receive), send)
        except Exception:  # answered already, unless an answer had begun
            logger.exception("%s %s failed", scope["method"], scope["path"])

    @property
    def idle_s(self) -> float:
        """For how long nobody has asked anything."""
        return 0.0 if self.num_open else time.monotonic() - self.last_request_at


def _announced_bytes(headers: Mapping[bytes, bytes]) -> int:
    length = headers.get(b"content-length", b"")
    return int(length) if length.isdigit() else 0  # what is not announced is counted


def add_refusals(app: FastAPI) -> None:
    """Have every error answered as a Refusal."""
    app.add_exception_handler(DetError, _on_refused)
    app.add_exception_handler(RequestValidationError, _on_malformed)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_unexpected)


async def _on_refused(request: Request, error: Exception) -> Response:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 400)
    problems = getattr(error, "problems", None) or [str(error)]
    return refusal(status, type(error).__name__, problems)


async def _on_malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = []
    for details in error.errors():
        path = ".".join(str(part) for part in details["loc"][1:]) or str(details["loc"][0])
        problems.append(f"{path}: got {details['input']!r:.60}; {details['msg']}")
    return refusal(422, "ConfigError", problems)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    name = "NotFound" if error.status_code == 404 else "DetError"
    problem = f"{request.method} {request.url.path}: {error.detail}"
    response = refusal(error.status_code, name, [problem])
    response.headers.update(error.headers or {})
    return response


async def _on_unexpected(request: Request, error: Exception) -> Response:
    what = f"{request.method} {request.url.path}"
    problem = f"{what}: {error_text(error)}; the master's log has more"
    return refusal(500, "DetError", [problem])
