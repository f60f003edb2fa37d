"""Routes for results of trials: metrics, timings, checkpoints, logs, series and the feed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from det_jupyter.contract.messages import (
    CheckpointView,
    Curve,
    FeedItem,
    ImportedLines,
    ImportedMetrics,
    LogPage,
    LogQuery,
    NumStored,
    SeriesPage,
    SeriesQuery,
    TakeSamples,
    TimingsView,
    TrialView,
    Wire,
)
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import ConfigError, NotFound, Problem
from det_jupyter.master.http.responses import (
    JsonResponse,
    new_routes,
    streamed_list,
)
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.stored_logs import read_page
from det_jupyter.master.service.storing.stored_rows import read_metrics

WATCH_S = 30.0  # how long an agent takes samples after its series were requested
_MAX_ITEMS = 500
_MAX_TIMINGS = 200  # records in one answer, each of about a second
# The longest wait: a commit while lines are being read does not wake the request up.
_LOG_WAIT_S = 0.5
_MOST_NAMED = 5  # trials in an error message


def result_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/experiments/{experiment_id}/curves", response_model=list[Curve])
    async def curves(
        experiment_id: Whole,
        max_points: Annotated[Whole | None, Query(ge=5)] = None,
        repeats: bool = False,
    ) -> Response:
        """Return every metric of every trial, each thinned to `max_points`.

        Of several values at one step the last one is returned, or all of them with `repeats`.
        """
        service.machine.state.experiment(experiment_id)
        return await asyncio.to_thread(_read_curves, service, experiment_id, max_points, repeats)

    @routes.get("/trials/{trial_id}", response_model=TrialView)
    async def trial(trial_id: Whole) -> Response:
        """Return one trial."""
        return JsonResponse(service.views.trial(trial_id))

    @routes.get("/trials/{trial_id}/timings", response_model=list[TimingsView])
    async def timings(trial_id: Whole, after: Whole = 0) -> Response:
        """Return how long the parts of a trial's batches took, if that was recorded."""
        service.machine.state.trial(trial_id)
        return JsonResponse(service.store.timings(trial_id, after=after, limit=_MAX_TIMINGS))

    @routes.post("/trials/{trial_id}/metrics", response_model=NumStored)
    async def add_imported(trial_id: Whole, body: ImportedMetrics) -> Response:
        """Store a part of the metrics of an imported trial; return how many lines are stored."""
        return JsonResponse(service.add_imported(trial_id, body))

    @routes.post("/trials/{trial_id}/logs", response_model=NumStored)
    async def add_imported_lines(trial_id: Whole, body: ImportedLines) -> Response:
        """Store a part of what an imported trial printed; return how many lines are stored."""
        return JsonResponse(service.add_imported(trial_id, body))

    @routes.get("/experiments/{experiment_id}/feed", response_model=list[FeedItem])
    async def feed(experiment_id: Whole, after: Whole = 0) -> Response:
        """Return the experiment's items of the feed after number `after`, the first 500."""
        service.machine.state.experiment(experiment_id)
        return JsonResponse(service.store.feed.after(after, experiment_id, _MAX_ITEMS))

    _add_checkpoints(routes, service)
    _add_logs(routes, service)
    _add_series(routes, service)
    return routes


def _add_checkpoints(routes: APIRouter, service: Service) -> None:
    @routes.get("/experiments/{experiment_id}/checkpoints", response_model=list[CheckpointView])
    async def checkpoints(experiment_id: Whole) -> Response:
        """Return the checkpoints of an experiment, oldest first."""
        service.machine.state.experiment(experiment_id)
        return JsonResponse(service.machine.state.checkpoints_of(experiment_id))

    @routes.get("/checkpoints", response_model=list[CheckpointView])
    async def matching(match: Annotated[str, Query(max_length=400)]) -> Response:
        """Return the checkpoints of all experiments that a pattern matches, oldest first.

        A pattern is UUID, EXPERIMENT/UUID or EXPERIMENT/TRIAL/UUID, as of names of files.
        """
        found = service.machine.state.checkpoints.values()
        chosen = [one for one in found if one.matches(match)]
        chosen.sort(key=lambda c: (c.created_at, c.steps_completed))
        return streamed_list(chosen)

    @routes.get("/checkpoints/{uuid}", response_model=CheckpointView)
    async def checkpoint(uuid: str) -> Response:
        """Return one checkpoint, of any experiment."""
        found = service.machine.state.checkpoints.get(uuid)
        if found is None:
            raise NotFound(f"there is no checkpoint {uuid}")
        return JsonResponse(found)


class _ExperimentLogQuery(LogQuery):
    trial_id: Whole | None = None


