"""Routes for trackers: where experiments are sent, and requests of the sending processes."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Response

from det_jupyter.config.tracker_section import Tracker
from det_jupyter.config.trackers import parse_trackers
from det_jupyter.contract.messages import SendTo, TrackerProgress, TrackerState, TrackerWork
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.errors import ConfigError, NotFound
from det_jupyter.master.delivery.trackers import Trackers
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.machine.model.state import Experiment
from det_jupyter.master.service.address_checks import find_tracker_problems, renewed
from det_jupyter.master.service.service import Service


def tracker_routes(service: Service, trackers: Trackers) -> APIRouter:
    """Return the routes."""
    routes = new_routes()
    tracked = service.store.tracked

    @routes.get("/experiments/{experiment_id}/trackers", response_model=list[TrackerState])
    async def states(experiment_id: Whole) -> Response:
        """Return how far an experiment is sent to each of its trackers."""
        service.machine.state.experiment(experiment_id)
        return JsonResponse(tracked.states(experiment_id))

    @routes.post("/experiments/{experiment_id}/trackers", response_model=list[TrackerState])
    async def send_to(experiment_id: Whole, body: SendTo) -> Response:
        """Send an experiment to trackers, and return how far each of them is."""
        experiment = service.machine.state.experiment(experiment_id)
        chosen = _chosen(service, experiment, body)
        if body.is_over:
            for tracker, _ in chosen:
                tracked.end(experiment_id, tracker)
            service.announce("experiment", experiment_id)
            return JsonResponse(tracked.states(experiment_id))
        addresses, problems = service.store.addresses, []
        chosen = [
            (tracker, await renewed(addresses, tracker, environment, body.variables))
            for tracker, environment in chosen
        ]
        for tracker, environment in chosen:
            problems += await find_tracker_problems(addresses, tracker, environment)
        if problems:
            raise ConfigError(problems)
        numbers = {tracked.add(experiment_id, *each) for each in chosen}
        await trackers.send_now(experiment_id)
        states = tracked.states(experiment_id)
        return JsonResponse([each for each in states if each.id in numbers])

    @routes.get("/trackers/work/{group}", response_model=list[TrackerWork])
    async def work(group: str) -> Response:
        """Return the experiments that the process of a tracker has to send next."""
        return JsonResponse(trackers.work(group))

    @routes.put("/trackers/{number}", response_model=TrackerProgress)
    async def advance(number: Whole, body: TrackerProgress) -> Response:
        """Store how far an experiment was sent to a tracker, or why it could not be sent."""
        trackers.advance(number, body)
        return JsonResponse(TrackerProgress(seq=body.seq))

    return routes


def _chosen(
    service: Service, experiment: Experiment, body: SendTo
) -> list[tuple[Tracker, str | None]]:
    """Return the requested trackers, each with its variables (see `Addresses.variables`).

    Raises:
        ConfigError: The entry in the request is not valid.
        NotFound: There is no tracker of this name, or no tracker at all.
    """
    tracked, own = service.store.tracked, experiment.capsule.environment
    if body.tracker is not None:
        tracker = _parsed(body.tracker)
        return [(tracker, tracked.environment_of(experiment.id, tracker))]
    mine, theirs = tracked.trackers_of(service.machine.state, experiment)
    found = {each: tracked.environment_of(experiment.id, each) for each in mine}
    found |= dict.fromkeys(theirs, own)
    found |= {each.tracker: each.environment for each in tracked.of(experiment.id)}
    named = {
        each: value for each, value in found.items() if body.name in (None, each.name, each.label)
    }
    if not named:
        what = "there is no tracker" + (f" {body.name!r}" if body.name else "")
        known = ", ".join(each.label for each in found)
        file = service.store.addresses.trackers.path
        raise NotFound(
            f"{what}; there are {known}"
            if known
            else f"{what}: experiment {experiment.id} names none, nor does {file}; name one"
        )
    return list(named.items())


def _parsed(entry: dict[str, object]) -> Tracker:
    try:
        return parse_trackers({"trackers": [entry]}).trackers[0].tracker
    except ConfigError as error:
        prefix = "trackers[0]."
        problems = [replace(each, path=each.path.removeprefix(prefix)) for each in error.problems]
        raise ConfigError(problems) from None
