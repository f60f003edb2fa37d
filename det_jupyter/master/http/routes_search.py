"""Routes for searches: preview, importance of hyperparameters, training a trial further."""

from __future__ import annotations

import asyncio
import secrets

from fastapi import APIRouter, Response

from det_jupyter.config import notices
from det_jupyter.config.pools import DEFAULT_POOL
from det_jupyter.contract.messages import (
    ContinueTrial,
    ExperimentView,
    ImportanceView,
    PreviewRequest,
    PreviewView,
)
from det_jupyter.contract.schema.seeds import MAX_SEED
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.contract.values.sizes import sizes_of
from det_jupyter.errors import ConfigError
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.machine.model.events import ExperimentSubmitted
from det_jupyter.master.machine.model.state import why_one_computer
from det_jupyter.master.machine.rules.configurations import continuation_config, resolve_config
from det_jupyter.master.machine.rules.queue_checks import find_pool_problem
from det_jupyter.master.sampling.importance import find_importance
from det_jupyter.master.sampling.samplers import check_sampler
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.stored_rows import read_metrics
from det_jupyter.master.views.forecast import PaceFinder, places_for, preview_view
from det_jupyter.master.views.search_samples import samples_of
from det_jupyter.searcher.preview import preview as plan
from det_jupyter.searcher.preview import sample_ranges

_MOST_SOURCES = 5  # earlier experiments whose pace is examined for the forecast


def search_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.post("/preview", response_model=PreviewView)
    async def preview(request: PreviewRequest) -> Response:
        """Return a preview of a search, without submitting it."""
        return JsonResponse(await _preview(service, request))

    @routes.get("/experiments/{experiment_id}/importance", response_model=ImportanceView)
    async def importance(experiment_id: Whole) -> Response:
        """Return how much each hyperparameter distinguishes the best trials of a search."""
        return JsonResponse(await _importance(service, experiment_id))

    @routes.post("/trials/{trial_id}/continue", response_model=ExperimentView, status_code=201)
    async def train_on(trial_id: Whole, body: ContinueTrial) -> Response:
        """Train a trial further, as an experiment of its own."""
        return JsonResponse(_train_on(service, trial_id, body), 201)

    return routes


async def _importance(service: Service, experiment_id: int) -> ImportanceView:
    samples = samples_of(service.machine.state, experiment_id)
    return await asyncio.to_thread(find_importance, *samples)


def _train_on(service: Service, trial_id: int, body: ContinueTrial) -> ExperimentView:
    if (existing := service.submitted(body.key)) is not None:
        return existing
    trial = service.machine.state.trial(trial_id)
    source = service.machine.state.experiment(trial.experiment_id)
    config, origins = continuation_config(source, trial, body.length)
    submitted = ExperimentSubmitted(
        config=config.to_document(),
        origins=origins,
        capsule=source.capsule,
        python=source.python,
        cwd=source.cwd,
        notebook=source.notebook,
        template=source.template,
        continues=trial_id,
        key=body.key,
    )
    service.apply(submitted.with_settings(config))
    return service.views.experiment(service.machine.state.last_experiment_id)


async def _preview(service: Service, request: PreviewRequest) -> PreviewView:
    name = request.template
    template = service.store.template(name).config if name is not None else None
    seed = secrets.randbelow(MAX_SEED + 1)
    config, _ = resolve_config(
        request.config, template, default_seed=seed, storage=service.default_storage
    )
    await check_sampler(config)
    await service.links.wait_for_first()
    state, resources = service.machine.state, config.resources
    pool = resources.resource_pool or DEFAULT_POOL
    if pool in state.pool_configs:
        problem = find_pool_problem(
            state,
            pool,
            resources.least_slots,
            is_single_agent=resources.is_single_node,
            why_one_computer=why_one_computer(config.entrypoint),
        )
        if problem:
            raise ConfigError(problem)
    planned = plan(config.searcher, config.hyperparameters)
    slots, places = places_for(resources.least_slots, state.agents.values())
    finder = PaceFinder(config, planned.unit, request.seconds_per_batch)
    entrypoint, experiments = config.entrypoint, state.experiments
    same = [i for i, each in experiments.items() if each.config["entrypoint"] == entrypoint]
    for source in sorted(same, reverse=True)[:_MOST_SOURCES]:
        if finder.pace is not None:
            break
        records = read_metrics(service.store.path, source)
        finder.search(source, await asyncio.to_thread(list, records))
    ranges = sample_ranges(
        config.searcher, config.hyperparameters, config.reproducibility.experiment_seed
    )
    warnings = notices(config.to_document())
    if (sizes := sizes_of(config.to_document()).for_batch(config.hyperparameters)).is_elastic:
        warnings.append(
            f"resources.slots_per_trial: a trial gets {sizes} slots, as they are free; the time "
            f"is estimated with {sizes.least} a trial."
        )
    elsewhere = sorted(agent.id for agent in state.agents.values() if agent.is_remote)
    if elsewhere and config.checkpoint_storage.location is None:
        warnings.append(
            f"checkpoint_storage: what trials save on agents of other computers "
            f"({', '.join(elsewhere)}) is uploaded to this one while they train; "
            "host_path, in a folder that all share, avoids that."
        )
    return preview_view(planned, ranges, warnings, finder, slots=slots, places=places)
