"""`parse_config` makes a configuration of documents; `check_sanity` checks a part of one.

    what the user wrote ─┐
                         ├─ merge ─ drop nulls ─ computed defaults ─ sections ─ cross-checks ─►
    the template ────────┘

All problems of all stages are reported at once, sorted by their paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import ValidationError, create_model

from det_jupyter.config.cross_checks import find_contradictions, is_endless
from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.json_values import (
    find_bounds_problem,
    find_nameless_keys,
    find_strange_values,
    is_plain,
    to_plain,
)
from det_jupyter.config.keys import FREE_FORM
from det_jupyter.config.merging import merge
from det_jupyter.config.migrate import find_retired, migrate
from det_jupyter.config.places import find_lost_kind
from det_jupyter.config.problems import describe
from det_jupyter.config.tree import kinds
from det_jupyter.config.yaml_text import read_yaml, with_lines
from det_jupyter.contract.schema.fields import MAX_TITLE, Section
from det_jupyter.contract.schema.hyperparameters import find_problems
from det_jupyter.contract.schema.key_paths import enclosing_paths, look_up, sort_problems
from det_jupyter.contract.values.entrypoints import entrypoint_name
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.searcher.methods import find_section

# What Determined's tutorial writes for scripts that ignore their length.
_LENGTH_OF_COMMANDS = {"batches": 1}


def parse_config(
    document: Mapping[str, Any],
    *,
    default_seed: int | None = None,
    template: Mapping[str, Any] | None = None,
) -> ExperimentConfig:
    """Return the complete configuration that `document` describes.

    Args:
        document: What the user wrote. A null counts as absent, except in `keys.FREE_FORM`.
        default_seed: Default of `reproducibility.experiment_seed`, which is otherwise required.
        template: The template that the document is merged over.

    Raises:
        ConfigError: All problems.
    """
    template = {} if template is None else template
    for given in (document, template):
        _check_bounds(given)
    document, template, _ = migrate(document, template)
    sound, strange = _without_strange(merge(template, document))
    filled = _fill_computed_defaults(without_nulls(sound), default_seed)
    config, problems = _validate(filled, sound)
    problems += find_lost_kind(sound)
    problems += find_contradictions(filled)
    _raise_if_any(strange, problems)
    assert config is not None, "no configuration, and no problem with it"
    return config


def check_sanity(document: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of a part of a configuration, such as a template.

    Missing keys are no problem: the other part may have them.
    """
    try:
        _check_bounds(document)
        document = migrate(document).document
        sound, strange = _without_strange(document)
        given = without_nulls(sound)
        _, problems = _validate(_with_storage_named(given), sound, is_part=True)
        problems += find_contradictions(given, is_part=True)
        _raise_if_any(strange, problems)
    except ConfigError as error:
        return error.problems
    return []


def parse_part(text: str) -> dict[str, Any]:
    """Return the document of a part of a configuration.

    Raises:
        ConfigError: All problems of the text and of the document, each with its line.
    """
    reading = read_yaml(text)
    if problems := reading.problems + check_sanity(reading.document):
        raise ConfigError(with_lines(problems, reading.lines))
    return reading.document


