"""Verbs that change the order and the shares of the queue, each in one request.

The master makes all changes of a request, or none. If some values are invalid already here, the
others are sent as a dry run, so that all problems are reported together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from det_jupyter.client.requests import make_request
from det_jupyter.contract.messages import (
    ChangeQueue,
    ChangeResources,
    ExperimentView,
    MoveInQueue,
    QueueChange,
)
from det_jupyter.errors import ConfigError, Problem, UsageError
from det_jupyter.front.verbs.changing import describe_place
from det_jupyter.front.verbs.grammar import Call

# Operation of `job update-batch` -> field of the request.
OPERATIONS = {
    "priority": "priority",
    "weight": "weight",
    "resource-pool": "resource_pool",
    "ahead-of": "ahead_of",
    "behind-of": "behind",
}
_OPERATION = re.compile(r"(\d+)\.([a-z-]+)=(.*)", re.DOTALL)


def move(call: Call) -> str:
    """Put an experiment ahead of another one, or behind it."""
    given = call.options
    anchor = {"ahead_of": given.ahead_of, "behind": given.behind}
    return describe_place(
        call.client.change(make_request(MoveInQueue, experiment_id=given.id, **anchor))
    )


def update(call: Call) -> str:
    """Change priority, weight, pool or position of one experiment."""
    given = call.options
    values = {  # the position in the queue last
        "resource-pool": given.pool,
        "priority": given.priority,
        "weight": given.weight,
        "ahead-of": given.ahead_of,
        "behind-of": given.behind,
    }
    changes = [
        QueueChange(where=f"--{word}", request=_request(given.id, word, value))
        for word, value in values.items()
        if value is not None
    ]
    if not changes:
        raise UsageError(
            f"{given.words}: nothing to change; give --priority, --weight, "
            "--resource-pool, --ahead-of or --behind-of"
        )
    return describe_place(_change(call, changes)[-1])


def update_batch(call: Call) -> str:
    """Carry out all operations of a line."""
    changes: list[QueueChange] = []
    problems: list[Problem] = []
    for text in call.options.operations:
        try:
            changes.append(read_operation(text))
        except ConfigError as error:
            problems += error.problems
    return "\n".join(describe_place(view) for view in _change(call, changes, problems))


def read_operation(text: str) -> QueueChange:
    """Parse a change such as `3.priority=10` or `5.ahead-of=3`."""
    found = _OPERATION.fullmatch(text)
    if found is None or found[2] not in OPERATIONS:
        raise ConfigError(
            [f"got {text!r}, expected ID.OPERATION=VALUE with one of {', '.join(OPERATIONS)}"]
        )
    number, word = int(found[1]), found[2]
    value = found[3].strip() if word == "resource-pool" else _read_number(found[3])
    if value in (None, ""):
        raise ConfigError([Problem(text, "expected a value after the =")])
    where = f"{number}.{word}"
    try:
        request = _request(number, word, value)
    except ConfigError as error:
        raise ConfigError([replace(each, path=where) for each in error.problems]) from None
    return QueueChange(where=where, request=request)


def _request(number: int, word: str, value: Any) -> ChangeResources | MoveInQueue:
    given = {"experiment_id": number, OPERATIONS[word]: value}
    if OPERATIONS[word] in MoveInQueue.model_fields:
        return make_request(MoveInQueue, **given)
    return make_request(ChangeResources, **given)


def _read_number(text: str) -> Any:
    """Parse a YAML value; invalid YAML and booleans are returned as text."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return text if isinstance(value, bool) else value


def _change(
    call: Call, changes: Sequence[QueueChange], problems: Sequence[Problem] = ()
) -> list[ExperimentView]:
    """Send all changes, and return the experiment of each.

    Raises:
        ConfigError: `problems`, and those that the master finds; nothing is changed.
    """
    found = list(problems)
    try:
        if changes:
            request = ChangeQueue(changes=list(changes), dry_run=bool(problems))
            views: list[ExperimentView] = call.client.change(request)
    except ConfigError as error:
        found += error.problems
    if not found:
        return views
    if len(changes) + len(problems) > 1:
        found.append(Problem("", "Nothing is changed."))
    named = {number for change in changes for number in _named_in(change)}
    if named and not named <= {job.experiment_id for job in call.client.jobs()}:
        listing = f"`{call.reader.det} job list`"
        found.append(Problem("", f"{listing} shows the experiments that are not over."))
    raise ConfigError(found)


def _named_in(change: QueueChange) -> list[int]:
    """Return the ids of the experiments that a change names."""
    anchor = None
    if isinstance(change.request, MoveInQueue):
        anchor = change.request.ahead_of or change.request.behind
    return [change.request.experiment_id, *([] if anchor is None else [anchor])]
