"""Routes for results: curves, checkpoints, trials, timings and the feed."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response

from det_jupyter.contract.messages import (
    CheckpointView,
    Curve,
    FeedItem,
    TimingsView,
    TrialView,
)
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.errors import NotFound
from det_jupyter.master.http.answers import JsonResponse, LinesResponse, new_routes, streamed
from det_jupyter.master.service.feed import follow as follow_feed
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.stored_rows import read_metrics

HEARTBEAT_S = 15.0  # a follower gets a sign of life at least this often
_MAX_TIMINGS = 200  # records in one answer, each of about a second


def result_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/experiments/{experiment_id}/curves", response_model=list[Curve])
    async def curves(
        experiment_id: Whole, max_points: Annotated[Whole | None, Query(ge=4)] = None
    ) -> Response:
        """Return every metric of every trial, each thinned to `max_points`."""
        service.machine.state.experiment(experiment_id)
        return await asyncio.to_thread(_read_curves, service, experiment_id, max_points)

    @routes.get("/trials/holding", response_model=list[TrialView])
    async def holding() -> Response:
        """Return the trials that hold slots."""
        return JsonResponse(service.views.holding())

    @routes.get("/trials/{trial_id}", response_model=TrialView)
    async def trial(trial_id: Whole) -> Response:
        """Return one trial."""
        return JsonResponse(service.views.trial(trial_id))

    @routes.get("/trials/{trial_id}/timings", response_model=list[TimingsView])
    async def timings(trial_id: Whole, after: Whole = 0) -> Response:
        """Return how long the parts of a trial's batches took, where that is recorded."""
        service.machine.state.trial(trial_id)
        return JsonResponse(service.store.timings(trial_id, after=after, limit=_MAX_TIMINGS))

    @routes.get("/feed", response_model=FeedItem)
    async def feed(
        after: Whole = 0,
        experiment_id: Whole | None = None,
        follow: bool = False,
        brief: bool = False,
    ) -> Response:
        """Stream what happened after number `after` as JSON lines; with `follow`, without end.

        With `brief`, items have no data, and metrics are left out.
        """
        if experiment_id is not None:
            service.machine.state.experiment(experiment_id)
        lines = follow_feed(
            service.store.feed,
            service.bell,
            after=after,
            experiment_id=experiment_id,
            is_endless=follow,
            heartbeat_s=HEARTBEAT_S,
            is_brief=brief,
        )
        return LinesResponse(lines)

    _add_checkpoints(routes, service)
    return routes


def _add_checkpoints(routes: APIRouter, service: Service) -> None:
    @routes.get("/experiments/{experiment_id}/checkpoints", response_model=list[CheckpointView])
    async def checkpoints(experiment_id: Whole) -> Response:
        """Return the checkpoints of an experiment, oldest first."""
        service.machine.state.experiment(experiment_id)
        found = service.machine.state.checkpoints.values()
        own = sorted(
            (c for c in found if c.experiment_id == experiment_id),
            key=lambda c: (c.created_at, c.steps_completed),
        )
        return JsonResponse(own)

    @routes.get("/checkpoints/{uuid}", response_model=CheckpointView)
    async def checkpoint(uuid: str) -> Response:
        """Return one checkpoint, of any experiment."""
        found = service.machine.state.checkpoints.get(uuid)
        if found is None:
            raise NotFound(f"there is no checkpoint {uuid}")
        return JsonResponse(found)


def _read_curves(service: Service, experiment_id: int, max_points: int | None) -> Response:
    """Read in another thread: of a long experiment it takes a second or so; numpy even more."""
    from det_jupyter.master.views.metric_curves import to_curves

    records = read_metrics(service.store.path, experiment_id)
    return streamed(to_curves(records, max_points=max_points))
