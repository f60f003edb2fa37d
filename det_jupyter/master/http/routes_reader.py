"""The route that ends a reader which does not answer."""

from __future__ import annotations

from fastapi import APIRouter, Response

from det_jupyter.contract.messages import Wire
from det_jupyter.master.background.reader_process import ReaderProcess
from det_jupyter.master.http.responses import JsonResponse, new_routes


def reader_routes(reader: ReaderProcess) -> APIRouter:
    """Return the route."""
    routes = new_routes()

    @routes.post("/reader/end", response_model=Wire)
    async def end() -> Response:
        """Kill the running reader, if there is one; the next connection starts another."""
        await reader.kill()
        return JsonResponse(Wire())

    return routes
