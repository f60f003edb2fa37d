"""Routes for experiments, their trials and what is known of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from det_jupyter.blobs import BlobStore
from det_jupyter.bounds import Whole
from det_jupyter.capsule import code_of
from det_jupyter.config import ExperimentConfig
from det_jupyter.errors import Conflict, NotFound
from det_jupyter.master.http.answers import JsonResponse, LinesResponse, new_routes
from det_jupyter.master.machine.core.events import (
    ActivateRequested,
    ArchiveRequested,
    CancelRequested,
    CheckpointsUnwanted,
    ContinueRequested,
    DeleteRequested,
    Event,
    KillRequested,
    PauseRequested,
    RetentionSet,
)
from det_jupyter.master.machine.core.state import Experiment
from det_jupyter.master.machine.rules.configurations import complete
from det_jupyter.master.machine.rules.continuing import check_continuable
from det_jupyter.master.machine.rules.retention import find_unneeded
from det_jupyter.master.service.feed import follow as follow_feed
from det_jupyter.master.service.rows import read_metrics
from det_jupyter.master.service.service import Service, check_patterns
from det_jupyter.system.paths import find_missing_folder
from det_jupyter.wire import (
    CheckpointView,
    CodeView,
    ContinueExperiment,
    CreateExperiment,
    Curve,
    DeleteCheckpoints,
    ExperimentQuery,
    ExperimentRows,
    ExperimentView,
    FeedItem,
    SetRetention,
    State,
    TimingsView,
    TrialView,
)

Verb = Literal["pause", "activate", "cancel", "kill", "archive", "unarchive", "delete"]
_REQUESTS: Mapping[Verb, Callable[..., Event]] = {
    "pause": PauseRequested,
    "activate": ActivateRequested,
    "cancel": CancelRequested,
    "kill": KillRequested,
    "archive": partial(ArchiveRequested, is_archived=True),
    "unarchive": partial(ArchiveRequested, is_archived=False),
    "delete": DeleteRequested,
}
HEARTBEAT_S = 15.0  # a follower gets a sign of life at least this often
_MAX_TIMINGS = 200  # records in one answer, each of about a second


def experiment_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.post("/experiments", response_model=ExperimentView, status_code=201)
    async def create(request: CreateExperiment) -> Response:
        """Accept an experiment, or refuse it with everything that is wrong with it."""
        return JsonResponse(await service.submit(request), 201)

    @routes.get("/experiments", response_model=list[ExperimentView])
    async def experiments() -> Response:
        """Return all experiments, oldest first."""
        return JsonResponse(service.views.experiments())

    @routes.get("/experiments/found", response_model=ExperimentRows)
    async def found(query: Annotated[ExperimentQuery, Query()]) -> Response:
        """Return a row for each experiment that the query describes."""
        return JsonResponse(service.views.find(query))

    @routes.get("/experiments/{experiment_id}", response_model=ExperimentView)
    async def experiment(experiment_id: Whole) -> Response:
        """Return one experiment with its trials."""
        return JsonResponse(service.views.experiment(experiment_id))

    @routes.post("/experiments/{experiment_id}/continue", response_model=ExperimentView)
    async def go_on(experiment_id: Whole, body: ContinueExperiment) -> Response:
        """Go on with an experiment that is over, under its own number."""
        experiment = service.machine.state.experiment(experiment_id)
        check_continuable(experiment, body.config)
        _must_have_folder(experiment)
        config = _overridden(experiment, body.config)
        await check_patterns(config)
        document = config.to_document() if body.config else experiment.config
        service.apply(ContinueRequested(experiment_id=experiment_id, config=document))
        return JsonResponse(service.views.experiment(experiment_id))

    @routes.post("/experiments/{experiment_id}/retention", response_model=list[CheckpointView])
    async def retain(experiment_id: Whole, body: SetRetention) -> Response:
        """Keep other checkpoints from now on; return those that are deleted, or would be."""
        experiment = service.machine.state.experiment(experiment_id)
        numbers = body.model_dump(exclude={"dry_run"})
        storage = experiment.settings.checkpoint_storage.model_copy(update=numbers)
        machine = service.machine
        unneeded = find_unneeded(machine.state, machine.indexes, experiment, storage)
        if not body.dry_run:
            service.apply(RetentionSet(experiment_id=experiment_id, **numbers))
        return JsonResponse([machine.state.checkpoints[uuid] for uuid in unneeded])

    @routes.post("/experiments/{experiment_id}/{verb}", response_model=ExperimentView)
    async def command(experiment_id: Whole, verb: Verb) -> Response:
        """Ask for a change of state; safe to repeat, but for archive and unarchive."""
        if verb == "activate":
            _must_have_folder(service.machine.state.experiment(experiment_id), State.PAUSED)
        service.apply(_REQUESTS[verb](experiment_id=experiment_id))
        return JsonResponse(service.views.experiment(experiment_id))

    @routes.get("/experiments/{experiment_id}/curves", response_model=list[Curve])
    async def curves(
        experiment_id: Whole, max_points: Annotated[Whole | None, Query(ge=4)] = None
    ) -> Response:
        """Return every metric of every trial, each thinned to `max_points`."""
        service.machine.state.experiment(experiment_id)
        return await asyncio.to_thread(_read_curves, service, experiment_id, max_points)

    @routes.get("/experiments/{experiment_id}/code", response_model=CodeView)
    async def code(experiment_id: Whole) -> Response:
        """Return the captured source: of cells by label, of local modules by path."""
        capsule = service.machine.state.experiment(experiment_id).capsule
        blobs = BlobStore(service.store.path.parent / "blobs")
        return JsonResponse(CodeView(files=await asyncio.to_thread(code_of, capsule, blobs)))

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

    @routes.post("/checkpoints/delete", response_model=list[CheckpointView])
    async def delete_checkpoints(body: DeleteCheckpoints) -> Response:
        """Delete checkpoints, all of them or none."""
        service.apply(CheckpointsUnwanted(uuids=body.uuids))
        found = service.machine.state.checkpoints
        return JsonResponse([found[uuid] for uuid in dict.fromkeys(body.uuids)])

    @routes.get("/checkpoints/{uuid}", response_model=CheckpointView)
    async def checkpoint(uuid: str) -> Response:
        """Return one checkpoint, of any experiment."""
        found = service.machine.state.checkpoints.get(uuid)
        if found is None:
            raise NotFound(f"there is no checkpoint {uuid}")
        return JsonResponse(found)

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

    return routes


def _read_curves(service: Service, experiment_id: int, max_points: int | None) -> Response:
    """Read in another thread: of a long experiment it takes a second or so; numpy even more."""
    from det_jupyter.master.views.curves import to_curves

    records = read_metrics(service.store.path, experiment_id)
    return JsonResponse(to_curves(records, max_points=max_points))


def _must_have_folder(experiment: Experiment, *states: State) -> None:
    """Refuse to start ranks in a folder that is gone: each would fail, and the experiment end.

    Args:
        experiment: What is about to run again.
        states: Those of which it is asked; in another one the request itself is refused.
    """
    # With a context directory they work in a copy of it.
    problem = None if experiment.capsule.context else find_missing_folder(experiment.cwd)
    if problem is not None and (not states or experiment.state in states):
        raise Conflict(f"experiment {experiment.id}: {problem}")


def _overridden(experiment: Experiment, override: dict[str, Any]) -> ExperimentConfig:
    """Return the effective configuration with the override laid over it."""
    if not override:
        return experiment.settings
    seed = experiment.settings.reproducibility.experiment_seed
    effective, _ = complete(override, experiment.config, default_seed=seed)
    return effective
