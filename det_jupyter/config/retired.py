"""Searchers that are gone, and what replaces each, made from the user's own values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from det_jupyter.config.paths import look_up, section, shown
from det_jupyter.config.rungs import divisor_of, most_rungs, whole
from det_jupyter.errors import Problem
from det_jupyter.lengths import UNITS, Length, TrainingUnits, parse_length

_KEPT = ("metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid")
_SOME_TRIALS = 16


def find_retired(document: Mapping[str, Any]) -> list[Problem]:
    """Return a problem if the searcher is one of old; it holds the section to write instead."""
    old = section(document, "searcher")
    name = old.get("name")
    if not isinstance(name, str) or name not in _REPLACED:
        return []
    fields = {"metric": "..."} | _given(old, *_KEPT)
    units = _units(document)
    replacement = _REPLACED[name](old, units)
    written = {"name": replacement.pop("name"), **fields, **replacement}
    remark = _REMARKS.get(name, "")
    if name in _BUDGETED and _num_full_trials(old, units) is None:
        remark = " (choose the number of trials: how many the budget paid for is not known)"
    return [
        Problem("searcher.name", f"{name} is no more; write searcher: {_flow(written)}{remark}")
    ]


def _adaptive(old: Mapping[str, Any], units: TrainingUnits | None) -> dict[str, Any]:
    brackets, divisor = _brackets(old), divisor_of(old) or 4.0
    # The shares of the trials that adaptive_asha gives to its brackets.
    shares = [divisor ** (rungs - 1) / rungs for rungs in brackets]
    costs = [_cost_of_trial(old, rungs) for rungs in brackets]
    cost = sum(s * c for s, c in zip(shares, costs, strict=True)) / sum(shares)
    return {
        "name": "adaptive_asha",
        "max_trials": _affordable(old, units, cost),
        "max_length": _length(old).to_document(),
        **_given(old, "mode", "divisor", "max_rungs", "bracket_rungs"),
    }


def _sync_halving(old: Mapping[str, Any], units: TrainingUnits | None) -> dict[str, Any]:
    rungs = min(max(1, whole(old.get("num_rungs")) or 1), _most_rungs(old))
    return {
        "name": "async_halving",
        "num_rungs": rungs,
        "max_trials": _affordable(old, units, _cost_of_trial(old, rungs)),
        "max_length": _length(old).to_document(),
        **_given(old, "divisor"),
    }


def _pbt(old: Mapping[str, Any], _units: TrainingUnits | None) -> dict[str, Any]:
    step = _length(old, "length_per_round")
    rounds = max(1, whole(old.get("num_rounds")) or 1)
    return {
        "name": "adaptive_asha",
        "max_trials": max(1, whole(old.get("population_size")) or _SOME_TRIALS),
        "max_length": {step.unit: step.amount * rounds},
    }


def _custom(old: Mapping[str, Any], _units: TrainingUnits | None) -> dict[str, Any]:
    unit = old.get("unit")
    length = Length(unit if unit in UNITS else "batches", 100)
    return {
        "name": "optuna",
        "max_trials": _SOME_TRIALS,
        "max_length": _length(old, default=length).to_document(),
    }


_REPLACED: dict[str, Callable[[Mapping[str, Any], TrainingUnits | None], dict[str, Any]]] = {
    "adaptive": _adaptive,
    "sync_halving": _sync_halving,
    "pbt": _pbt,
    "custom": _custom,
}
RETIRED = frozenset(_REPLACED)
_BUDGETED = ("adaptive", "sync_halving")
_REMARKS = {
    "adaptive": " (about as many trials as the budget paid for)",
    "sync_halving": " (about as many trials as the budget paid for)",
    "custom": " with numbers of your own, and the sampler that you want",
}


def _given(old: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: old[key] for key in keys if key in old}


def _length(
    old: Mapping[str, Any], key: str = "max_length", default: Length | None = None
) -> Length:
    found = _given_length(old, key)
    return default or Length("epochs", 1) if found is None else found


def _given_length(old: Mapping[str, Any], key: str) -> Length | None:
    try:
        found = parse_length(old.get(key))
    except ValueError:
        return None
    return Length(found.unit, max(1, found.amount))


def _units(document: Mapping[str, Any]) -> TrainingUnits | None:
    size = whole(look_up(document, "hyperparameters.global_batch_size"))
    records = whole(document.get("records_per_epoch"))
    if size is None or records is None or min(size, records) < 1:
        return None
    return TrainingUnits(
        global_batch_size=size,
        batches_per_epoch=max(1, records // size),
        records_per_epoch=records,
    )


def _affordable(old: Mapping[str, Any], units: TrainingUnits | None, cost: float) -> int:
    """Return how many trials the budget pays for, at this cost of one in units of `max_length`."""
    trials = _num_full_trials(old, units)
    return _SOME_TRIALS if trials is None else max(1, int(trials * _length(old).amount / cost))


def _num_full_trials(old: Mapping[str, Any], units: TrainingUnits | None) -> float | None:
    """Return how often a budget pays for the full length of a trial, None if that is not known."""
    budget, length = _given_length(old, "budget"), _given_length(old, "max_length")
    if budget is None or length is None:
        return None
    if budget.unit == length.unit:
        return budget.amount / length.amount
    return units.to_batches(budget) / units.to_batches(length) if units is not None else None


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
