"""Routes for experiments that are over: put away, gone on with, thinned out and deleted."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from det_jupyter.bounds import Whole
from det_jupyter.config import ExperimentConfig
from det_jupyter.master.http.answers import JsonResponse, new_routes
from det_jupyter.master.machine.core.events import (
    ContinueRequested,
    RetentionSet,
)
from det_jupyter.master.machine.core.state import Experiment
from det_jupyter.master.machine.rules.configurations import complete
from det_jupyter.master.machine.rules.continuing import check_continuable
from det_jupyter.master.machine.rules.retention import find_unneeded
from det_jupyter.master.service.service import Service, check_patterns
from det_jupyter.wire import (
    CheckpointView,
    ContinueExperiment,
    ExperimentView,
    SetRetention,
)


def keeping_routes(service: Service) -> APIRouter:
    """Return the routes; to be asked before those for experiments, whose verbs are any word."""
    routes = new_routes()

    @routes.post("/experiments/{experiment_id}/continue", response_model=ExperimentView)
    async def go_on(experiment_id: Whole, body: ContinueExperiment) -> Response:
        """Go on with an experiment that is over, under its own number."""
        experiment = service.machine.state.experiment(experiment_id)
        check_continuable(experiment, body.config)
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

    return routes


def _overridden(experiment: Experiment, override: dict[str, Any]) -> ExperimentConfig:
    """Return the effective configuration with the override laid over it."""
    if not override:
        return experiment.settings
    seed = experiment.settings.reproducibility.experiment_seed
    effective, _ = complete(override, experiment.config, default_seed=seed)
    return effective
