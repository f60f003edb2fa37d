"""Routes that read the registry of models; its changes have those of messages/models.py."""

from __future__ import annotations

from fastapi import APIRouter, Response

from det_jupyter.contract.messages import ModelView
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.service.service import Service


def model_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/models", response_model=list[ModelView])
    async def models() -> Response:
        """Return all models with their versions, oldest first."""
        return JsonResponse(service.views.models())

    @routes.get("/models/{name}", response_model=ModelView)
    async def model(name: str) -> Response:
        """Return one model."""
        return JsonResponse(service.views.model(name))

    return routes
