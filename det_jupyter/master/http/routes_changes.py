"""Routes for requests that change the master's state: one per class in messages/changes.py."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, assert_never, get_args

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.routing import BaseRoute

from det_jupyter.config.pools import parse_pools
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.paths import find_missing_folder
from det_jupyter.contract.messages import (
    Activate,
    AnyChange,
    ChangeQueue,
    ChangeRequest,
    CheckpointView,
    CreateModel,
    DeleteModel,
    DropCheckpoints,
    ImportExperiment,
    MoveCheckpoints,
    OfExperiment,
    OfModel,
    OfTrial,
    SetPools,
    SetRetention,
    StartUnmanaged,
    SwitchSlots,
)
from det_jupyter.contract.messages.status import PAUSES
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.machine.model.state import Experiment
from det_jupyter.master.machine.rules.queue_checks import find_queue_problems
from det_jupyter.master.machine.rules.retention import find_unneeded
from det_jupyter.master.service.pools_file import read_pools, write_pools
from det_jupyter.master.service.service import Service
from det_jupyter.storage import find_checkpoint, folder_at, open_storage, path_of
from det_jupyter.storage.copies import find_copy_problem, find_outer_checkpoint
from det_jupyter.storage.globs import check_globs, must_match


def change_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()
    for kind in get_args(AnyChange):
        _add(routes, service, kind)
    return routes


def _add(routes: APIRouter, service: Service, kind: type[Any]) -> None:
    async def handle(request: Request) -> Response:
        body = await request.body() and await request.json()
        change = _parse_change(kind, body, request.path_params)
        return JsonResponse(await _apply_change(service, change))

    routes.add_api_route(
        kind.path,
        handle,
        methods=[kind.method],
        name=kind.__name__,
        description=kind.__doc__,
        response_model=kind.answer,
    )


def describe_changes(routes: Sequence[BaseRoute]) -> None:
    """Add a description of the parameters and the body to each route that changes the state."""
    kinds = {kind.__name__: kind for kind in get_args(AnyChange)}
    for route in routes:
        if isinstance(route, APIRoute) and (kind := kinds.get(route.name)):
            route.openapi_extra = _openapi_of(kind)


def _openapi_of(kind: type[ChangeRequest]) -> dict[str, Any]:
    """Return the description of a request's parameters and body for the OpenAPI document."""
    schema, in_path = kind.model_json_schema(), kind.in_path()
    fields = {name: schema["properties"].pop(name) for name in (*in_path, "kind")}
    schema["$id"] = kind.__name__  # so that its references to `$defs` resolve within it
    schema["required"] = [name for name in schema.get("required", ()) if name not in in_path]
    return {
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": fields[name]}
            for name in sorted(in_path)
        ],
        "requestBody": {"content": {"application/json": {"schema": schema}}},
    }


def _parse_change(kind: type[ChangeRequest], body: Any, in_path: dict[str, Any]) -> Any:
    """Build a request from its body and its path parameters.

    Raises:
        RequestValidationError: Body or parameters do not match the request's fields.
    """
    given = {} if body in (b"", None) else body
    try:
        return kind.model_validate({**given, **in_path} if isinstance(given, dict) else given)
    except ValidationError as error:
        problems = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise RequestValidationError(problems) from None


