"""Routes for requests that change what the master has (messages/changes.py): one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, assert_never, get_args

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from det_jupyter.config.pools import parse_pools
from det_jupyter.contract.host.paths import find_missing_folder
from det_jupyter.contract.messages import (
    Activate,
    AnyChange,
    ChangeQueue,
    ChangeRequest,
    DropCheckpoints,
    OfExperiment,
    OfTrial,
    SetPools,
    SetRetention,
    State,
    SwitchSlots,
)
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.master.http.answers import JsonResponse, new_routes
from det_jupyter.master.machine.model.state import Experiment
from det_jupyter.master.machine.rules.queue_checks import find_queue_problems
from det_jupyter.master.machine.rules.retention import find_unneeded
from det_jupyter.master.service.pools_file import read_pools, write_pools
from det_jupyter.master.service.service import Service
from det_jupyter.storage import find_checkpoint
from det_jupyter.storage.globs import check_globs, must_match


def change_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()
    for kind in get_args(AnyChange):
        _add(routes, service, kind)
    return routes


def _add(routes: APIRouter, service: Service, kind: type[Any]) -> None:
    async def change(request: Request) -> Response:
        asked = _parsed(kind, await request.body() and await request.json(), request.path_params)
        return JsonResponse(await _carry_out(service, asked))

    routes.add_api_route(
        kind.path,
        change,
        methods=[kind.method],
        name=kind.__name__,
        description=kind.__doc__,
        response_model=kind.answer,
        openapi_extra=_described(kind),
    )


def _described(kind: type[ChangeRequest]) -> dict[str, Any]:
    """Return the OpenAPI document's part about what is posted."""
    schema, in_path = kind.model_json_schema(), kind.in_path()
    fields = {name: schema["properties"].pop(name) for name in (*in_path, "kind")}
    schema["$id"] = kind.__name__  # so that its references to `$defs` are about itself
    schema["required"] = [name for name in schema.get("required", ()) if name not in in_path]
    return {
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": fields[name]}
            for name in sorted(in_path)
        ],
        "requestBody": {"content": {"application/json": {"schema": schema}}},
    }


def _parsed(kind: type[ChangeRequest], body: Any, in_path: dict[str, Any]) -> Any:
    """Return the request of a body and of what its path names.

    Raises:
        RequestValidationError: It is none.
    """
    given = {} if body in (b"", None) else body
    try:
        return kind.model_validate({**given, **in_path} if isinstance(given, dict) else given)
    except ValidationError as error:
        problems = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise RequestValidationError(problems) from None


async def _carry_out(service: Service, change: AnyChange) -> BaseModel | Sequence[BaseModel]:
    """Make a change, or refuse it; return what has changed."""
    views, state = service.views, service.machine.state
    match change:
        case ChangeQueue():
            if not change.dry_run:
                service.apply(change)
            elif problems := find_queue_problems(state, change.changes):
                raise ConfigError(problems)
            return [views.experiment(each.request.experiment_id) for each in change.changes]
        case SetRetention():
            experiment = state.experiment(change.experiment_id)
            numbers = change.model_dump(include={*_KEPT})
            storage = experiment.settings.checkpoint_storage.model_copy(update=numbers)
            unneeded = find_unneeded(state, service.machine.indexes, experiment, storage)
            if not change.dry_run:
                service.apply(change)
            return [state.checkpoints[uuid] for uuid in unneeded]
        case DropCheckpoints():
            await _check_globs(service, change)
            service.apply(change)
            return [state.checkpoints[uuid] for uuid in dict.fromkeys(change.uuids)]
        case SetPools():
            _set_pools(service, change)
            return views.pools()
        case SwitchSlots():
            service.apply(change)
            return views.agent(change.agent_id)
        case OfExperiment():
            if isinstance(change, Activate):
                must_have_folder(state.experiment(change.experiment_id), State.PAUSED)
            service.apply(change)
            return views.experiment(change.experiment_id)
        case OfTrial():
            service.apply(change)
            return views.trial(change.trial_id)
        case _:
            assert_never(change)


_KEPT = ("save_experiment_best", "save_trial_best", "save_trial_latest")


async def _check_globs(service: Service, change: DropCheckpoints) -> None:
    found = service.machine.state.checkpoints
    check_globs(change.globs)
    for one in [found[uuid] for uuid in change.uuids if uuid in found and change.globs]:
        if one.state != "DELETED":  # a drive may be slow
            await asyncio.to_thread(_check_matches, one.path, change.globs)


def _set_pools(service: Service, change: SetPools) -> None:
    parsed = parse_pools({"pools": change.pools})
    before = read_pools()  # raises if the file is being edited and wrong: nothing changes
    pools = [pool.model_dump(mode="json") for pool in parsed.pools]
    service.apply(SetPools(pools=pools))
    write_pools(pools, before)
    service.file_problems = []


def must_have_folder(experiment: Experiment, *states: State) -> None:
    """Refuse to start ranks in a folder that is gone: each would fail, and the experiment end.

    Of an experiment in another state than these, if any are given, the request itself is refused.

    Raises:
        Conflict: The folder is gone.
    """
    # With a context directory they work in a copy of it.
    problem = None if experiment.capsule.context else find_missing_folder(experiment.cwd)
    if problem is not None and (not states or experiment.state in states):
        raise Conflict(f"experiment {experiment.id}: {problem}")


def _check_matches(path: str, globs: Sequence[str]) -> None:
    storage, uuid = find_checkpoint(path)
    must_match(path, storage.files(uuid), globs)
