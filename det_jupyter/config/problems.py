"""Pydantic's findings in our words: `path: got X, expected Y`, and the nearest name for a typo."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

# Keys that Determined has and this version has not: saying so is better than "unknown".
_NOT_YET = {
    "bind_mounts", "debug", "integrations", "log_policies", "pbs", "profiling", "project",
    "retention_policy", "security", "slurm", "tensorboard_storage", "workspace",
    "resources.devices", "resources.is_single_node", "resources.max_slots",
    "resources.native_parallel", "resources.resource_pool", "resources.shm_size",
    "resources.weight",
    "searcher.bracket_rungs", "searcher.divisor", "searcher.max_concurrent_trials",
    "searcher.max_rungs", "searcher.max_time", "searcher.max_trials", "searcher.mode",
    "searcher.num_rungs", "searcher.source_checkpoint_uuid", "searcher.source_trial_id",
    "searcher.stop_once", "searcher.time_metric",
    "optimizations.auto_tune_tensor_fusion", "optimizations.gradient_compression",
    "optimizations.grad_updates_size_file", "optimizations.mixed_precision",
    "optimizations.tensor_fusion_cycle_time", "optimizations.tensor_fusion_threshold",
    "checkpoint_storage.save_experiment_best", "checkpoint_storage.save_trial_best",
    "checkpoint_storage.save_trial_latest", "environment.image",
}  # fmt: skip
_SEARCHERS = {"random", "grid", "adaptive_asha", "async_halving", "custom"}
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping (`key: value` lines)",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping (`key: value` lines)",
    "number": "a number",
    "string_type": "text",
}


def describe(error: ValidationError, root: type[BaseModel]) -> Iterator[str]:
    """Yield one line for each problem, sorted by path."""
    for details in sorted(error.errors(), key=lambda item: [str(part) for part in item["loc"]]):
        yield _line(details, root)


def _line(details: ErrorDetails, root: type[BaseModel]) -> str:
    path = _dotted(details["loc"])
    got = _shown(details["input"])
    kind = details["type"]
    context = details.get("ctx", {})
    if kind == "missing":
        return f"{path}: missing{_hint_for_missing(path)}"
    if kind == "extra_forbidden":
        return f"{path}: {_explain_unknown(path, details['loc'], root)}"
    if path == "searcher.name" and details["input"] in _SEARCHERS:
        return f"{path}: got {got}, which this version does not have yet; expected single"
    match kind:
        case "literal_error":
            expected = context["expected"].replace("'", "")
        case "greater_than_equal":
            expected = f"at least {context['ge']}"
        case "less_than_equal":
            expected = f"at most {context['le']}"
        case "string_pattern_mismatch":
            expected = "an absolute path" if context["pattern"] == "^/" else "NAME=value"
        case _:
            expected = _EXPECTED.get(kind) or details["msg"].removeprefix("expected ")
    return f"{path}: got {got}, expected {expected}"


def _dotted(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _hint_for_missing(path: str) -> str:
    hints = {
        "entrypoint": "; name the class of your trial",
        "searcher": "; for one trial: {name: single, metric: ..., max_length: {epochs: 1}}",
        "searcher.metric": "; name the validation metric to judge by",
        "searcher.max_length": "; say how long to train, such as {epochs: 6}",
    }
    return hints.get(path, "")


def _explain_unknown(path: str, loc: tuple[int | str, ...], root: type[BaseModel]) -> str:
    if path in _NOT_YET:
        return "this version of det_jupyter does not have it yet; remove it"
    if path == "resources.slots":
        return "unknown key; the slots of a trial are resources.slots_per_trial"
    known = list(_section_at(loc[:-1], root).model_fields)
    nearest = get_close_matches(str(loc[-1]), known, n=1)
    return (
        f"unknown key; did you mean {nearest[0]}?"
        if nearest
        else (f"unknown key; expected one of {', '.join(sorted(known))}")
    )


def _section_at(loc: tuple[int | str, ...], root: type[BaseModel]) -> type[BaseModel]:
    section = root
    for part in loc:
        annotation = section.model_fields[str(part)].annotation
        candidates = [annotation, *get_args(annotation)]
        section = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return section
