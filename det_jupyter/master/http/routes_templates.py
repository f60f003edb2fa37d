"""Routes for templates, and for the configurations that come of them."""

from __future__ import annotations

import json
import time

from fastapi import APIRouter, Response

from det_jupyter.bounds import Whole
from det_jupyter.master.http.answers import JsonResponse, new_routes
from det_jupyter.master.machine.rules.configurations import check_template, effective_config
from det_jupyter.master.service.service import Service
from det_jupyter.wire import EffectiveConfig, SetTemplate, TemplateView


def template_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()
    # Names take the rest of the path: one with a slash is then refused as a name, with a reason.
    one = "/templates/{name:path}"

    @routes.get("/templates", response_model=list[TemplateView])
    async def templates() -> Response:
        """Return all templates, sorted by name."""
        return JsonResponse(service.store.templates())

    @routes.get(one, response_model=TemplateView)
    async def template(name: str) -> Response:
        """Return one template."""
        return JsonResponse(service.find_template(name))

    @routes.put(one, response_model=TemplateView)
    async def set_template(name: str, body: SetTemplate) -> Response:
        """Store a template, or refuse it with everything that is wrong with it."""
        check_template(name, body.config)
        service.store.set_template(time.time(), name, json.dumps(body.config))
        return JsonResponse(service.find_template(name))

    @routes.delete(one, response_model=TemplateView)
    async def delete_template(name: str) -> Response:
        """Delete a template; return it as it was."""
        view = service.find_template(name)
        service.store.delete_template(name)
        return JsonResponse(view)

    @routes.get("/experiments/{experiment_id}/config", response_model=EffectiveConfig)
    async def config(experiment_id: Whole) -> Response:
        """Return an experiment's effective configuration, with the origin of each value."""
        return JsonResponse(effective_config(service.machine.state.experiment(experiment_id)))

    return routes
