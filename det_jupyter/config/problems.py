"""Pydantic's findings in our words: `path: got X, expected Y`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from det_jupyter.config.paths import dotted, either, shown
from det_jupyter.config.searchers import SEARCHERS

STORAGES = ("shared_fs", "directory", "s3", "gcs", "azure")
_WRITABLE = STORAGES[:2]
_TAGS = {"searcher": set(SEARCHERS), "checkpoint_storage": set(STORAGES)}
_VARIABLES = ("environment", "environment_variables")
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
    "entrypoint": "; name the class of your trial, or a function",
    "searcher": "; for one trial: {name: single, metric: ..., max_length: {epochs: 1}}",
    "searcher.name": f"; expected one of {', '.join(SEARCHERS)}",
    "searcher.metric": "; name the validation metric to judge by",
    "searcher.max_length": "; say how long to train, such as {epochs: 6}",
    "searcher.max_trials": "; say how many trials there shall be",
    "searcher.num_rungs": "; say at how many lengths trials are compared, such as 3",
    "reproducibility.experiment_seed": "; a whole number from 0 to 2147483647",
}


def describe(
    error: ValidationError,
    document: Mapping[str, Any],
    *,
    within: tuple[str, ...] = (),
    is_part: bool = False,
) -> Iterator[str]:
    """Yield one line for each problem.

    Args:
        error: What pydantic found.
        document: The whole document.
        within: The section that it looked at; by default at all.
        is_part: What is missing may still come: it is no problem.
    """
    for details in error.errors(include_url=False):
        loc = _without_tag((*within, *details["loc"]))
        may_come = details["type"] in ("missing", "union_tag_not_found")
        if not (is_part and may_come and not any(isinstance(part, int) for part in loc)):
            yield _line(details, loc, document)


def _without_tag(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Leave out which kind of section pydantic looked at: it is no part of the path."""
    if loc[:2] == _VARIABLES and len(loc) > 2:
        return (*_VARIABLES, *loc[3:])
    if len(loc) > 1 and loc[1] in _TAGS.get(str(loc[0]), ()):
        return (loc[0], *loc[2:])
    return loc


def _line(details: ErrorDetails, loc: tuple[int | str, ...], document: Mapping[str, Any]) -> str:
    path = dotted(loc)
    match details["type"]:
        case "missing":
            return f"{path}: missing{_HINTS.get(path, '')}"
        case "extra_forbidden":
            from det_jupyter.config.typos import explain_unknown  # loads what has no meaning here

            keys = [part for part in loc if isinstance(part, str)]
            return f"{path}: {explain_unknown(keys, document)}"
        case "union_tag_not_found" if isinstance(details["input"], Mapping):
            return f"{path}.name: missing{_HINTS['searcher.name']}"
        case "union_tag_invalid":
            tag = details["ctx"]["discriminator"].strip("'")
            return _wrong_kind(path, tag, details["input"].get(tag))
    given = details["input"]
    return f"{path}: got {shown(given)}, expected {_expected(details)}{_quoting(details)}"


def _wrong_kind(path: str, tag: str, given: Any) -> str:
    known = list(SEARCHERS) if path == "searcher" else list(_WRITABLE)
    near = get_close_matches(given.lower(), SEARCHERS, n=1) if isinstance(given, str) else []
    meant = f"; did you mean {near[0]}?" if near and path == "searcher" else ""
    return f"{path}.{tag}: got {shown(given)}, expected one of {', '.join(known)}{meant}"


def _quoting(details: ErrorDetails) -> str:
    """Return how to write it, if only the quotes are wrong."""
    given, kind = details["input"], details["type"]
    if kind == "string_type" and isinstance(given, (int, float)):
        return f'; write "{shown(given)}"'
    if kind == "number" and isinstance(given, str) and re.fullmatch(r"-?[0-9.]+", given):
        return f"; write {given}"
    return ""


def _expected(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    match kind:
        case "literal_error":
            return either(context["expected"].replace("'", "").replace(" or ", ", ").split(", "))
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
