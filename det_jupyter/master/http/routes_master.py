"""Routes about the master itself."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Response

from det_jupyter.master.http.answers import JsonResponse, new_routes
from det_jupyter.master.service.service import Service
from det_jupyter.wire import AgentView, MasterInfo, State, Wire


class Stop(Wire):
    """A request to end the master."""

    everything: bool = False  # else running trials go on under their agent


class ActiveExperiment(Wire):
    """An experiment that is not over, in brief."""

    id: int
    name: str
    state: State
    progress: float
    num_trials: int


class Status(Wire):
    """A master, its agents, and the experiments that are not over."""

    master: MasterInfo
    agents: list[AgentView]
    experiments: list[ActiveExperiment]
    num_experiments: int  # over or not
    problems: list[str] = []  # with files that people write for us


def master_routes(
    service: Service, info: MasterInfo, request_stop: Callable[[bool], None]
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
            ActiveExperiment(
                id=view.id,
                name=view.name,
                state=view.state,
                progress=view.progress,
                num_trials=len(view.trials),
            )
            for view in views
        ]
        return JsonResponse(
            Status(
                master=public,
                agents=service.views.agents(),
                experiments=active,
                num_experiments=len(service.machine.state.experiments),
                problems=service.problems,
            )
        )

    @routes.post("/master/stop", response_model=MasterInfo)
    async def stop(body: Stop) -> Response:
        """Answer, then end the master."""
        request_stop(body.everything)
        return JsonResponse(public)

    return routes
