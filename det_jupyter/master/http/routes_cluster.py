"""Routes for pools, slots and queues: what holds them, why trials wait, and changes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from det_jupyter.bounds import Whole
from det_jupyter.config.pools import DEFAULT_POOL, parse_pools
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.master.http.answers import JsonResponse, new_routes
from det_jupyter.master.machine.core.requests import (
    MoveRequested,
    PoolsSet,
    QueueChangesRequested,
    ResourcesChangeRequested,
    SlotsSwitched,
)
from det_jupyter.master.machine.rules.queue_checks import find_queue_problems
from det_jupyter.master.service.pools_file import read_pools, write_pools
from det_jupyter.master.service.service import Service
from det_jupyter.master.views.cluster import agent_status, job_entries
from det_jupyter.wire import (
    AgentStatus,
    ChangeQueue,
    ChangeResources,
    ClusterView,
    ExperimentView,
    JobEntry,
    MoveInQueue,
    PoolStatus,
    Reason,
    SetPools,
    SwitchSlots,
    TaskEntry,
    Wire,
)


class Possibility(Wire):
    """Whether something can run; None: it can."""

    problem: Problem | None


_FRONT = 50  # waiting trials of each pool, unless asked for more
_MOST = 1000
Limit = Annotated[int, Query(ge=0, le=_MOST)]


def cluster_routes(service: Service) -> APIRouter:
    """Return the routes; to be asked before those for experiments, whose verbs are any word."""
    routes = new_routes()
    _add_questions(routes, service)
    _add_changes(routes, service)
    return routes


def _add_questions(routes: APIRouter, service: Service) -> None:
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
        pools, name = service.machine.pools, pool or DEFAULT_POOL
        if name not in pools.configs:
            known = ", ".join(pools.configs)
            unknown = Problem("", f"there is no pool {name!r}, but {known}")
            return JsonResponse(Possibility(problem=unknown))
        said = pools.find_impossibility(name, slots, is_single_agent=is_single_agent)
        problem = Problem("resources.slots_per_trial", said) if said else None
        return JsonResponse(Possibility(problem=problem))

    @routes.get("/pools", response_model=list[PoolStatus])
    async def pools() -> Response:
        """Return the pools with their agents and slots."""
        return JsonResponse(service.views.pools())


def _add_changes(routes: APIRouter, service: Service) -> None:
    @routes.put("/pools", response_model=list[PoolStatus])
    async def set_pools(request: SetPools) -> Response:
        """Replace all pools by these."""
        parsed = parse_pools({"pools": request.pools})
        before = read_pools()  # raises if the file is being edited and wrong: nothing changes
        pools = [pool.model_dump(mode="json") for pool in parsed.pools]
        service.apply(PoolsSet(pools=pools))
        write_pools(pools, before)
        service.file_problems = []
        return JsonResponse(service.views.pools())

    @routes.post("/experiments/{experiment_id}/resources", response_model=ExperimentView)
    async def resources(experiment_id: Whole, change: ChangeResources) -> Response:
        """Give an experiment another priority, weight, limit or pool."""
        service.apply(ResourcesChangeRequested(experiment_id=experiment_id, change=change))
        return JsonResponse(service.views.experiment(experiment_id))

    @routes.post("/experiments/{experiment_id}/move", response_model=ExperimentView)
    async def move(experiment_id: Whole, move: MoveInQueue) -> Response:
        """Put an experiment ahead of or behind another one."""
        service.apply(MoveRequested(experiment_id=experiment_id, move=move))
        return JsonResponse(service.views.experiment(experiment_id))

    @routes.post("/queue", response_model=list[ExperimentView])
    async def change_queue(request: ChangeQueue) -> Response:
        """Make all changes or none; return the experiment of each."""
        machine = service.machine
        if not request.dry_run:
            service.apply(QueueChangesRequested(changes=request.changes))
        elif problems := find_queue_problems(machine.state, machine.pools, request.changes):
            raise ConfigError(problems)
        return JsonResponse(
            [service.views.experiment(change.experiment_id) for change in request.changes]
        )

    @routes.post("/agents/{agent_id}/slots", response_model=AgentStatus)
    async def slots(agent_id: str, switch: SwitchSlots) -> Response:
        """Disable or enable slots of an agent."""
        service.apply(SlotsSwitched(agent_id=agent_id, switch=switch))
        agent = service.machine.state.agents[agent_id]
        return JsonResponse(agent_status(service.machine, agent, service.links.is_connected))
