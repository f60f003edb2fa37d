"""Routes for pools, slots and queues: what holds them, and why trials wait."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from det_jupyter.config.pools import DEFAULT_POOL
from det_jupyter.contract.messages import (
    ClusterView,
    JobEntry,
    PoolStatus,
    Reason,
    TaskEntry,
    Wire,
)
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.errors import Problem
from det_jupyter.master.http.answers import JsonResponse, new_routes
from det_jupyter.master.machine.rules.queue_checks import find_pool_problem
from det_jupyter.master.service.service import Service
from det_jupyter.master.views.pool_views import job_entries


class Possibility(Wire):
    """Whether something can run; None: it can."""

    problem: Problem | None


_FRONT = 50  # waiting trials of each pool, unless asked for more
_MOST = 1000
Limit = Annotated[int, Query(ge=0, le=_MOST)]


def cluster_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/cluster", response_model=ClusterView)
    async def cluster(limit: Limit = _FRONT, experiment_id: Whole | None = None) -> Response:
        """Return all pools, what holds which slots, and the fronts of the queues."""
        return JsonResponse(service.views.cluster(limit=limit, experiment_id=experiment_id))

    @routes.get("/jobs", response_model=list[JobEntry])
    async def jobs() -> Response:
        """Return the experiments that are not over, in the order in which they are served."""
        return JsonResponse(job_entries(service.machine))

    @routes.get("/tasks", response_model=list[TaskEntry])
    async def tasks(limit: Limit = _FRONT) -> Response:
        """Return the trials that hold slots, and the first of those that wait."""
        return JsonResponse(service.views.tasks(limit=limit))

    @routes.get("/trials/{trial_id}/reason", response_model=Reason)
    async def reason(trial_id: Whole) -> Response:
        """Return why a trial does not run, and what would start it."""
        return JsonResponse(service.views.reason(trial_id))

    @routes.get("/possible", response_model=Possibility)
    async def possible(
        slots: Annotated[Whole, Query(ge=0)], pool: str = "", is_single_agent: bool = False
    ) -> Response:
        """Return why a pool cannot run trials with this many slots, if it cannot."""
        state, name = service.machine.state, pool or DEFAULT_POOL
        if name not in state.pool_configs:
            known = ", ".join(state.pool_configs)
            unknown = Problem("", f"there is no pool {name!r}, but {known}")
            return JsonResponse(Possibility(problem=unknown))
        problem = find_pool_problem(state, name, slots, is_single_agent=is_single_agent)
        return JsonResponse(Possibility(problem=problem))

    @routes.get("/pools", response_model=list[PoolStatus])
    async def pools() -> Response:
        """Return the pools with their agents and slots."""
        return JsonResponse(service.views.pools())

    return routes