def _add_logs(routes: APIRouter, service: Service) -> None:
    def find_experiment(experiment_id: int) -> Experiment:
        return service.machine.state.experiment(experiment_id)

    def is_trial_over(trial_id: int) -> bool:
        trial = service.machine.state.trial(trial_id)
        return trial.state.is_terminal and trial.allocation is None

    @routes.get("/trials/{trial_id}/logs", response_model=LogPage)
    async def logs_of_trial(trial_id: Whole, query: Annotated[LogQuery, Query()]) -> Response:
        """Return lines that the ranks of a trial printed, of all its runs."""
        is_trial_over(trial_id)  # raises if there is no such trial
        return await _read_logs(service, [trial_id], query, lambda: is_trial_over(trial_id))

    @routes.get("/experiments/{experiment_id}/logs", response_model=LogPage)
    async def logs_of_experiment(
        experiment_id: Whole, query: Annotated[_ExperimentLogQuery, Query()]
    ) -> Response:
        """Return lines that the ranks of an experiment, or of one of its trials, printed."""
        own, trial_id = find_experiment(experiment_id).trial_ids, query.trial_id
        if trial_id is None:
            return await _read_logs(
                service, own, query, lambda: find_experiment(experiment_id).state.is_terminal
            )
        if trial_id not in own:
            problem = f"there is no trial {trial_id} in experiment {experiment_id}"
            named = listed(own, most=_MOST_NAMED)
            raise NotFound(f"{problem}; {f'it has: {named}' if own else 'it has none yet'}")
        return await _read_logs(service, [trial_id], query, lambda: is_trial_over(trial_id))


async def _read_logs(
    service: Service, trial_ids: Sequence[int], query: LogQuery, is_over: Callable[[], bool]
) -> Response:
    """Answer with the lines that match `query`; wait up to `query.wait_s` while there are none."""
    deadline = time.monotonic() + query.wait_s
    while True:
        # Read before the lines: when the end is stored, all lines are stored.
        over = is_over()
        page = await asyncio.to_thread(
            read_page, service.store.path, trial_ids, query, is_over=over
        )
        left_s = deadline - time.monotonic()
        if page.lines or over or left_s <= 0 or service.commits.is_closed:
            return JsonResponse(page)
        query = query.model_copy(update={"after": page.last_id})
        await service.commits.wait(min(left_s, _LOG_WAIT_S))


def _add_series(routes: APIRouter, service: Service) -> None:
    requested_at: dict[str, float] = {}  # by agent: when samples were last requested, monotonic

    def request_samples(agent_id: str) -> None:
        """Make an agent take samples for a while, even if nothing trains there."""
        now = time.monotonic()
        if now > requested_at.get(agent_id, 0.0) + WATCH_S / 3:
            requested_at[agent_id] = now
            service.links.send(agent_id, TakeSamples(for_s=WATCH_S))

    @routes.get("/trials/{trial_id}/series", response_model=SeriesPage)
    async def series_of_trial(trial_id: Whole, query: Annotated[SeriesQuery, Query()]) -> Response:
        """Return a trial's metrics, its timings, or samples of its machines and processes."""
        trial = service.machine.state.trial(trial_id)
        if query.of == "system" and query.axis != "time":
            raise ConfigError(
                Problem("axis", "got batches, expected time: the system is sampled by time")
            )
        return await asyncio.to_thread(_read_series, service, trial, query)

    @routes.post("/agents/{agent_id}/samples", response_model=Wire)
    async def take_samples(agent_id: str) -> Response:
        """Make an agent take samples for half a minute, as requests of its series do."""
        request_samples(agent_id)
        return JsonResponse(Wire())

    @routes.get("/agents/{agent_id}/series", response_model=SeriesPage)
    async def series_of_agent(agent_id: str, query: Annotated[SeriesQuery, Query()]) -> Response:
        """Return samples of an agent's machine."""
        state = service.machine.state
        if agent_id not in state.agents and agent_id not in state.lost_agents:
            present = ", ".join(sorted(state.agents)) or "none"
            raise NotFound(f"there is no agent {agent_id}; those are: {present}")
        if query.of != "system" or query.axis != "time":
            raise ConfigError(
                Problem("of", f"got {query.of} by {query.axis}, expected system by time")
            )
        request_samples(agent_id)
        return await asyncio.to_thread(_read_series, service, agent_id, query)


def _read_curves(
    service: Service, experiment_id: int, max_points: int | None, repeats: bool
) -> Response:
    """Read the curves; called in a thread: it takes a second or so for a long experiment."""
    # Imported by the first thread that needs numpy, so that the master's start does not wait for
    # it.
    from det_jupyter.master.views.metric_curves import to_curves

    records = read_metrics(service.store.path, experiment_id)
    return streamed_list(to_curves(records, max_points=max_points, repeats=repeats))


def _read_series(service: Service, of: Trial | str, query: SeriesQuery) -> Response:
    """Read the series of a trial, or of the agent `of`; called in a thread, as `_read_curves`."""
    from det_jupyter.master.service.storing.series_reading import read_agent, read_trial

    path = service.store.path
    if isinstance(of, str):
        return JsonResponse(read_agent(path, of, query))
    return JsonResponse(read_trial(path, of.id, query, ended_at=of.ended_at))
