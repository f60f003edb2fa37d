"""Routes for the master itself, its agents, and pools, slots and queues."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response

from det_jupyter.config.pools import DEFAULT_POOL
from det_jupyter.contract.messages import (
    AgentStatus,
    ClusterView,
    DiskStatus,
    ExperimentQuery,
    JobEntry,
    MasterInfo,
    Reason,
    State,
    Wire,
)
from det_jupyter.contract.messages.status import api_name
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.errors import Problem
from det_jupyter.master.http.responses import DiskSpace, JsonResponse, new_routes
from det_jupyter.master.machine.rules.queue_checks import find_pool_problem
from det_jupyter.master.service.service import Service
from det_jupyter.master.views.pool_views import job_entries

_QUEUE_SHOWN = 50  # waiting trials of each pool in an answer, if no other number is requested
_MOST_WAITING = 1000
_ACTIVE = ExperimentQuery(
    state=[state for state in State if not state.is_terminal], archived=True, sort="oldest"
)
Limit = Annotated[int, Query(ge=0, le=_MOST_WAITING)]


class Stop(Wire):
    """A request to stop the master."""

    everything: bool = False  # also kill running trials; else they continue under their agent


class ActiveExperiment(Wire):
    """An experiment that is not over, in brief."""

    id: int
    name: str
    state: str  # RUNNING, QUEUED, and so on (messages/status.py)
    progress: float
    num_trials: int


class Status(Wire):
    """A master, its agents, and the experiments that are not over."""

    master: MasterInfo
    agents: list[AgentStatus]
    experiments: list[ActiveExperiment]
    num_experiments: int  # number of all experiments, including those that are over
    problems: list[str] = []  # sentences on pools.yaml, agents and full disks
    disks: list[DiskStatus] = []  # disks that are full, or will soon be full


class Possibility(Wire):
    """Whether trials can run in a pool."""

    problem: Problem | None  # None: trials can run


def master_routes(
    service: Service, info: MasterInfo, request_stop: Callable[[bool], None], disk_space: DiskSpace
) -> APIRouter:
    """Return the routes."""
    routes = new_routes()
    public = info.model_copy(update={"token": ""})

    @routes.get("/master", response_model=MasterInfo)
    async def master() -> Response:
        """Return the master's address, process and version."""
        return JsonResponse(public)

    @routes.get("/status", response_model=Status)
    async def status() -> Response:
        """Return the master, its agents, and the experiments that are not over."""
        full = await disk_space.problem()
        return JsonResponse(
            Status(
                master=public,
                agents=service.views.agents(),
                experiments=[
                    ActiveExperiment.built_from(row, state=api_name(row.status))
                    for row in service.views.find(_ACTIVE).rows
                ],
                num_experiments=len(service.machine.state.experiments),
                problems=[*service.problems, *([full] if full else [])],
                disks=service.disks.warnings(time.time()),
            )
        )

    @routes.post("/master/stop", response_model=MasterInfo)
    async def stop(body: Stop) -> Response:
        """Answer, then stop the master."""
        request_stop(body.everything)
        return JsonResponse(public)

    return routes


def cluster_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/cluster", response_model=ClusterView)
    async def cluster(limit: Limit = _QUEUE_SHOWN, experiment_id: Whole | None = None) -> Response:
        """Return all pools with their agents, and the trials that hold slots or wait for them."""
        return JsonResponse(service.views.cluster(limit=limit, experiment_id=experiment_id))

    @routes.get("/jobs", response_model=list[JobEntry])
    async def jobs() -> Response:
        """Return the experiments that are not over, in the order of the queue."""
        return JsonResponse(job_entries(service.machine))

    @routes.get("/trials/{trial_id}/reason", response_model=Reason)
    async def reason(trial_id: Whole) -> Response:
        """Return why a trial does not run, and the remedies that would start it."""
        return JsonResponse(service.views.reason(trial_id))

    @routes.get("/possible", response_model=Possibility)
    async def possible(
        slots: Annotated[Whole, Query(ge=0)], pool: str = "", is_single_agent: bool = False
    ) -> Response:
        """Return why a pool cannot run trials with this many slots; no problem if it can."""
        state, name = service.machine.state, pool or DEFAULT_POOL
        if name not in state.pool_configs:
            names = ", ".join(state.pool_configs)
            unknown = Problem("", f"there is no pool {name!r}, but {names}")
            return JsonResponse(Possibility(problem=unknown))
        problem = find_pool_problem(state, name, slots, is_single_agent=is_single_agent)
        return JsonResponse(Possibility(problem=problem))

    return routes
