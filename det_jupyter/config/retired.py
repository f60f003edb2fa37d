"""Searchers that are gone, and what replaces each, made from the user's own values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from det_jupyter.config.lengths import Length, parse_length
from det_jupyter.config.paths import shown
from det_jupyter.config.rungs import divisor_of, most_rungs, whole

_KEPT = ("metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid")
_SOME_TRIALS = 16


def find_retired(document: Mapping[str, Any]) -> list[str]:
    """Return a problem if the searcher is one of old; it holds the section to write instead."""
    searcher = document.get("searcher")
    name = searcher.get("name") if isinstance(searcher, Mapping) else None
    if not isinstance(searcher, Mapping) or not isinstance(name, str) or name not in _REPLACED:
        return []
    fields = {"metric": "..."} | {key: searcher[key] for key in _KEPT if key in searcher}
    replacement = _REPLACED[name](searcher)
    written = {"name": replacement.pop("name"), **fields, **replacement}
    remark = _REMARKS.get(name, "")
    return [f"searcher.name: {name} is no more; write searcher: {_flow(written)}{remark}"]


def _adaptive_simple(old: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": "adaptive_asha",
        "max_trials": _trials(old),
        "max_length": _length(old).to_document(),
        **_given(old, "mode", "divisor", "max_rungs"),
    }


def _adaptive(old: Mapping[str, Any]) -> dict[str, Any]:
    brackets, divisor = _brackets(old), divisor_of(old) or 4.0
    # The shares of the trials that adaptive_asha gives to its brackets.
    shares = [divisor ** (rungs - 1) / rungs for rungs in brackets]
    costs = [_cost_of_trial(old, rungs) for rungs in brackets]
    cost = sum(s * c for s, c in zip(shares, costs, strict=True)) / sum(shares)
    return {
        "name": "adaptive_asha",
        "max_trials": max(1, int(_budget(old) / cost)),
        "max_length": _length(old).to_document(),
        **_given(old, "mode", "divisor", "max_rungs", "bracket_rungs"),
    }


def _sync_halving(old: Mapping[str, Any]) -> dict[str, Any]:
    rungs = min(max(1, whole(old.get("num_rungs")) or 1), _most_rungs(old))
    return {
        "name": "async_halving",
        "num_rungs": rungs,
        "max_trials": max(1, int(_budget(old) / _cost_of_trial(old, rungs))),
        "max_length": _length(old).to_document(),
        **_given(old, "divisor"),
    }


def _pbt(old: Mapping[str, Any]) -> dict[str, Any]:
    step = _length(old, "length_per_round", "steps_per_round")
    rounds = max(1, whole(old.get("num_rounds")) or 1)
    return {
        "name": "adaptive_asha",
        "max_trials": _trials(old, "population_size"),
        "max_length": {step.unit: step.amount * rounds},
    }


def _custom(old: Mapping[str, Any]) -> dict[str, Any]:
    unit = old.get("unit")
    length = Length(unit if unit in ("batches", "records", "epochs") else "batches", 100)
    return {
        "name": "optuna",
        "max_trials": _SOME_TRIALS,
        "max_length": _length(old, default=length).to_document(),
    }


_REPLACED: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "adaptive": _adaptive,
    "adaptive_simple": _adaptive_simple,
    "sync_halving": _sync_halving,
    "pbt": _pbt,
    "custom": _custom,
}
RETIRED = frozenset(_REPLACED)
_REMARKS = {
    "adaptive": " (about as many trials as the budget paid for)",
    "sync_halving": " (about as many trials as the budget paid for)",
    "custom": " with numbers of your own, and the sampler that you want",
}


def _given(old: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: old[key] for key in keys if key in old}


def _trials(old: Mapping[str, Any], key: str = "max_trials") -> int:
    return max(1, whole(old.get(key)) or _SOME_TRIALS)


def _length(old: Mapping[str, Any], *keys: str, default: Length | None = None) -> Length:
    for key in keys or ("max_length", "target_trial_steps", "max_steps"):
        try:
            found = parse_length(old.get(key))
        except ValueError:
            continue
        return Length(found.unit, max(1, found.amount))
    return default or Length("epochs", 1)


def _budget(old: Mapping[str, Any]) -> float:
    return float(_length(old, "budget", "step_budget", default=_length(old)).amount)


def _cost_of_trial(old: Mapping[str, Any], rungs: int) -> float:
    """Return the training of a trial, on the average: 1 of `divisor` goes on at each rung."""
    divisor, top = divisor_of(old) or 4.0, _length(old).amount
    lengths = [top / divisor**step for step in reversed(range(min(rungs, 20)))]
    increments = [
        length - before for before, length in zip([0.0, *lengths], lengths, strict=False)
    ]
    return sum(amount / divisor**rung for rung, amount in enumerate(increments))


def _most_rungs(old: Mapping[str, Any]) -> int:
    return most_rungs(_length(old).amount, divisor_of(old) or 4.0)


def _brackets(old: Mapping[str, Any]) -> list[int]:
    most = min(max(1, whole(old.get("max_rungs")) or 5), _most_rungs(old))
    first = {"aggressive": most, "conservative": 1}.get(str(old.get("mode")), (most - 1) // 2 + 1)
    return list(range(min(first, most), most + 1))


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else shown(value)
