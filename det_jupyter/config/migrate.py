"""Translates keys of older files into present ones; the rest of config/ has only the latter.

    searcher.name: adaptive_simple      adaptive_asha, with the same keys
    resources.slots: 4                  slots_per_trial: 4; the key is of Determined's notebooks
    environment_variables: {gpu: ...}   {cuda: ...}
    log_policies: action: {type: a}     action: a
    checkpoint_storage: {type: directory, host_path: /a}      container_path: /a

Files of Determined before 0.13 count training in steps of `batches_per_step` batches, by
default 100; here they are read in batches:

    batches_per_step: 50            scheduling_unit: 50
    min_validation_period: 5        min_validation_period: {batches: 250}
    searcher.max_steps: 10          searcher.max_length: {batches: 500}

A bare number counts steps only in a file with a key that only such versions had; elsewhere it
counts batches. A configuration and its template count as one file.

Both are translated before they are merged, so an old key of a configuration takes precedence over
the present one of its template. A changed meaning gets a notice. Invalid values are not
translated: later stages report them.

Searchers that are gone (`find_retired`) have no equivalent: they are refused, with the section to
write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from det_jupyter.config.keys import NO_MEANING
from det_jupyter.contract.schema.fields import as_whole
from det_jupyter.contract.schema.key_paths import format_value, look_up, section
from det_jupyter.contract.values.lengths import Length, parse_length
from det_jupyter.contract.values.text import count
from det_jupyter.errors import Problem
from det_jupyter.searcher.rung_lengths import divisor_of, most_rungs

_NEW_NAMES = {"adaptive_simple": "adaptive_asha"}
_DEFAULT = 100
_PERIODS = ("min_validation_period", "min_checkpoint_period")
_RENAMED = {
    "max_steps": "max_length",
    "target_trial_steps": "max_length",
    "steps_per_round": "length_per_round",
}
_BARE = ("max_length", "length_per_round")


class Migrated(NamedTuple):
    """A configuration and its template with present keys."""

    document: Mapping[str, Any]
    template: Mapping[str, Any]
    notices: list[str]  # the keys that now have another meaning, as `path: sentence.`


def migrate(document: Mapping[str, Any], template: Mapping[str, Any] | None = None) -> Migrated:
    """Return a configuration and its template with present keys; these stay unchanged."""
    template = {} if template is None else template
    notices: list[str] = []
    if _counts_in_steps(document) or _counts_in_steps(template):
        steps = _Steps(*_step_size(document, template), notices)
        document, template = steps.in_batches(document), steps.in_batches(template)
    return Migrated(_renamed(document, notices), _renamed(template, notices), notices)


def _renamed(document: Mapping[str, Any], notices: list[str]) -> Mapping[str, Any]:
    new: dict[str, Any] = {}
    searcher, resources = section(document, "searcher"), section(document, "resources")
    if isinstance(name := searcher.get("name"), str) and (today := _NEW_NAMES.get(name)):
        new["searcher"] = {**searcher, "name": today}
        notices.append(f"searcher.name: {name} no longer exists; read as {today} instead.")
    slots = as_whole(resources.get("slots"))
    if slots is not None and resources.get("slots_per_trial") is None:
        new["resources"] = _with_new_key(resources, "slots", "slots_per_trial", slots)
        notices.append(f"resources.slots: {NO_MEANING['resources.slots']}.")
    storage = section(document, "checkpoint_storage")
    # Our first version named it `host_path`, and its experiments are still stored.
    is_ours = storage.get("type") == "directory" and storage.get("container_path") is None
    if is_ours and (path := storage.get("host_path")) is not None:
        new["checkpoint_storage"] = _with_new_key(storage, "host_path", "container_path", path)
    environment = section(document, "environment")
    if isinstance(variables := environment.get("environment_variables"), Mapping):
        named = _with_kinds_named(variables)
        new["environment"] = {**environment, "environment_variables": named}
    if isinstance(policies := document.get("log_policies"), list):
        new["log_policies"] = [_with_plain_action(policy) for policy in policies]
    return {**document, **new}


def _with_new_key(section: Mapping[str, Any], old: str, new: str, value: Any) -> dict[str, Any]:
    return {key: item for key, item in section.items() if key != old} | {new: value}


def _with_kinds_named(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return environment variables with those for `gpu`, the old name, under `cuda`."""
    if variables.get("gpu") is None:
        return variables
    lines, others = variables["gpu"], variables.get("cuda") or []
    both = [*lines, *others] if isinstance(lines, list) and isinstance(others, list) else lines
    return _with_new_key(variables, "gpu", "cuda", both)


def _with_plain_action(policy: Any) -> Any:
    action = policy.get("action") if isinstance(policy, Mapping) else None
    if isinstance(action, Mapping) and action.keys() == {"type"} and action["type"] is not None:
        return {**policy, "action": action["type"]}
    return policy


