"""Routes for what ranks printed: of a trial, or of a whole experiment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from det_jupyter.contract.messages import LogPage, LogQuery
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.errors import NotFound
from det_jupyter.master.http.answers import JsonResponse, new_routes
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.stored_logs import read_page

_LOOK_S = 0.5  # a commit while lines are being read rings unheard, so never wait longer
_MOST_NAMED = 5


class _ExperimentQuery(LogQuery):
    trial_id: Whole | None = None


def log_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/trials/{trial_id}/logs", response_model=LogPage)
    async def of_trial(trial_id: Whole, query: Annotated[LogQuery, Query()]) -> Response:
        """Return lines that the ranks of a trial printed, of all its runs."""
        _is_trial_over(service, trial_id)
        return await _answer(service, [trial_id], query, lambda: _is_trial_over(service, trial_id))

    @routes.get("/experiments/{experiment_id}/logs", response_model=LogPage)
    async def of_experiment(
        experiment_id: Whole, query: Annotated[_ExperimentQuery, Query()]
    ) -> Response:
        """Return lines that the ranks of an experiment, or of one of its trials, printed."""
        experiment = service.machine.state.experiment(experiment_id)
        trial_id, known = query.trial_id, experiment.trial_ids
        if trial_id is None:
            return await _answer(service, known, query, lambda: _is_over(service, experiment_id))
        if trial_id not in known:
            raise NotFound(_no_such(experiment_id, trial_id, known))
        return await _answer(service, [trial_id], query, lambda: _is_trial_over(service, trial_id))

    return routes


def _is_over(service: Service, experiment_id: int) -> bool:
    return service.machine.state.experiment(experiment_id).state.is_terminal


def _is_trial_over(service: Service, trial_id: int) -> bool:
    trial = service.machine.state.trial(trial_id)
    return trial.state.is_terminal and trial.allocation is None


def _no_such(experiment_id: int, trial_id: int, known: Sequence[int]) -> str:
    problem = f"there is no trial {trial_id} in experiment {experiment_id}"
    if not known:
        return f"{problem}; it has none yet"
    named = ", ".join(map(str, known[:_MOST_NAMED])) + ", …" * (len(known) > _MOST_NAMED)
    return f"{problem}; it has: {named}"


async def _answer(
    service: Service, trial_ids: Sequence[int], query: LogQuery, is_over: Callable[[], bool]
) -> Response:
    """Return the lines that fit, those of the next moments if there are none yet."""
    deadline = time.monotonic() + query.wait_s
    while True:
        # Looked at first: all lines are stored when the end is.
        over = is_over()
        page = await asyncio.to_thread(
            read_page, service.store.path, trial_ids, query, is_over=over
        )
        left_s = deadline - time.monotonic()
        if page.lines or over or left_s <= 0 or service.bell.is_closed:
            return JsonResponse(page)
        query = query.model_copy(update={"after": page.last_id})
        await service.bell.wait(min(left_s, _LOOK_S))
