"""Responses of all routes: JSON, JSON lines, and a Refusal for every error."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.disk_space import folder_without_room, is_no_room
from det_jupyter.contract.messages import Refusal
from det_jupyter.contract.values.text import error_text, printable
from det_jupyter.errors import DetError, NotFound, Problem, http_status
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

API = "/api/v1"
# Responses of each route in the OpenAPI document. If these named the class, FastAPI would build a
# validator of it for each route when a master starts.
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}}
    for status in ("4XX", "5XX")
}
_CHUNK_CHARS = 1 << 20
_DISK_CHECK_VALID_S = 2.0
_DISK_CHECK_TIMEOUT_S = 2.0
_INSUFFICIENT_STORAGE = 507


class _StrictRequest(Request):
    """A request whose body must be standard JSON.

    Python's json module also accepts lone surrogates, which can be neither sent nor stored.
    """

    async def json(self) -> Any:
        body = await self.body()
        try:
            return from_json(body)
        except ValueError as error:
            raise HTTPException(400, f"the request's body is not JSON: {error}") from None


class _StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


def new_routes() -> APIRouter:
    """Return a router whose routes refuse bodies that are not standard JSON."""
    return APIRouter(prefix=API, route_class=_StrictRoute, responses=REFUSALS)


def add_routes(app: FastAPI, *routers: APIRouter) -> None:
    """Add the routes of routers.

    FastAPI's `include_router` would build each a second time ([m] 60 ms at the first request).
    """
    for router in routers:
        app.router.routes.extend(router.routes)


class JsonResponse(Response):
    """One or more wire messages as JSON.

    pydantic serializes them: it is faster than FastAPI's encoder, and writes NaN as a string.
    """

    media_type = "application/json"

    def __init__(self, content: BaseModel | Sequence[BaseModel], status_code: int = 200) -> None:
        if isinstance(content, BaseModel):
            text = content.model_dump_json()
        else:
            text = "[" + ",".join(item.model_dump_json() for item in content) + "]"
        super().__init__(text, status_code)


def streamed_list(items: Iterable[BaseModel]) -> StreamingResponse:
    """Return a response with a JSON list, sent in chunks while `items` is iterated in a thread."""

    def chunks() -> Iterator[str]:
        chunk = "["
        for index, item in enumerate(items):
            chunk += f"{',' if index else ''}{item.model_dump_json()}"
            if len(chunk) > _CHUNK_CHARS:
                yield chunk
                chunk = ""
        yield f"{chunk}]"

    return StreamingResponse(chunks(), media_type="application/json")


class LinesResponse(StreamingResponse):
    """An endless response: JSON lines, sent until the client disconnects."""

    media_type = "application/x-ndjson"

    async def stream_response(self, send: Send) -> None:
        """Send the lines, then close their generator, which Starlette leaves open."""
        async with aclosing(self.body_iterator):  # type: ignore[type-var]  # a generator
            await super().stream_response(send)


def refusal(
    status_code: int, error: str, problems: Sequence[Problem | str], **missing: Any
) -> JsonResponse:
    """Return the response to a request that is refused.

    Args:
        status_code: The HTTP status.
        error: Name of the exception class that the client raises.
        problems: The problems; a string is a problem without a path in the request.
        missing: `what` and `number` of the Refusal, if the URL has an id that does not exist.
    """
    found = [Problem("", each) if isinstance(each, str) else each for each in problems]
    cleaned = [  # problems quote the request, which may contain control characters
        replace(
            each,
            path=printable(each.path),
            text=printable(each.text),
            in_yaml=printable(each.in_yaml),
        )
        for each in found
    ]
    return JsonResponse(Refusal(error=error, problems=cleaned, **missing), status_code)


def closing_refusal(status_code: int, problem: str) -> JsonResponse:
    """Return a refusal after which the connection is closed, with the rest of the body unread."""
    response = refusal(status_code, "DetError", [problem])
    response.headers["connection"] = "close"
    return response


class DiskSpace:
    """Checks in a thread whether the master's folders have free space, and caches the result.

    Args:
        folder: The data directory; named in the message when its drive does not respond.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # The running check. There is one at a time, as it may block its thread.
        self._check: asyncio.Task[str] | None = None
        self._checked_at = 0.0

    async def problem(self, *, max_age_s: float = _DISK_CHECK_VALID_S) -> str:
        """Return a message about a full folder or a drive that does not respond; "" if none is.

        Args:
            max_age_s: Greatest age of an earlier result that may be returned.
        """
        is_old = time.monotonic() - self._checked_at > max_age_s
        if self._check is None or (self._check.done() and is_old):
            self._check = asyncio.create_task(asyncio.to_thread(paths.find_full_folder))
            self._checked_at = time.monotonic()
        done, _ = await asyncio.wait({self._check}, timeout=_DISK_CHECK_TIMEOUT_S)
        if done:
            return self._check.result()
        lasts_s = time.monotonic() - self._checked_at
        return f"the drive of {self._folder} has not answered for {lasts_s:.0f} s"


def add_error_handlers(app: FastAPI, disk_space: DiskSpace, service: Service) -> None:
    """Make the application answer every exception with a Refusal."""
    app.state.disk_space, app.state.service = disk_space, service
    app.add_exception_handler(DetError, _on_det_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(OSError, _on_full_disk)
    app.add_exception_handler(sqlite3.OperationalError, _on_full_disk)
    app.add_exception_handler(Exception, _on_unexpected_error)


async def _on_full_disk(request: Request, error: Exception) -> Response:
    """Answer with the folder whose disk is full; raise errors of other causes again."""
    if not is_no_room(error):
        raise error
    where = folder_without_room(error)
    full = f"nothing can be written in {where}: its disk is full; make room there" if where else ""
    problem = (
        full
        or await request.app.state.disk_space.problem(max_age_s=0)
        or f"a disk was full: {error_text(error)}"
    )
    logger.warning("%s %s: %s", request.method, request.url.path, problem)
    return refusal(_INSUFFICIENT_STORAGE, "DetError", [problem])


async def _on_det_error(request: Request, error: Exception) -> Response:
    status = http_status(error)
    problems = getattr(error, "problems", None) or [str(error)]
    missing = _missing_number(request) if isinstance(error, NotFound) else {}
    return refusal(status, type(error).__name__, problems, **missing)


def _missing_number(request: Request) -> dict[str, Any]:
    """Return a Refusal's `what` and `number` if the URL has an id that does not exist."""
    state = request.app.state.service.machine.state
    named = {**request.query_params, **request.path_params}
    for what, existing in (("experiment", state.experiments), ("trial", state.trials)):
        number = named.get(f"{what}_id")
        if number is not None and int(number) not in existing:
            return {"what": what, "number": int(number)}
    return {}


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = []
    for details in error.errors():
        path = ".".join(str(part) for part in details["loc"][1:]) or str(details["loc"][0])
        problems.append(Problem(path, f"got {details['input']!r:.60}; {details['msg']}"))
    return refusal(422, "ConfigError", problems)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    name = "NotFound" if error.status_code == 404 else "DetError"
    problem = f"{request.method} {request.url.path}: {error.detail}"
    response = refusal(error.status_code, name, [problem])
    response.headers.update(error.headers or {})
    return response


async def _on_unexpected_error(request: Request, error: Exception) -> Response:
    what = f"{request.method} {request.url.path}"
    problem = f"{what}: {error_text(error)}; the master's log has more"
    return refusal(500, "DetError", [problem])
