"""What `%det job` does: it lists what is in the queue, and changes its order."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from IPython.core.error import UsageError

from det_jupyter.client.asking import ask_for
from det_jupyter.errors import ConfigError, DetError
from det_jupyter.notebook import handles
from det_jupyter.notebook.queue_changes import Change, find_problems, read_operations
from det_jupyter.notebook.steering_verbs import describe_place
from det_jupyter.wire import ChangeResources, ExperimentView, MoveInQueue


def move(options: argparse.Namespace) -> None:
    """Put an experiment ahead of another one, or behind it."""
    request = ask_for(MoveInQueue, ahead_of=options.ahead_of, behind=options.behind)
    print(describe_place(handles.client().move(options.id, request)))


def update(options: argparse.Namespace) -> None:
    """Change what an experiment may have and its place: all of it, or nothing."""
    changes = _read_options(options)
    if not changes:
        raise UsageError(
            "%det job update: nothing to change; give --priority, --weight, --resource-pool, "
            "--ahead-of or --behind-of"
        )
    _check(changes)
    done: list[ExperimentView] = []
    try:
        for change in changes:
            done.append(_carry_out(change))
    except DetError:
        if done:  # something came in between
            print(f"Changed before that: {describe_place(done[-1])}")
        raise
    print(describe_place(done[-1]))


def _read_options(options: argparse.Namespace) -> list[Change]:
    resources = {
        "--resource-pool": ask_for(ChangeResources, resource_pool=options.resource_pool),
        "--priority": ask_for(ChangeResources, priority=options.priority),
        "--weight": ask_for(ChangeResources, weight=options.weight),
    }
    moves = {
        "--ahead-of": ask_for(MoveInQueue, ahead_of=options.ahead_of),
        "--behind-of": ask_for(MoveInQueue, behind=options.behind),
    }
    return [
        Change(experiment_id=options.id, where=where, request=request)
        for where, request in (*resources.items(), *moves.items())
        if request not in (ChangeResources(), MoveInQueue())
    ]


def update_several(texts: Sequence[str]) -> None:
    """Carry out all operations, unless one of them is wrong; then none."""
    changes = read_operations(texts)
    _check(changes)
    problems: list[str] = []
    for change in changes:
        try:
            print(describe_place(_carry_out(change)))
        except DetError as error:  # something came in between
            problems.append(f"{change.where}: {error}")
    if problems:
        raise ConfigError(problems)


def _check(changes: Sequence[Change]) -> None:
    client = handles.client()
    views = {view.id: view for view in client.experiments()}
    problems = find_problems(changes, views, client.pools())
    if problems:
        raise ConfigError([*problems, "Nothing is changed."])


def _carry_out(change: Change) -> ExperimentView:
    client = handles.client()
    if isinstance(change.request, MoveInQueue):
        return client.move(change.experiment_id, change.request)
    return client.change_resources(change.experiment_id, change.request)
