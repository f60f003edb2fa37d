"""The master's HTTP application. Clients in other languages can use its OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fastapi import APIRouter, FastAPI

from det_jupyter._version import __version__
from det_jupyter.contract.messages import MasterInfo, Refusal
from det_jupyter.master.http.guard import Guard
from det_jupyter.master.http.responses import DiskSpace, add_error_handlers
from det_jupyter.master.http.routes_agents import agent_routes, unmanaged_routes
from det_jupyter.master.http.routes_changes import change_routes
from det_jupyter.master.http.routes_cluster import cluster_routes, master_routes
from det_jupyter.master.http.routes_experiments import experiment_routes
from det_jupyter.master.http.routes_models import model_routes
from det_jupyter.master.http.routes_results import result_routes
from det_jupyter.master.http.routes_search import search_routes
from det_jupyter.master.service.service import Service

API = "/api/v1"


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
    app = FastAPI(
        title="det_jupyter master",
        version=__version__,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # its pages load scripts from the internet
        redoc_url=None,
        responses={"4XX": {"model": Refusal}, "5XX": {"model": Refusal}},
    )
    disk_space = DiskSpace(info.data_dir)
    add_error_handlers(app, disk_space, service)
    app.include_router(master_routes(service, info, request_stop, disk_space), prefix=API)
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
        app.include_router(routes(service), prefix=API)
    for router in more_routes:
        app.include_router(router, prefix=API)
    return Guard(app, info.token)
