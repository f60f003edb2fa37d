"""Routes by which agents on other computers carry connections to the kernels of their ranks."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from det_jupyter.contract.messages import RankKernel, Wire
from det_jupyter.master.http.responses import API, JsonResponse, LinesResponse, new_routes
from det_jupyter.master.service.consoles import Consoles


class _BytesResponse(LinesResponse):
    media_type = "application/octet-stream"


def tunnel_routes(consoles: Consoles) -> APIRouter:
    """Return the routes.

    The bodies of tunnels are limited neither in size nor in time (`is_tunnel`).
    """
    routes = new_routes()

    @routes.post("/agents/{agent_id}/kernels", response_model=Wire)
    async def kernel(agent_id: str, session: str, kernel: RankKernel) -> Response:
        """Accept connections to the kernel of a rank on this agent."""
        await consoles.open(agent_id, session, kernel)
        return JsonResponse(Wire())

    @routes.get("/agents/{agent_id}/tunnels/{tunnel_id}")
    async def down(agent_id: str, tunnel_id: str) -> Response:
        """Stream the bytes for the kernel, until the tunnel ends."""
        tunnel = consoles.tunnels.join(agent_id, tunnel_id, "down")
        return _BytesResponse(tunnel.bytes_down())

    @routes.post("/agents/{agent_id}/tunnels/{tunnel_id}", response_model=Wire)
    async def up(agent_id: str, tunnel_id: str, body: Request) -> Response:
        """Receive the bytes from the kernel, until the tunnel ends."""
        tunnel = consoles.tunnels.join(agent_id, tunnel_id, "up")
        is_complete = await tunnel.write_up(body.stream())
        response = JsonResponse(Wire())
        if not is_complete:  # nothing else can be sent on this connection
            response.headers["connection"] = "close"
        return response

    return routes


def is_tunnel(path: str) -> bool:
    """Return whether a path of the listener for agents belongs to a tunnel."""
    parts = path.removeprefix(f"{API}/agents/").split("/")
    return len(parts) == 3 and parts[1] == "tunnels"
