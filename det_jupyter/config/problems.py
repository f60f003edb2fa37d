"""Translates the errors of pydantic into problems."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.keys import NO_MEANING, TAGS, masked
from det_jupyter.config.migrate import explain_unmigrated
from det_jupyter.config.places import find_homes, misplaced
from det_jupyter.config.storages import UNWRITABLE, WAYS_OUT
from det_jupyter.config.tree import fields_of, kinds, paths_by_name, sections_at
from det_jupyter.contract.schema.fields import Section
from det_jupyter.contract.schema.key_paths import (
    format_value,
    join_all,
    look_up,
    section,
)
from det_jupyter.contract.values.addresses import HIDDEN
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import Problem

_VARIABLES = ("environment", "environment_variables")
_SLOTS = ("resources", "slots_per_trial")
_GONE = {
    "template": "only a cell, a file or --template NAME names a template; a template cannot",
    "searcher.budget": "training is limited by max_trials and max_length",
    "searcher.step_budget": "training is limited by max_trials and max_length",
    "searcher.train_stragglers": "trials that were not promoted never train on",
    "searcher.unit": "max_length has its unit with it, such as {epochs: 6}",
}
_NOT_HERE = {
    "alerts.command": "only alerts.yaml has commands; name it there, and write {name: ...} here",
    "trackers.pools": "only trackers.yaml has it: these are trackers of one experiment",
    "alerts.pools": "only alerts.yaml has it: these are alerts of one experiment",
}
_MOST_LISTED = 16
_MAPPING = "a mapping (`key: value` lines)"
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": _MAPPING,
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_attributes_type": _MAPPING,
    "model_type": _MAPPING,
    "number": "a number",
    "string_type": "text",
}
_HINTS = {
    "entrypoint": "; name a class or function of the notebook, or one of a module, such as "
    "model_def:MyTrial, or give a command",
    "searcher": "; for one trial: {name: single, metric: ..., max_length: {epochs: 1}}",
    "searcher.name": f"; expected one of {', '.join(kinds('searcher'))}",
    "searcher.metric": "; name the validation metric to judge by",
    "searcher.max_length": "; say how long to train, such as {epochs: 6}",
    "searcher.max_trials": "; give the number of trials",
    "searcher.num_rungs": "; say at how many lengths trials are compared, such as 3",
    "reproducibility.experiment_seed": "; a whole number from 0 to 2147483647",
}


def describe(
    error: ValidationError,
    document: Mapping[str, Any],
    *,
    within: tuple[str, ...] = (),
    is_part: bool = False,
    root: type[Section] = ExperimentConfig,
    written: Mapping[str, Any] | None = None,
) -> Iterator[Problem]:
    """Yield the problems in a pydantic error.

    Args:
        document: The document that was validated.
        within: Keys of the section that was validated; by default the whole document.
        is_part: Whether it is a part of a configuration: then missing keys are no problem.
        root: The section that the document is; by default an experiment's configuration.
        written: The document with its nulls, in the order in which it was written: they show
            which keys have lost their indent. By default `document`.
    """
    for details in error.errors(include_url=False):
        loc = _path_of((*within, *details["loc"]))
        may_come = details["type"] in ("missing", "union_tag_not_found")
        if not (is_part and may_come and not any(isinstance(part, int) for part in loc)):
            yield _problem(details, loc, document, root, document if written is None else written)


def _path_of(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return a location as a path that may be shown: without the kinds of sections and unions."""
    if loc[:2] in (_VARIABLES, _SLOTS) and len(loc) > 2:
        return (*loc[:2], *loc[3:])
    if loc[0] == "entrypoint":
        return (loc[0], *loc[2:])
    if loc[0] in ("alerts", "trackers"):  # an address in the place of a key
        return tuple(HIDDEN if "://" in str(part) else part for part in loc)
    if len(loc) > 1 and loc[0] in TAGS and loc[1] in kinds(str(loc[0])):
        return (loc[0], *loc[2:])
    return loc


def _problem(
    details: ErrorDetails,
    loc: tuple[int | str, ...],
    document: Mapping[str, Any],
    root: type[Section],
    written: Mapping[str, Any],
) -> Problem:
    path = join_all(loc)
    match details["type"]:
        case "missing" if path in section(written, "hyperparameters"):
            return misplaced(f"hyperparameters.{path}", "it", [path])
        case "missing":
            return Problem.missing(path, f"{_HINTS.get(path, '')}{_required_by(loc, document)}")
        case "extra_forbidden":
            if root is ExperimentConfig:
                return _explain_unknown(loc, document, written)
            above = [part for part in loc[:-1] if isinstance(part, str)]
            names = fields_of(sections_at(above, root=root))
            return Problem(path, f"unknown key; there are {', '.join(names)}")
        case "union_tag_not_found" if isinstance(details["input"], Mapping):
            return Problem.missing(f"{path}.name", f"{_HINTS['searcher.name']}")
        case "union_tag_invalid":
            tag = details["ctx"]["discriminator"].strip("'")
            return _wrong_kind(path, tag, details["input"].get(tag))
    given = masked(path, details["input"])
    return Problem(
        path, f"got {format_value(given)}, expected {_expected(details)}{_quoting(details)}"
    )


