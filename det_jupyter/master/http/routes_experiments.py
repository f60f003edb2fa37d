"""Routes to submit, find and continue experiments, and for templates."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated

from fastapi import APIRouter, Query, Response

from det_jupyter.config import read_changes
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import (
    Capsule,
    CodeView,
    ContinueExperiment,
    CreateExperiment,
    EffectiveConfig,
    ExperimentQuery,
    ExperimentRows,
    ExperimentView,
    SetTemplate,
    TemplateView,
)
from det_jupyter.contract.trial.captured import code_of
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.http.routes_changes import check_working_directory
from det_jupyter.master.machine.model.events import ContinueRequested
from det_jupyter.master.machine.rules.configurations import (
    check_template,
    effective_config_view,
    resolve_config,
)
from det_jupyter.master.machine.rules.continuing import check_continuable
from det_jupyter.master.service.address_checks import check_services
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.log_patterns import check_patterns


def experiment_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.post("/experiments", response_model=ExperimentView, status_code=201)
    async def create(request: CreateExperiment) -> Response:
        """Submit an experiment, or refuse it with all problems of its configuration."""
        return JsonResponse(await service.submit(request), 201)

    @routes.get("/experiments", response_model=ExperimentRows)
    async def experiments(query: Annotated[ExperimentQuery, Query()]) -> Response:
        """Return a row for each experiment that matches the query."""
        return JsonResponse(service.views.find(query))

    @routes.get("/experiments/{experiment_id}", response_model=ExperimentView)
    async def experiment(experiment_id: Whole) -> Response:
        """Return one experiment with its trials."""
        return JsonResponse(service.views.experiment(experiment_id))

    @routes.post("/experiments/{experiment_id}/continue", response_model=ExperimentView)
    async def continue_experiment(experiment_id: Whole, body: ContinueExperiment) -> Response:
        """Continue an experiment that is over, under its own number."""
        experiment = service.machine.state.experiment(experiment_id)
        changes = service.store.addresses.hide(read_changes(body.config))
        check_continuable(experiment, changes)
        check_working_directory(experiment)
        document, config = experiment.config, experiment.settings
        if changes:
            before, seed = config, config.reproducibility.experiment_seed
            config, _ = resolve_config(changes, document, default_seed=seed)
            document = config.to_document()
            if (config.alerts, config.trackers) != (before.alerts, before.trackers):
                await check_services(
                    service.store.addresses, config, experiment.capsule, service.machine.state
                )
        await check_patterns(config)
        requested = ContinueRequested(experiment_id=experiment_id, config=document)
        service.apply(requested.with_settings(config))
        return JsonResponse(service.views.experiment(experiment_id))

    _add_code_and_config(routes, service)
    _add_templates(routes, service)
    return routes


def _add_code_and_config(routes: APIRouter, service: Service) -> None:
    @routes.get("/experiments/{experiment_id}/code", response_model=CodeView)
    async def code(experiment_id: Whole) -> Response:
        """Return the source code: cells by label, modules and context directory by path."""
        capsule = service.machine.state.experiment(experiment_id).capsule
        blobs = BlobStore.of(service.store.path.parent)
        return JsonResponse(CodeView(files=await asyncio.to_thread(code_of, capsule, blobs)))

    @routes.get("/experiments/{experiment_id}/capsule", response_model=Capsule)
    async def capsule(experiment_id: Whole) -> Response:
        """Return the captured trial with the names of all of its blobs; views have not all."""
        return JsonResponse(service.machine.state.experiment(experiment_id).capsule)

    @routes.get("/experiments/{experiment_id}/config", response_model=EffectiveConfig)
    async def config(experiment_id: Whole) -> Response:
        """Return an experiment's effective configuration, with the origin of each value."""
        return JsonResponse(effective_config_view(service.machine.state.experiment(experiment_id)))


def _add_templates(routes: APIRouter, service: Service) -> None:
    # `:path` also matches slashes, so a name with a slash is refused by check_template.
    one = "/templates/{name:path}"

    @routes.get("/templates", response_model=list[TemplateView])
    async def templates() -> Response:
        """Return all templates, sorted by name."""
        return JsonResponse(service.store.templates())

    @routes.get(one, response_model=TemplateView)
    async def template(name: str) -> Response:
        """Return one template."""
        return JsonResponse(service.store.template(name))

    @routes.put(one, response_model=TemplateView)
    async def set_template(name: str, body: SetTemplate) -> Response:
        """Store a template, or refuse it with all of its problems."""
        check_template(name, body.config)
        hidden = service.store.addresses.hide(body.config)
        service.store.set_template(time.time(), name, json.dumps(hidden))
        return JsonResponse(service.store.template(name))

    @routes.delete(one, response_model=TemplateView)
    async def delete_template(name: str) -> Response:
        """Delete a template, and return it."""
        view = service.store.template(name)
        service.store.delete_template(name)
        return JsonResponse(view)
