"""Routes for agents, and the list of them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from det_jupyter.master.http.answers import JsonResponse, LinesResponse, new_routes
from det_jupyter.master.service.service import Service
from det_jupyter.wire import AgentCommand, AgentReports, AgentView, Knock, Offsets, RegisterAgent

HEARTBEAT_S = 5.0  # an agent that receives nothing for longer looks for another master


def agent_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/agents", response_model=list[AgentView])
    async def agents() -> Response:
        """Return the agents and what their slots do."""
        return JsonResponse(service.views.agents())

    @routes.post("/agents/{agent_id}/register", response_model=Offsets)
    async def register(agent_id: str, registration: RegisterAgent | Knock) -> Response:
        """Register an agent; return what is stored of the runs that it knows."""
        return JsonResponse(service.register(agent_id, registration))

    @routes.get("/agents/{agent_id}/commands", response_model=AgentCommand)
    async def commands(agent_id: str, session: str) -> Response:
        """Stream commands as JSON lines, without end."""
        link = service.links.get(agent_id, session)
        return LinesResponse(link.take(HEARTBEAT_S))

    @routes.post("/agents/{agent_id}/reports", response_model=Offsets)
    async def reports(agent_id: str, reports: AgentReports) -> Response:
        """Store a batch of reports; return what is stored of every file that it mentions."""
        return JsonResponse(service.take_reports(agent_id, reports))

    return routes
