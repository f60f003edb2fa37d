"""Routes for measured numbers over time, in the resolution of a picture."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query, Response

from det_jupyter.contract.messages import SeriesPage, SeriesQuery, TakeSamples
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.errors import ConfigError, NotFound, Problem
from det_jupyter.master.http.answers import JsonResponse, new_routes
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.service.service import Service

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
        if query.of == "system" and query.axis != "time":
            raise ConfigError(
                Problem("axis", "got batches; samples of the system are taken by time")
            )
        return await asyncio.to_thread(_read, service, trial, query)

    @routes.get("/agents/{agent_id}/series", response_model=SeriesPage)
    async def of_agent(agent_id: str, query: Annotated[SeriesQuery, Query()]) -> Response:
        """Return what an agent's machine was measured to do."""
        state = service.machine.state
        if agent_id not in state.agents and agent_id not in state.lost_agents:
            known = ", ".join(sorted(state.agents)) or "none"
            raise NotFound(f"there is no agent {agent_id}; those are: {known}")
        if query.of != "system" or query.axis != "time":
            raise ConfigError(
                Problem("of", f"got {query.of} by {query.axis}; an agent has system by time")
            )
        watch(agent_id)
        return await asyncio.to_thread(_read, service, agent_id, query)

    return routes


def _read(service: Service, of: Trial | str, query: SeriesQuery) -> Response:
    """Answer in another thread, of a trial or an agent."""
    # numpy is imported by the first thread that needs it: the master's start does not wait for it.
    from det_jupyter.master.service.series_reading import read_agent, read_trial

    path = service.store.path
    if isinstance(of, str):
        return JsonResponse(read_agent(path, of, query))
    return JsonResponse(read_trial(path, of.id, query, ended_at=of.ended_at))
