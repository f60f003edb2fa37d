"""The master's HTTP application. Clients in other languages can use its OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastapi import APIRouter, FastAPI
from pydantic.json_schema import models_json_schema

from det_jupyter._version import __version__
from det_jupyter.contract.messages import MasterInfo, Refusal
from det_jupyter.master.http.guard import Guard
from det_jupyter.master.http.responses import API, DiskSpace, add_error_handlers, add_routes
from det_jupyter.master.http.routes_agents import agent_routes, unmanaged_routes
from det_jupyter.master.http.routes_changes import change_routes, describe_changes
from det_jupyter.master.http.routes_cluster import cluster_routes, master_routes
from det_jupyter.master.http.routes_experiments import experiment_routes
from det_jupyter.master.http.routes_models import model_routes
from det_jupyter.master.http.routes_results import result_routes
from det_jupyter.master.http.routes_search import search_routes
from det_jupyter.master.service.service import Service


class _Application(FastAPI):
    """Describes requests and refusals when the OpenAPI document is first asked for.

    Most masters are never asked; the descriptions take a third of the application's start.
    """

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            describe_changes(self.routes)
            _, refusal = models_json_schema(
                [(Refusal, "serialization")], ref_template="#/components/schemas/{model}"
            )
            super().openapi()["components"]["schemas"].update(refusal["$defs"])
        return super().openapi()


def create_app(
    service: Service,
    info: MasterInfo,
    *,
    request_stop: Callable[[bool], None],
    more_routes: Iterable[APIRouter] = (),
) -> Guard:
    """Return the ASGI application.

    Args:
        info: Describes the master; every request must carry its token.
        request_stop: Called to stop the program. Its argument is whether running trials are
            killed; else they continue under their agent.
        more_routes: Further routes.
    """
    app = _Application(
        title="det_jupyter master",
        version=__version__,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # its pages load scripts from the internet
        redoc_url=None,
    )
    disk_space = DiskSpace(info.data_dir)
    add_error_handlers(app, disk_space, service)
    add_routes(app, master_routes(service, info, request_stop, disk_space))
    for routes in (
        agent_routes,
        unmanaged_routes,
        change_routes,
        search_routes,
        cluster_routes,
        experiment_routes,
        result_routes,
        model_routes,
    ):
        add_routes(app, routes(service))
    add_routes(app, *more_routes)
    return Guard(app, info.token)
