"""Answers of all routes: JSON, JSON lines, and refusals, as which every error is answered."""

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

_PART_CHARS = 1 << 20
_KEPT_S = 2.0  # of an answer whether there is room
_PATIENCE_S = 2.0  # for that answer
_NO_ROOM = 507  # Insufficient Storage


class _StrictRequest(Request):
    """A request whose body has to be JSON by the standard.

    Python's own reader accepts lone surrogates, which can be neither sent nor stored.
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
    """Return a router whose routes read their bodies strictly."""
    return APIRouter(route_class=_Route)


class JsonResponse(Response):
    """Wire messages as JSON, written by pydantic: faster, and with NaN as a string."""

    media_type = "application/json"

    def __init__(self, content: BaseModel | Sequence[BaseModel], status_code: int = 200) -> None:
        if isinstance(content, BaseModel):
            text = content.model_dump_json()
        else:
            text = "[" + ",".join(item.model_dump_json() for item in content) + "]"
        super().__init__(text, status_code)


def streamed(items: Iterable[BaseModel]) -> StreamingResponse:
    """Return the answer that is a JSON list, sent in parts as its items are made, in threads."""

    def parts() -> Iterator[str]:
        part = "["
        for index, item in enumerate(items):
            part += f"{',' if index else ''}{item.model_dump_json()}"
            if len(part) > _PART_CHARS:
                yield part
                part = ""
        yield f"{part}]"

    return StreamingResponse(parts(), media_type="application/json")


class LinesResponse(StreamingResponse):
    """An answer without an end: JSON lines, sent as they come until the other side is gone."""

    media_type = "application/x-ndjson"

    async def stream_response(self, send: Send) -> None:
        """Close the lines' generator at the end, which Starlette leaves open."""
        async with aclosing(self.body_iterator):  # type: ignore[type-var]  # a generator
            await super().stream_response(send)


def refusal(
    status_code: int, error: str, problems: Sequence[Problem | str], **missing: Any
) -> JsonResponse:
    """Return the answer to a request that is not carried out.

    Args:
        problems: What is wrong; a text is about the whole.
        missing: `what` and `number` of the Refusal, if the address names a number of nothing.
    """
    found = [Problem("", each) if isinstance(each, str) else each for each in problems]
    said = [  # they quote it
        replace(each, path=printable(each.path), text=printable(each.text)) for each in found
    ]
    return JsonResponse(Refusal(error=error, problems=said, **missing), status_code)


def dismissal(status_code: int, problem: str) -> JsonResponse:
    """Return a refusal after which the connection is closed, whatever is still being sent."""
    response = refusal(status_code, "DetError", [problem])
    response.headers["connection"] = "close"
    return response


class Room:
    """Whether our folders have room; a drive that does not answer holds nothing else up.

    Args:
        folder: Where our data are, to name it when its drive does not answer.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._look: asyncio.Task[str] | None = None  # one at a time: each may hold a thread
        self._looked_at = 0.0

    async def problem(self, *, kept_s: float = _KEPT_S) -> str:
        """Return which folder has no room, as of `kept_s` ago at most; "" if all have."""
        is_old = time.monotonic() - self._looked_at > kept_s
        if self._look is None or (self._look.done() and is_old):
            self._look = asyncio.create_task(asyncio.to_thread(paths.find_full_folder))
            self._looked_at = time.monotonic()
        done, _ = await asyncio.wait({self._look}, timeout=_PATIENCE_S)
        if done:
            return self._look.result()
        lasts_s = time.monotonic() - self._looked_at
        return f"the drive of {self._folder} has not answered for {lasts_s:.0f} s"


def add_refusals(app: FastAPI, room: Room, service: Service) -> None:
    """Have every error answered as a Refusal."""
    app.state.room, app.state.service = room, service
    app.add_exception_handler(DetError, _on_refused)
    app.add_exception_handler(RequestValidationError, _on_malformed)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(OSError, _on_no_room)
    app.add_exception_handler(sqlite3.OperationalError, _on_no_room)
    app.add_exception_handler(Exception, _on_unexpected)


async def _on_no_room(request: Request, error: Exception) -> Response:
    """Answer where a disk is full; other errors of these kinds are unexpected."""
    if not is_no_room(error):
        raise error
    where = folder_without_room(error)
    full = f"nothing can be written in {where}: its disk is full; make room there" if where else ""
    problem = (
        full
        or await request.app.state.room.problem(kept_s=0)
        or f"a disk was full: {error_text(error)}"
    )
    logger.warning("%s %s: %s", request.method, request.url.path, problem)
    return refusal(_NO_ROOM, "DetError", [problem])


async def _on_refused(request: Request, error: Exception) -> Response:
    status = http_status(error)
    problems = getattr(error, "problems", None) or [str(error)]
    missing = _missing(request) if isinstance(error, NotFound) else {}
    return refusal(status, type(error).__name__, problems, **missing)


def _missing(request: Request) -> dict[str, Any]:
    """Return the fields of a Refusal about the number in the address that nothing has."""
    state = request.app.state.service.machine.state
    named = {**request.query_params, **request.path_params}
    for what, known in (("experiment", state.experiments), ("trial", state.trials)):
        number = named.get(f"{what}_id")
        if number is not None and int(number) not in known:
            return {"what": what, "number": int(number)}
    return {}


async def _on_malformed(request: Request, error: Exception) -> Response:
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


async def _on_unexpected(request: Request, error: Exception) -> Response:
    what = f"{request.method} {request.url.path}"
    problem = f"{what}: {error_text(error)}; the master's log has more"
    return refusal(500, "DetError", [problem])
