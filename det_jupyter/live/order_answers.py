"""Profiles and changes of a trial that trains, for the live view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.client import Client, Trial
from det_jupyter.errors import ConfigError, Conflict, NotFound

_CHANGES = ("lr", "lr_factor", "optimizer", "min_validation_period", "priority")


def profile_answer(
    client: Client, experiment_id: int, question: Mapping[str, Any]
) -> dict[str, Any]:
    """Record a profile, and return the first rank's trace.

    Raises:
        Conflict: No rank has written one.
    """
    given = {name: question[name] for name in ("steps", "ranks") if question.get(name) is not None}
    traces = _trial(client, experiment_id, question).profile(**given)
    written = [trace for trace in traces if trace.path]
    if not written:
        raise Conflict(repr(traces))
    return {
        "path": written[0].view.path,
        "size_bytes": written[0].size_bytes,
        "text": "\n".join(map(repr, traces)),
        "traces": [trace.view.model_dump() for trace in traces],
    }


def change_answer(
    client: Client, experiment_id: int, question: Mapping[str, Any]
) -> dict[str, Any]:
    """Change the trial, and return what became which, and from which batch on."""
    asked = question.get("changes") or {}
    if not isinstance(asked, Mapping):
        raise ConfigError([f"change: got {asked!r}, expected changes by name"])
    if unknown := asked.keys() - {*_CHANGES}:
        raise ConfigError(
            [f"change: got {min(unknown)!r}, expected some of {', '.join(_CHANGES)}"]
        )
    given = {name: value for name, value in asked.items() if value is not None}
    made = _trial(client, experiment_id, question).change(**given)
    said = [] if made is None else [repr(made)]
    if "priority" in given:
        said.append(f"priority {given['priority']}")
    return {
        "text": "; ".join(said),
        "steps_completed": None if made is None else made.steps_completed,
    }


def _trial(client: Client, experiment_id: int, question: Mapping[str, Any]) -> Trial:
    trial_id = question.get("trial_id")
    known = [view.id for view in client.experiment(experiment_id).trials]
    if trial_id not in known:
        raise NotFound(f"experiment {experiment_id} has no trial {trial_id}")
    return Trial(client, int(trial_id))
