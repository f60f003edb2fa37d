"""Routes for checks of the connections to agents on other computers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from det_jupyter.contract.messages import CheckAgents, ClusterCheck, ConnectionsChecked, Wire
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.service.connection_checks import ConnectionChecks

_MOST_BYTES = 16 * 2**20
NumBytes = Annotated[Whole, Query(ge=0, le=_MOST_BYTES)]


def checked_agent_routes(checks: ConnectionChecks) -> APIRouter:
    """Return the routes that agents use to measure a connection."""
    routes = new_routes()

    @routes.get("/agents/{agent_id}/probe")
    async def probe(agent_id: str, num_bytes: NumBytes) -> Response:
        """Return this number of bytes."""
        return Response(bytes(num_bytes), media_type="application/octet-stream")

    @routes.post("/agents/{agent_id}/probe", response_model=Wire)
    async def take_bytes(agent_id: str, body: Request) -> Response:
        """Read the body, and discard it."""
        await body.body()
        return JsonResponse(Wire())

    @routes.post("/agents/{agent_id}/checks/{check_id}", response_model=Wire)
    async def checked(agent_id: str, check_id: str, body: ConnectionsChecked) -> Response:
        """Store the measurements of an agent."""
        checks.take(agent_id, check_id, body)
        return JsonResponse(Wire())

    return routes


def check_routes(checks: ConnectionChecks) -> APIRouter:
    """Return the routes with which users check connections."""
    routes = new_routes()

    @routes.post("/agents/check", response_model=ClusterCheck)
    async def check(body: CheckAgents) -> Response:
        """Measure the connections of all agents on other computers."""
        return JsonResponse(await checks.check(body.folder))

    return routes
