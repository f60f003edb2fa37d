"""The master's HTTP interface, put together. Its OpenAPI document is the contract with others."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI

from det_jupyter._version import __version__
from det_jupyter.contract.messages import MasterInfo, Refusal
from det_jupyter.master.http.answers import Room, add_refusals
from det_jupyter.master.http.guard import Guard
from det_jupyter.master.http.routes_changes import change_routes
from det_jupyter.master.http.routes_cluster import cluster_routes
from det_jupyter.master.http.routes_experiments import experiment_routes
from det_jupyter.master.http.routes_logs import log_routes
from det_jupyter.master.http.routes_master import master_routes
from det_jupyter.master.http.routes_results import result_routes
from det_jupyter.master.http.routes_search import search_routes
from det_jupyter.master.http.routes_series import series_routes
from det_jupyter.master.service.service import Service

API = "/api/v1"


def create_app(
    service: Service, info: MasterInfo, *, request_stop: Callable[[bool], None]
) -> Guard:
    """Return the ASGI application.

    Args:
        info: The master's; every request must bring its token.
        request_stop: Called to have the program end: with everything that runs (True), or so that
            running trials go on (False).
    """
    app = FastAPI(
        title="det_jupyter master",
        version=__version__,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        responses={"4XX": {"model": Refusal}, "5XX": {"model": Refusal}},
    )
    room = Room(info.data_dir)
    add_refusals(app, room, service)
    app.include_router(master_routes(service, info, request_stop, room), prefix=API)
    for routes in (
        change_routes,
        search_routes,
        cluster_routes,
        experiment_routes,
        result_routes,
        log_routes,
        series_routes,
    ):
        app.include_router(routes(service), prefix=API)
    return Guard(app, info.token)
