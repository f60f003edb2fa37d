"""Routes about the master itself and its agents."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Response

from det_jupyter.contract.messages import (
    AgentCommand,
    AgentReports,
    AgentView,
    ExperimentView,
    MasterInfo,
    Offsets,
    OtherVersion,
    RegisterAgent,
    Wire,
)
from det_jupyter.contract.messages.status import api_name, experiment_status
from det_jupyter.master.http.answers import JsonResponse, LinesResponse, Room, new_routes
from det_jupyter.master.service.service import Service

HEARTBEAT_S = 5.0  # an agent that receives nothing for longer looks for another master


class Stop(Wire):
    """A request to end the master."""

    everything: bool = False  # else running trials go on under their agent


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
    agents: list[AgentView]
    experiments: list[ActiveExperiment]
    num_experiments: int  # over or not
    problems: list[str] = []  # with files that people write for us


def _state_of(view: ExperimentView) -> str:
    gangs = [trial.allocation.state for trial in view.trials if trial.allocation is not None]
    return api_name(experiment_status(view.state, gangs, len(view.trials)))


def master_routes(
    service: Service, info: MasterInfo, request_stop: Callable[[bool], None], room: Room
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
        views = service.views.experiments(only_active=True)
        active = [
            ActiveExperiment.built_from(v, state=_state_of(v), num_trials=len(v.trials))
            for v in views
        ]
        full = await room.problem()
        return JsonResponse(
            Status(
                master=public,
                agents=service.views.agents(),
                experiments=active,
                num_experiments=len(service.machine.state.experiments),
                problems=[*service.problems, *([full] if full else [])],
            )
        )

    @routes.post("/master/stop", response_model=MasterInfo)
    async def stop(body: Stop) -> Response:
        """Answer, then end the master."""
        request_stop(body.everything)
        return JsonResponse(public)

    @routes.get("/agents", response_model=list[AgentView])
    async def agents() -> Response:
        """Return the agents and what their slots do."""
        return JsonResponse(service.views.agents())

    @routes.post("/agents/{agent_id}/register", response_model=Offsets)
    async def register(agent_id: str, registration: RegisterAgent | OtherVersion) -> Response:
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
