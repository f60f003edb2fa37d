"""Changes of the queue that one line asks for, and what is wrong with them before any is made.

The master judges each change by itself; here several are judged together, each as if those before
it had been made, so that a line with a mistake changes nothing. Views in, problems out; what comes
in between, the master still refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from det_jupyter.client.asking import ask_for
from det_jupyter.errors import ConfigError
from det_jupyter.verbs.det_arguments import OPERATIONS
from det_jupyter.wire import ChangeResources, ExperimentView, MoveInQueue, PoolStatus

_FIELDS = {"resource-pool": "resource_pool", "ahead-of": "ahead_of", "behind-of": "behind"}
_OPERATION = re.compile(r"(\d+)\.([a-z-]+)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One request about one experiment; `where` is what the user typed it as."""

    experiment_id: int
    where: str
    request: ChangeResources | MoveInQueue

    @property
    def anchor_id(self) -> int | None:
        """The experiment that it is moved by."""
        if isinstance(self.request, ChangeResources):
            return None
        ahead_of = self.request.ahead_of
        return self.request.behind if ahead_of is None else ahead_of


def read_operations(texts: Iterable[str]) -> tuple[list[Change], list[str]]:
    """Return the changes that `3.priority=10 5.ahead-of=3` stands for, and what is unreadable."""
    changes: list[Change] = []
    problems: list[str] = []
    for text in texts:
        try:
            changes.append(_read_operation(text))
        except ConfigError as error:
            problems += error.problems
    return changes, problems


def _read_operation(text: str) -> Change:
    found = _OPERATION.fullmatch(text)
    if found is None or found[2] not in OPERATIONS:
        raise ConfigError(
            [f"got {text!r}, expected ID.OPERATION=VALUE with one of {', '.join(OPERATIONS)}"]
        )
    name, where = found[2], f"{int(found[1])}.{found[2]}"
    value = found[3].strip() if name == "resource-pool" else _read_number(found[3])
    if value in (None, ""):
        raise ConfigError([f"{text}: expected a value after the ="])
    field = _FIELDS.get(name, name)
    try:
        request = _ask_to_set(field, value)
    except ConfigError as error:
        told = [problem.partition(": ")[2] for problem in error.problems]
        raise ConfigError([f"{where}: {problem}" for problem in told]) from None
    return Change(experiment_id=int(found[1]), where=where, request=request)


def _ask_to_set(field: str, value: Any) -> ChangeResources | MoveInQueue:
    if field in ("ahead_of", "behind"):
        return ask_for(MoveInQueue, **{field: value})
    return ask_for(ChangeResources, **{field: value})


def _read_number(text: str) -> Any:
    """Return what YAML says; what is no number comes back as something that is refused as such."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return text if isinstance(value, bool) else value


@dataclass(slots=True)
class _Place:
    """Where an experiment would be after the changes so far."""

    pool: str
    priority: int
    is_set: str = ""  # what set its priority


def find_problems(
    changes: Sequence[Change], views: Mapping[int, ExperimentView], pools: Sequence[PoolStatus]
) -> list[str]:
    """Return everything that is wrong with the changes.

    Args:
        changes: In the order in which they are to be made.
        views: The experiments that they name, those that there are.
        pools: The pools that there are.
    """
    places = {i: _Place(view.pool, view.priority) for i, view in views.items()}
    policies = {pool.name: pool.policy for pool in pools}
    problems: list[str] = []
    told: set[int] = set()  # experiments that are not in the queue
    for change in changes:
        found = list(_find_missing(change, views, told))
        match change.request:
            case ChangeResources() as request:
                found += _find_wrong_values(request, policies)
                if not found and change.experiment_id not in told:
                    _follow(change, request, places[change.experiment_id])
            case MoveInQueue() if told.isdisjoint((change.experiment_id, change.anchor_id)):
                found += _find_wrong_move(change, places, policies)
        problems += [f"{change.where}: {problem}" for problem in found]
    return problems


def _find_missing(
    change: Change, views: Mapping[int, ExperimentView], told: set[int]
) -> Iterator[str]:
    """Yield which of the experiments are not in the queue, each the first time it is named."""
    for i in (change.experiment_id, change.anchor_id):
        view = None if i is None else views.get(i)
        if i is None or i in told or (view is not None and not view.state.is_terminal):
            continue
        told.add(i)
        if view is None:
            yield f"there is no experiment {i}; %det job list shows those that are not over"
        else:
            yield f"experiment {i} is over ({view.state})"


def _find_wrong_values(request: ChangeResources, policies: Mapping[str, str]) -> Iterator[str]:
    if request.priority is not None and not 1 <= request.priority <= 99:
        yield f"got {request.priority}, expected a number from 1 to 99"
    if request.weight is not None and request.weight <= 0:
        yield f"got {request.weight:g}, expected a number above 0"
    name = request.resource_pool
    if name is not None and name not in policies:
        yield f"got {name!r}; there is no such pool, there are: {', '.join(policies)}"


def _follow(change: Change, request: ChangeResources, place: _Place) -> None:
    if request.priority is not None:
        place.priority, place.is_set = request.priority, change.where
    if request.resource_pool is not None:
        place.pool = request.resource_pool


def _find_wrong_move(
    change: Change, places: Mapping[int, _Place], policies: Mapping[str, str]
) -> Iterator[str]:
    assert change.anchor_id is not None
    place, anchor = places[change.experiment_id], places[change.anchor_id]
    if change.anchor_id == change.experiment_id:
        yield f"experiment {change.anchor_id} cannot be moved relative to itself"
    elif place.pool != anchor.pool:
        yield (
            f"experiment {change.experiment_id} queues in pool {place.pool}, experiment "
            f"{change.anchor_id} in pool {anchor.pool}; only within a pool is there an order"
        )
    elif (policy := policies.get(place.pool, "priority")) != "priority":
        yield (
            f"pool {place.pool} shares its slots by {policy}: there is no order to change; "
            "change the experiment's weight"
        )
    elif place.is_set and place.priority != anchor.priority:
        yield (
            f"experiment {change.experiment_id} would take priority {anchor.priority} of "
            f"experiment {change.anchor_id}, and {place.is_set} wants {place.priority}; "
            "give one of the two"
        )
    else:
        place.priority = anchor.priority
