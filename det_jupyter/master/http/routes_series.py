"""Routes for measured numbers over time, in the resolution of a picture."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query, Response

from det_jupyter.bounds import Whole
from det_jupyter.errors import ConfigError, NotFound
from det_jupyter.master.http.answers import JsonResponse, new_routes
from det_jupyter.master.machine.core.state import Trial
from det_jupyter.master.service.rows import read_metrics_of
from det_jupyter.master.service.service import Service
from det_jupyter.wire import SeriesPage, SeriesQuery, TakeSamples

WATCH_S = 30.0  # how long a machine is sampled once its series were asked for


def series_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()
    watched: dict[str, float] = {}  # when agents were last asked for samples, monotonic

    def watch(agent_id: str) -> None:
        """Have a machine sampled for a while, though nothing may train there."""
        now = time.monotonic()
        if now > watched.get(agent_id, 0.0) + WATCH_S / 3:
            watched[agent_id] = now
            service.links.send(agent_id, TakeSamples(for_s=WATCH_S))

    @routes.get("/trials/{trial_id}/series", response_model=SeriesPage)
    async def of_trial(trial_id: Whole, query: Annotated[SeriesQuery, Query()]) -> Response:
        """Return a trial's metrics, timings, or what its machines and processes did."""
        trial = service.machine.state.trial(trial_id)
        if query.of == "metrics":
            began_at = service.store.series.began_at(trial_id)  # the connection is this thread's
            return await asyncio.to_thread(_read_metrics, service, trial, query, began_at)
        if query.of == "system" and query.axis != "time":
            raise ConfigError(["axis: got batches; samples of the system are taken by time"])
        return await asyncio.to_thread(_read_trial, service, trial, query)

    @routes.get("/agents/{agent_id}/series", response_model=SeriesPage)
    async def of_agent(agent_id: str, query: Annotated[SeriesQuery, Query()]) -> Response:
        """Return what an agent's machine was measured to do."""
        state = service.machine.state
        if agent_id not in state.agents and agent_id not in state.lost_agents:
            known = ", ".join(sorted(state.agents)) or "none"
            raise NotFound(f"there is no agent {agent_id}; those are: {known}")
        if query.of != "system" or query.axis != "time":
            raise ConfigError([f"of: got {query.of} by {query.axis}; an agent has system by time"])
        watch(agent_id)
        return await asyncio.to_thread(_read_agent, service, agent_id, query)

    return routes


# numpy is imported by the first thread that needs it: the master's start does not wait for it.


def _read_metrics(
    service: Service, trial: Trial, query: SeriesQuery, began_at: float | None
) -> Response:
    from det_jupyter.master.views.curves import to_metric_series

    records = read_metrics_of(service.store.path, trial.id, query)
    series = to_metric_series(records, query)
    return JsonResponse(SeriesPage(series=series, began_at=began_at, ended_at=trial.ended_at))


def _read_trial(service: Service, trial: Trial, query: SeriesQuery) -> Response:
    from det_jupyter.master.service.series_reading import read_trial

    page = read_trial(service.store.path, trial.id, query, ended_at=trial.ended_at)
    return JsonResponse(page)


def _read_agent(service: Service, agent_id: str, query: SeriesQuery) -> Response:
    from det_jupyter.master.service.series_reading import read_agent

    return JsonResponse(read_agent(service.store.path, agent_id, query))
