"""How configurations come of others: of a template that they are laid over, of a trial. Pure.

A template is looked at when it is kept, and laid under a configuration when that is submitted. The
experiment holds the outcome: what becomes of the template later is nothing to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
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
from det_jupyter.contract.values.lengths import UNITS, Length, parse_length
from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.machine.model.state import Experiment, Trial

MAX_NAME = 100
_NAME = re.compile(rf"[^\W_][\w.+-]{{0,{MAX_NAME - 1}}}")
_SHOWN = 10
_MAX_TITLE = 160  # what is added to it still fits


def check_template(name: str, config: Mapping[str, Any]) -> None:
    """Refuse what cannot be a template.

    Raises:
        ConfigError: All that is wrong with its name and with the values that it gives.
    """
    problems = check_sanity(config)
    if not _NAME.fullmatch(name):
        problems = [
            Problem(
                "name",
                f"got {name[: MAX_NAME + 1]!r}, expected letters, digits and any of . _ + -, "
                f"a letter or digit first, at most {MAX_NAME} characters",
            ),
            *problems,
        ]
    if problems:
        raise ConfigError(problems)


def unknown_template_message(name: str, known: Iterable[str]) -> str:
    """Return the message about a template that does not exist."""
    names = sorted(known)
    nearest = get_close_matches(name, names, n=1)
    if nearest:
        remedy = f"did you mean {nearest[0]}?"
    elif names:
        more = ", ..." if len(names) > _SHOWN else ""
        remedy = f"there are {', '.join(names[:_SHOWN])}{more}"
    else:
        remedy = "there is none yet"
    return f"there is no template {name!r}; {remedy}"


def resolve_config(
    document: Mapping[str, Any],
    template: Mapping[str, Any] | None,
    *,
    default_seed: int,
    storage: str = "",
) -> tuple[ExperimentConfig, dict[str, str]]:
    """Return the effective configuration, and the origins of its values by path.

    Args:
        document: What the user wrote.
        template: What it is laid over.
        default_seed: The experiment's seed, if neither gives one.
        storage: The folder in the place of a storage that cannot be written to; "": none.

    Raises:
        ConfigError: Everything that is wrong with the whole.
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
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the configuration that trains a trial on alone, and the origins of its values.

    Args:
        experiment: The trial's.
        trial: Its hyperparameters become constants.
        length: How long it trains, counted from its beginning; None: to its search's full length.

    Raises:
        ConfigError: The length is none.
        Conflict: The search has no full length, or the trial trains now.
    """
    if trial.holds_slots:
        raise Conflict(
            f"trial {trial.id} trains now; kill it first, or let its search go further with "
            "experiment.change_search(max_length=...)"
        )
    before = experiment.config["searcher"]
    full = parse_length_or_refuse(_full_length(experiment) if length is None else length, "length")
    _check_farther(trial, full)
    searcher = {
        "name": "single",
        "metric": before["metric"],
        "smaller_is_better": before["smaller_is_better"],
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
    effective = parse_config(document).to_document()
    ours = origins({key: document[key] for key in ("name", "searcher")}, {}, effective)
    mine = {path: origin for path, origin in ours.items() if origin == "you"}
    return effective, given | mine


def _check_farther(trial: Trial, length: Length) -> None:
    """Refuse to train a trial to where it is, as far as the unit of the length tells."""
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


def parse_length_or_refuse(length: Any, where: str) -> Length:
    """Return a length, given in any form.

    Raises:
        ConfigError: It is none.
    """
    try:
        return parse_length(length)
    except ValueError as error:
        raise ConfigError([Problem(where, f"got {length!r}, {error}")]) from None


def _as_constant(value: Any) -> Any:
    """Return a drawn value as a hyperparameter: a mapping would be read as ranges or as nested."""
    if not isinstance(value, Mapping):
        return value
    if "type" in value:
        return {"type": "const", "val": value}
    return {name: _as_constant(inner) for name, inner in value.items()}
