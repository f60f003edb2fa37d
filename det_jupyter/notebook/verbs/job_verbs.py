"""What `%det job` does: it lists what is in the queue, and changes its order."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress

from IPython.core.error import UsageError

from det_jupyter.client.asking import ask_for
from det_jupyter.errors import ConfigError, DetError, NotFound
from det_jupyter.notebook.handles import handles
from det_jupyter.notebook.verbs.steering_verbs import describe_place
from det_jupyter.verbs.queue_changes import Change, find_problems, read_operations
from det_jupyter.wire import ChangeResources, ExperimentView, MoveInQueue


def move(options: argparse.Namespace) -> None:
    """Put an experiment ahead of another one, or behind it."""
    request = ask_for(MoveInQueue, ahead_of=options.ahead_of, behind=options.behind)
    print(describe_place(handles.client().move(options.id, request)))


def update(options: argparse.Namespace) -> None:
    """Change what an experiment may have and its place: all of it, or nothing."""
    changes = [
        Change(experiment_id=options.id, where=where, request=request)
        for where, request in _requests(options).items()
        if request not in (ChangeResources(), MoveInQueue())
    ]
    if not changes:
        raise UsageError(
            "%det job update: nothing to change; give --priority, --weight, --resource-pool, "
            "--ahead-of or --behind-of"
        )
    _check(changes)
    view: ExperimentView | None = None
    try:
        for request in _together(changes):
            view = _carry_out(options.id, request)
    except DetError:  # something came in between
        if view is not None:
            print(f"Changed before that: {describe_place(view)}")
        raise
    assert view is not None, "there is a change"
    print(describe_place(view))


def _requests(options: argparse.Namespace) -> dict[str, ChangeResources | MoveInQueue]:
    return {
        "--resource-pool": ask_for(ChangeResources, resource_pool=options.resource_pool),
        "--priority": ask_for(ChangeResources, priority=options.priority),
        "--weight": ask_for(ChangeResources, weight=options.weight),
        "--ahead-of": ask_for(MoveInQueue, ahead_of=options.ahead_of),
        "--behind-of": ask_for(MoveInQueue, behind=options.behind),
    }


def _together(changes: Sequence[Change]) -> list[ChangeResources | MoveInQueue]:
    """Return as few requests as possible; a place is asked for when all else is as it shall be."""
    given: dict[str, object] = {}
    moves: list[ChangeResources | MoveInQueue] = []
    for change in changes:
        if isinstance(change.request, MoveInQueue):
            moves.append(change.request)
        else:
            given |= change.request.model_dump(exclude_none=True)
    return [ask_for(ChangeResources, **given), *moves] if given else moves


def update_several(texts: Sequence[str]) -> None:
    """Carry out all operations; none, if one of them is wrong."""
    changes, unreadable = read_operations(texts)
    _check(changes, unreadable)
    problems: list[str] = []
    for change in changes:
        try:
            print(describe_place(_carry_out(change.experiment_id, change.request)))
        except DetError as error:  # something came in between
            problems.append(f"{change.where}: {error}")
    if problems:
        raise ConfigError(problems)


def _check(changes: Sequence[Change], problems: Sequence[str] = ()) -> None:
    """Refuse all of the changes if there is anything wrong with one."""
    found = [*problems, *find_problems(changes, _find_named(changes), handles.client().pools())]
    if found:
        only_one = len(changes) + len(problems) == 1
        raise ConfigError(found if only_one else [*found, "Nothing is changed."])


def _find_named(changes: Sequence[Change]) -> dict[int, ExperimentView]:
    ids = {i for change in changes for i in (change.experiment_id, change.anchor_id)}
    views: dict[int, ExperimentView] = {}
    for i in sorted(i for i in ids if i is not None):
        with suppress(NotFound):
            views[i] = handles.client().experiment(i)
    return views


def _carry_out(experiment_id: int, request: ChangeResources | MoveInQueue) -> ExperimentView:
    client = handles.client()
    if isinstance(request, MoveInQueue):
        return client.move(experiment_id, request)
    return client.change_resources(experiment_id, request)
