"""Configurations derived from others: from a template, or from an experiment's trial. Pure.

A template is checked when it is stored, and merged into a configuration when that is submitted.
The experiment stores the result, so later changes of the template do not affect it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from det_jupyter.config import (
    ExperimentConfig,
    check_sanity,
    notices,
    origins,
    parse_config,
    to_yaml,
    with_default_storage,
)
from det_jupyter.contract.messages import EffectiveConfig
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.lengths import UNITS, Length, parse_length
from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.machine.model.state import Experiment, Trial

_MAX_NAME = 100
_NAME = re.compile(rf"[^\W_][\w.+-]{{0,{_MAX_NAME - 1}}}")
_MAX_TITLE = 160  # characters of a title, so that a suffix still fits


def check_template(name: str, config: Mapping[str, Any]) -> None:
    """Check a template's name and values.

    Raises:
        ConfigError: The template has problems; the error has all of them.
    """
    problems = check_sanity(config)
    if not _NAME.fullmatch(name):
        problems = [
            Problem(
                "name",
                f"got {name[: _MAX_NAME + 1]!r}, expected letters, digits and any of . _ + -, "
                f"a letter or digit first, at most {_MAX_NAME} characters",
            ),
            *problems,
        ]
    if problems:
        raise ConfigError(problems)


def resolve_config(
    document: Mapping[str, Any],
    template: Mapping[str, Any] | None,
    *,
    default_seed: int,
    storage: str = "",
) -> tuple[ExperimentConfig, dict[str, str]]:
    """Return the effective configuration, and the origins of its values by path.

    Args:
        document: The user's configuration.
        template: Values for keys that `document` does not have.
        default_seed: The experiment's seed, if neither document nor template has one.
        storage: A folder for checkpoints that replaces a storage type that is not supported here;
            "": no replacement.

    Raises:
        ConfigError: The configuration has problems; the error has all of them.
    """
    document, _ = with_default_storage(document, template or {}, storage)
    config = parse_config(document, default_seed=default_seed, template=template)
    found = origins(document, template or {}, config.to_document())
    return config, {path: origin for path, origin in found.items() if origin != "default"}


def effective_config_view(experiment: Experiment) -> EffectiveConfig:
    """Return an experiment's configuration, with the origin of each value."""
    given = experiment.origins
    return EffectiveConfig(
        yaml=to_yaml(experiment.config, given),
        config=experiment.config,
        origins=given,
        template=experiment.template,
        notices=notices(experiment.config),
    )


def continuation_config(
    experiment: Experiment, trial: Trial, length: Any
) -> tuple[ExperimentConfig, dict[str, str]]:
    """Return a configuration that only continues one trial, and the origins of its values.

    Args:
        experiment: The trial's experiment.
        trial: Its hyperparameters become constants.
        length: Length to train to, counted from the trial's beginning; None: its search's maximum.

    Raises:
        ConfigError: The length cannot be parsed.
        Conflict: The search has no maximum length, or the trial is running.
    """
    if trial.holds_slots:
        raise Conflict(
            f"trial {trial.id} trains now; kill it first, or let its search go further with "
            "experiment.change_search(max_length=...)"
        )
    given_length = _full_length(experiment) if length is None else length
    try:
        full = parse_length(given_length)
    except ValueError as error:
        raise ConfigError([Problem("length", f"got {given_length!r}, {error}")]) from None
    _check_farther(trial, full)
    searcher = {
        "name": "single",
        # Not parsed, because the replaced parts may be of another version.
        "metric": experiment.metric,
        "smaller_is_better": experiment.direction is Direction.MINIMIZE,
        "max_length": full.to_document(),
    }
    document = experiment.config | {
        "name": f"{experiment.name[:_MAX_TITLE]}, trial {trial.id} trained on",
        "searcher": searcher,
        "hyperparameters": {name: _as_constant(value) for name, value in trial.hparams.items()},
    }
    given = {
        path: origin
        for path, origin in experiment.origins.items()
        if path.partition(".")[0] not in ("searcher", "hyperparameters", "name")
    }
    config = parse_config(document)
    named = {key: document[key] for key in ("name", "searcher")}
    ours = origins(named, {}, config.to_document())
    mine = {path: origin for path, origin in ours.items() if origin == "you"}
    return config, given | mine


def _check_farther(trial: Trial, length: Length) -> None:
    """Check that a length is beyond what the trial has trained, if both have the same unit."""
    unit, amount = length.unit, length.amount
    steps = trial.latest_checkpoint.steps_completed if trial.latest_checkpoint else 0
    reached = trial.target if trial.is_resting else None
    trained = steps if unit == "batches" else length.comparable_amount(reached)
    if 0 < trained >= amount:
        raise Conflict(
            f"trial {trial.id} has trained {trained} {unit} already; got {amount}, expected more, "
            f"as in trial.train_to({{{unit!r}: {2 * trained}}})"
        )


def _full_length(experiment: Experiment) -> Any:
    searcher = experiment.config["searcher"]
    if searcher.get("max_length") is not None:
        return searcher["max_length"]
    if searcher.get("time_metric") in UNITS:
        return {searcher["time_metric"]: searcher["max_time"]}
    raise Conflict(
        f"experiment {experiment.id} measures training by {searcher['time_metric']}; "
        "say how long, as in trial.train_to({'epochs': 12})"
    )


def _as_constant(value: Any) -> Any:
    """Return a value as a constant hyperparameter; a plain mapping would be read as a range."""
    if not isinstance(value, Mapping):
        return value
    if "type" in value:
        return {"type": "const", "val": value}
    return {name: _as_constant(inner) for name, inner in value.items()}