def _counts_in_steps(document: Mapping[str, Any]) -> bool:
    """Return whether a configuration has a key of the versions of Determined that had steps."""
    searcher = section(document, "searcher")
    given = (document.get("batches_per_step"), *map(searcher.get, ("step_budget", *_RENAMED)))
    return any(value is not None for value in given)


def _step_size(*documents: Mapping[str, Any]) -> tuple[int, str]:
    """Return the batches of a step, and the key that gives them, from the first document with one.

    `batches_per_step` was renamed to `scheduling_unit`, and a file may have some old keys only.
    """
    for key in ("batches_per_step", "scheduling_unit"):
        for document in documents:
            size = as_whole(document.get(key))
            if size is not None and size > 0:
                return size, key
    return _DEFAULT, "batches_per_step is not given"


@dataclass(frozen=True, slots=True)
class _Steps:
    """Converts lengths in steps to batches."""

    size: int  # batches in a step
    source: str  # the key that gives it
    notices: list[str] = field(default_factory=list)

    def in_batches(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document with its lengths in batches; invalid ones are not changed."""
        converted = dict(document)
        unit = as_whole(converted.get("batches_per_step"))
        if unit is not None and unit > 0:
            del converted["batches_per_step"]
            if converted.get("scheduling_unit") is None:
                converted["scheduling_unit"] = unit
                self._add_notice("batches_per_step", f"read as scheduling_unit: {unit}")
            else:
                remark = "ignored but as the length of a step: scheduling_unit is given"
                self._add_notice("batches_per_step", remark)
        for path in _PERIODS:
            if length := self._length(converted.get(path)):
                self._add_notice(path, self._read_as(length, ""))
            if (steps := as_whole(converted.get(path))) is not None and steps >= 0:
                converted[path] = {"batches": steps * self.size}
        if isinstance(searcher := converted.get("searcher"), Mapping):
            converted["searcher"] = self._searcher_in_batches(searcher)
        return converted

    def _searcher_in_batches(self, searcher: Mapping[str, Any]) -> dict[str, Any]:
        converted = dict(searcher)
        for key in _BARE:
            if length := self._length(searcher.get(key)):
                converted[key] = length.to_document()
        if length := self._length(searcher.get("max_length")):
            write = f"; for as many batches write {{batches: {searcher['max_length']}}}"
            self._add_notice("searcher.max_length", self._read_as(length, "") + write)
        for old, new in _RENAMED.items():
            if (length := self._length(searcher.get(old))) is None:
                continue
            del converted[old]
            if converted.get(new) is None:
                converted[new] = length.to_document()
                self._add_notice(f"searcher.{old}", self._read_as(length, f"{new}: "))
            else:
                self._add_notice(f"searcher.{old}", f"ignored: searcher.{new} is given")
        return converted

    def _length(self, steps: Any) -> Length | None:
        amount = as_whole(steps)
        return None if not amount or amount < 0 else Length("batches", amount * self.size)

    def _read_as(self, length: Length, key: str) -> str:
        steps = count(length.amount // self.size, "step")
        written = f"{key}{{{length.unit}: {length.amount}}}"
        return f"{steps} of {self.size} batches ({self.source}), read as {written}"

    def _add_notice(self, path: str, remark: str) -> None:
        self.notices.append(f"{path}: {remark}.")


def explain_unmigrated(path: str, document: Mapping[str, Any]) -> Problem | None:
    """Return the problem with an invalid number of steps; None if the key is none of steps."""
    needed = f"got {format_value(look_up(document, path))}, expected a whole number above 0; write"
    if path == "batches_per_step":
        text = f"{needed} scheduling_unit: {_step_size(document)[0]}"
        return Problem(path, text, "scheduling_unit")
    above, _, key = path.rpartition(".")
    if above == "searcher" and _RENAMED.get(key) == "max_length":
        return Problem(path, f"{needed} max_length: {{batches: ...}}", "searcher.max_length")
    return None


# By name: the searcher that replaces it, and a remark about the numbers in the new section.
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
    """Return a problem if the searcher no longer exists, with the section to write instead."""
    old = section(document, "searcher")
    name = old.get("name")
    if not isinstance(name, str) or name not in _REPLACED:
        return []
    new, remark = _REPLACED[name]
    length = _full_length(old)
    written = {"name": new, "metric": "..."} | {key: old[key] for key in _KEPT if key in old}
    written["max_trials"] = max(1, as_whole(old.get("population_size")) or _SOME_TRIALS)
    written["max_length"] = length.to_document()
    if new == "async_halving":
        most = most_rungs(length.amount, divisor_of(old) or 4)
        written["num_rungs"] = min(max(1, as_whole(old.get("num_rungs")) or 1), most)
    text = f"{name} no longer exists; write searcher: {_flow(written)}{remark}"
    return [Problem("searcher.name", text)]


def _full_length(old: Mapping[str, Any]) -> Length:
    """Return the full length of a trial; for `pbt`, of all its rounds."""
    rounds = max(1, as_whole(old.get("num_rounds")) or 1) if "max_length" not in old else 1
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
    return value if isinstance(value, str) else format_value(value)
