"""Routes that say why readers fail, and that end a reader which does not answer."""

from __future__ import annotations

from fastapi import APIRouter, Response

from det_jupyter.contract.messages import Wire
from det_jupyter.master.background.reader_process import ReaderProcess
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.service.service import Service


class ReaderStatus(Wire):
    """Whether readers run as they should."""

    problem: str  # why readers fail one after the other; "": they do not


def reader_routes(service: Service, reader: ReaderProcess) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/reader", response_model=ReaderStatus)
    async def status() -> Response:
        """Return why readers fail, if they do."""
        return JsonResponse(ReaderStatus(problem=service.reader_problem))

    @routes.post("/reader/end", response_model=Wire)
    async def end() -> Response:
        """Kill the running reader, if there is one; the next connection starts another."""
        await reader.kill()
        return JsonResponse(Wire())

    return routes