def _required_by(loc: Sequence[int | str], document: Mapping[str, Any]) -> str:
    """Return in brackets why a key is required; "" if its section always requires it."""
    above = join_all(loc[:-1])
    if above in TAGS and (kind := look_up(document, tag := f"{above}.{TAGS[above]}")):
        fields = [model.model_fields.get(str(loc[-1])) for model in kinds(above).values()]
        is_of_all = all(info is not None and info.is_required() for info in fields)
        return "" if is_of_all else f" ({tag}: {kind})"
    return f" ({above} is given)" if len(loc) > 2 else ""


def _wrong_kind(path: str, tag: str, given: Any) -> Problem:
    if path == "checkpoint_storage" and given in UNWRITABLE:
        return Problem(
            f"{path}.{tag}", f"got {given!r}, which this version cannot write to; {WAYS_OUT}"
        )
    is_searcher = path == "searcher" and isinstance(given, str)
    near = get_close_matches(given.lower(), kinds(path), n=1) if is_searcher else []
    meant = f"; did you mean {near[0]}?" if near else ""
    return Problem(
        f"{path}.{tag}",
        f"got {format_value(given)}, expected one of {', '.join(kinds(path))}{meant}",
    )


def _quoting(details: ErrorDetails) -> str:
    """Return how to write the value, if only its quotes are wrong, else ""."""
    given, kind = details["input"], details["type"]
    if kind == "string_type" and isinstance(given, (int, float)):
        return f'; write "{format_value(given)}"'
    if kind == "number" and isinstance(given, str) and re.fullmatch(r"-?[0-9.]+", given):
        return f"; write {given}"
    return ""


def _expected(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    match kind:
        case "literal_error":
            known = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            return listed(known, last="or")
        case "greater_than_equal":
            return f"at least {context['ge']}"
        case "less_than_equal":
            return f"at most {context['le']}"
        case "greater_than":
            return f"a number above {context['gt']:g}"
        case "string_pattern_mismatch":
            return "an absolute path"
        case "string_too_long":
            return f"at most {context['max_length']} characters"
        case "too_long":
            return f"at most {context['max_length']} items"
        case _:
            return _EXPECTED.get(kind) or details["msg"].removeprefix("expected ")


def _explain_unknown(
    loc: Sequence[int | str], document: Mapping[str, Any], written: Mapping[str, Any]
) -> Problem:
    parts = [part for part in loc if isinstance(part, str)]
    path, here = ".".join(parts), join_all(loc)
    if explained_by := (_GONE | _NOT_HERE).get(path):
        return Problem(here, f"unknown key; {explained_by}")
    if explained := explain_unmigrated(here, document):
        return explained
    *above, key = parts
    if not above and "." in key:
        outer, _, rest = key.partition(".")
        return Problem(here, f"unknown key; only changes have dots: write {rest} below {outer}")
    if (
        len(above) == 1
        and above[0] in TAGS
        and (other := _of_another_kind(above[0], key, document))
    ):
        return Problem(here, other)
    if homes := find_homes(key, written, above):
        return misplaced(here, "unknown key; it", homes)
    names = list(fields_of(sections_at(above, document)))
    suggestion, meant = _suggestion(key, above, names)
    return Problem(here, f"unknown key; {suggestion}", meant)


def _of_another_kind(section: str, key: str, document: Mapping[str, Any]) -> str | None:
    having = [kind for kind, model in kinds(section).items() if key in model.model_fields]
    if not having:
        return None
    kind = look_up(document, f"{section}.{TAGS[section]}")
    verb = "has" if len(having) == 1 else "have"
    return f"{kind} does not have it; {listed(having)} {verb}"


def _suggestion(key: str, above: Sequence[str], names: Sequence[str]) -> tuple[str, str]:
    """Return a remedy for an unknown key, and the path of the likely key, or ""."""
    if nearest := get_close_matches(key, names, n=1):
        return f"did you mean {nearest[0]}?", ".".join((*above, nearest[0]))
    by_name = {name: paths[0] for name, paths in paths_by_name().items()}
    elsewhere = [name for name in by_name if by_name[name] != ".".join((*above, name))]
    if nearest := get_close_matches(key, elsewhere, n=1, cutoff=0.8):
        return f"did you mean {by_name[nearest[0]]}?", by_name[nearest[0]]
    if len(names) > _MOST_LISTED:
        return "remove it", ""
    used = (name for name in names if ".".join((*above, name)) not in NO_MEANING)
    return f"expected one of {', '.join(sorted(used))}", ""