def without_nulls(document: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the document without nulls that count as absent."""
    return {
        key: value if path + key in FREE_FORM else _without_nulls(value, path + key)
        for key, value in document.items()
        if value is not None
    }


def _without_nulls(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return without_nulls(value, f"{path}.")
    if isinstance(value, list):
        return [without_nulls(e, f"{path}.") if isinstance(e, Mapping) else e for e in value]
    return value


def _without_strange(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Problem]]:
    """Return the document without values that JSON lacks, and a problem for each of them.

    Raises:
        ConfigError: A key is no name, so that no further check is possible.
    """
    if is_plain(document):
        return document, []
    problems = list(find_strange_values(document))
    if nameless := list(find_nameless_keys(document)):
        raise ConfigError(
            sort_problems(problems + nameless)
        )  # later checks could not name these keys
    return to_plain(document), problems


def _check_bounds(document: Mapping[str, Any]) -> None:
    if problem := find_bounds_problem(document):
        raise ConfigError([problem])


def _raise_if_any(strange: list[Problem], problems: list[Problem]) -> None:
    """Raise the problems, if there are any.

    Two kinds of problems are left out: those of values that have, or contain, a problem in
    `strange`; and those of missing keys, and of their sections, if another problem suggests the
    key for an unknown one.
    """
    places = {place for problem in strange for place in enclosing_paths(problem.path)}
    found = strange + [problem for problem in problems if problem.path not in places]
    meant = {place for problem in found for place in enclosing_paths(problem.meant)}
    if found := [each for each in found if not (each.is_missing and each.path in meant)]:
        raise ConfigError(sort_problems(found))


def _validate(
    filled: dict[str, Any], written: Mapping[str, Any], *, is_part: bool = False
) -> tuple[ExperimentConfig | None, list[Problem]]:
    problems: list[Problem] = []
    config: ExperimentConfig | None = None
    retired = find_retired(filled)
    searcher = filled.get("searcher")
    is_unknown = isinstance(searcher, dict) and searcher.get("name") not in [*kinds("searcher")]
    try:
        config = ExperimentConfig.model_validate(filled)
    except ValidationError as error:
        found = describe(error, filled, is_part=is_part, written=written)
        problems += [p for p in found if not (retired and "searcher" in enclosing_paths(p.path))]
    if is_unknown and not retired:
        problems += _find_problems_of_any_searcher(filled, written)
    hparams = filled.get("hyperparameters", {})
    if isinstance(hparams, dict):
        problems += find_problems(hparams)
    return config, problems + retired


@cache
def _any_searcher() -> type[Section]:
    """Return a section class with the fields of all searchers, all optional."""
    fields: dict[str, Any] = {}
    for searcher in kinds("searcher").values():
        for name, info in searcher.model_fields.items():
            fields[name] = (Annotated[info.annotation, *info.metadata, None], None)
    fields["name"] = (Any, None)
    return create_model("AnySearcher", __base__=Section, **fields)


def _find_problems_of_any_searcher(
    filled: dict[str, Any], written: Mapping[str, Any]
) -> list[Problem]:
    """Return the problems of a searcher whose method is unknown, or not given."""
    try:
        _any_searcher().model_validate(filled["searcher"])
    except ValidationError as error:
        return [*describe(error, filled, within=("searcher",), is_part=True, written=written)]
    return []


def _with_storage_named(document: dict[str, Any]) -> dict[str, Any]:
    """Add the default kind of storage, if a storage section has no kind."""
    storage = document.get("checkpoint_storage")
    if not isinstance(storage, dict):
        return document
    return document | {"checkpoint_storage": {"type": "shared_fs"} | storage}


def _fill_computed_defaults(document: dict[str, Any], default_seed: int | None) -> dict[str, Any]:
    """Add the defaults that depend on other values; invalid values are reported later."""
    filled = _with_storage_named(dict(document))
    if is_endless(filled):
        filled["searcher"] = {**filled["searcher"], "max_length": _LENGTH_OF_COMMANDS}
    if "name" not in filled:
        filled["name"] = _default_name(filled.get("entrypoint"))
    searcher = filled.get("searcher")
    if isinstance(searcher, dict) and (method := find_section(searcher)):
        filled["searcher"] = method.computed_defaults(searcher) | searcher
    if "min_validation_period" not in filled:
        filled["min_validation_period"] = _validation_period(searcher)
    reproducibility = filled.get("reproducibility", {})
    if default_seed is not None and isinstance(reproducibility, dict):
        filled["reproducibility"] = {"experiment_seed": default_seed} | reproducibility
    return filled


def _default_name(entrypoint: Any) -> str:
    words = entrypoint if isinstance(entrypoint, list) else [entrypoint]
    name = entrypoint_name(entrypoint) if all(isinstance(word, str) for word in words) else ""
    return name[:MAX_TITLE] if name.strip() and name.isprintable() else "experiment"


def _validation_period(searcher: Any) -> dict[str, int]:
    """Return the default `min_validation_period`: the lowest rung, one epoch, or never."""
    method = find_section(searcher) if isinstance(searcher, dict) else None
    if method is not None and (rung := method.lowest_rung(searcher)) is not None:
        return rung.to_document()
    length = look_up(searcher, "max_length")
    return {"epochs": 1} if isinstance(length, dict) and "epochs" in length else {"batches": 0}