async def _apply_change(service: Service, change: AnyChange) -> BaseModel | Sequence[BaseModel]:
    """Apply a change, or only check it if it is a dry run; return views of the changed objects.

    Raises:
        DetError: The change is refused.
    """
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
            numbers = change.model_dump(
                include={"save_experiment_best", "save_trial_best", "save_trial_latest"}
            )
            storage = experiment.settings.checkpoint_storage.model_copy(update=numbers)
            unneeded = find_unneeded(state, service.machine.indexes, experiment, storage)
            if not change.dry_run:
                service.apply(change)
            return [state.checkpoints[uuid] for uuid in unneeded]
        case DropCheckpoints():
            check_globs(change.globs)
            for uuid in change.uuids if change.globs else ():
                one = state.checkpoints.get(uuid)
                if one is not None and one.state != "DELETED":  # in a thread: drives may be slow
                    await asyncio.to_thread(_check_matches, one.path, change.globs)
            service.apply(change)
            deleted = dict.fromkeys(change.uuids)
            return [service.machine.state.checkpoints[uuid] for uuid in deleted]
        case MoveCheckpoints():
            moved = [one for uuid in change.uuids if (one := state.checkpoints.get(uuid))]
            owners = {one.uuid: state.experiment(one.experiment_id) for one in moved}
            await asyncio.to_thread(_check_copies, moved, owners, change)
            service.apply(change)
            return [
                service.machine.state.checkpoints[uuid] for uuid in dict.fromkeys(change.uuids)
            ]
        case SetPools():
            _set_pools(service, change)
            return views.pools()
        case SwitchSlots():
            service.apply(change)
            return views.agent(change.agent_id)
        case ImportExperiment():
            service.apply(change)
            found = service.submitted(change.key)
            assert found is not None
            return found
        case StartUnmanaged():
            service.apply(change)
            return service.unmanaged.started(change.key)
        case OfExperiment():
            experiment = state.experiment(change.experiment_id)
            if isinstance(change, Activate) and experiment.state in PAUSES:
                check_working_directory(experiment)
            service.apply(change)
            return views.experiment(change.experiment_id)
        case OfTrial():
            service.apply(change)
            return views.trial(change.trial_id)
        case CreateModel():
            service.apply(change)
            return views.model(change.name)
        case DeleteModel():
            gone = views.model(change.model)
            service.apply(change)
            return gone
        case OfModel():
            number = state.model(change.model).id  # its name may change
            service.apply(change)
            return views.model(service.machine.state.models[number].name)
        case _:
            assert_never(change)


def _set_pools(service: Service, change: SetPools) -> None:
    parsed = parse_pools({"pools": change.pools})
    before = read_pools()  # raises before anything changes if the file is invalid
    pools = [pool.model_dump(mode="json") for pool in parsed.pools]
    service.apply(SetPools(pools=pools))
    write_pools(pools, before)
    service.file_problems = []


def check_working_directory(experiment: Experiment) -> None:
    """Refuse to start ranks in a working directory that does not exist: all of them would fail.

    Raises:
        Conflict: The directory does not exist.
    """
    # With a context directory, ranks work in a copy of it.
    problem = None if experiment.capsule.context else find_missing_folder(experiment.cwd)
    if problem is not None:
        raise Conflict(f"experiment {experiment.id}: {problem}")


def _check_copies(
    moved: Sequence[CheckpointView], owners: Mapping[str, Experiment], change: MoveCheckpoints
) -> None:
    """Check that a storage has the same files of checkpoints as the one where they are now.

    Raises:
        Conflict: It has not, or is the same one, or they are not where their experiment stores its
            checkpoints.
    """
    location, problems = change.location, []
    there, folder = open_storage(location, paths.data_dir()), folder_at(location)
    if there.location != location or (folder is not None and not folder.is_absolute()):
        raise Conflict(f"location: got {location!r}, expected a bucket or an absolute folder")
    if outer := find_outer_checkpoint(location):
        raise Conflict(f"{location} is in the checkpoint {outer}; choose another folder")
    for one in moved:
        if one.location == there.location:
            continue
        here = open_storage(owners[one.uuid].location, paths.data_dir())
        if not one.is_placed and one.path != path_of(here, one.uuid):
            problems.append(f"checkpoint {one.uuid}: {one.path} is not in {here.location}")
            continue
        if one.state == "DELETED" or change.is_lost:
            if not there.files(one.uuid):
                problems.append(f"checkpoint {one.uuid}: not in {location}")
        elif not find_checkpoint(one.path)[0].files(one.uuid):
            problems.append(f"checkpoint {one.uuid}: {one.path} is not there any more")
        elif problem := find_copy_problem(one.path, path_of(there, one.uuid)):
            problems.append(problem)
    if problems:
        raise Conflict("; ".join(problems))


def _check_matches(path: str, globs: Sequence[str]) -> None:
    storage, uuid = find_checkpoint(path)
    must_match(path, storage.files(uuid), globs)
