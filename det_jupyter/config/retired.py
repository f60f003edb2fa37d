"""Searchers that are gone, and what replaces each, with the user's own values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.contract.schema.fields import whole
from det_jupyter.contract.schema.key_paths import section, shown
from det_jupyter.contract.values.lengths import Length, parse_length
from det_jupyter.errors import Problem
from det_jupyter.searcher.rung_lengths import divisor_of, most_rungs

# name: the searcher that replaces it, and what to say of the numbers in it
_BUDGET = " (choose the number of trials: the budget was one of training)"
_REPLACED = {
    "adaptive": ("adaptive_asha", _BUDGET),
    "sync_halving": ("async_halving", _BUDGET),
    "pbt": ("adaptive_asha", ""),
    "custom": ("optuna", " with numbers of your own, and the sampler that you want"),
}
RETIRED = frozenset(_REPLACED)
_KEPT = (
    "metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid",
    "divisor", "mode", "max_rungs", "bracket_rungs",
)  # fmt: skip
_SOME_TRIALS = 16


def find_retired(document: Mapping[str, Any]) -> list[Problem]:
    """Return a problem if the searcher is one of old; it holds the section to write instead."""
    old = section(document, "searcher")
    name = old.get("name")
    if not isinstance(name, str) or name not in _REPLACED:
        return []
    new, remark = _REPLACED[name]
    length = _full_length(old)
    written = {"name": new, "metric": "..."} | {key: old[key] for key in _KEPT if key in old}
    written["max_trials"] = max(1, whole(old.get("population_size")) or _SOME_TRIALS)
    written["max_length"] = length.to_document()
    if new == "async_halving":
        most = most_rungs(length.amount, divisor_of(old) or 4)
        written["num_rungs"] = min(max(1, whole(old.get("num_rungs")) or 1), most)
    text = f"{name} is no more; write searcher: {_flow(written)}{remark}"
    return [Problem("searcher.name", text)]


def _full_length(old: Mapping[str, Any]) -> Length:
    """Return how long a trial trained: in one go, or in the rounds of `pbt`."""
    rounds = max(1, whole(old.get("num_rounds")) or 1) if "max_length" not in old else 1
    try:
        length = parse_length(old.get("max_length", old.get("length_per_round")))
    except ValueError:
        length = Length("epochs", 1)
    return Length(length.unit, max(1, length.amount * rounds))


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else shown(value)
