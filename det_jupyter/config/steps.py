"""Files of Determined before 0.13 count training in steps; what they say, in batches.

A step is `batches_per_step` batches, 100 if the file does not say. Such a file is not converted in
silence: each value is refused with what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.config.paths import look_up, shown
from det_jupyter.config.rungs import whole
from det_jupyter.lengths import Length

_DEFAULT = 100
_PERIODS = ("min_validation_period", "min_checkpoint_period")
_LENGTHS = {"max_steps": "max_length", "target_trial_steps": "max_length"}
_RENAMED = _LENGTHS | {"step_budget": "budget", "steps_per_round": "length_per_round"}


def counts_in_steps(document: Mapping[str, Any]) -> bool:
    """Return whether a configuration has a key that Determined had only while it had steps."""
    searcher = document.get("searcher")
    return "batches_per_step" in document or (
        isinstance(searcher, Mapping) and not _RENAMED.keys().isdisjoint(searcher)
    )


def length_of_steps(document: Mapping[str, Any], steps: Any) -> Length | None:
    """Return so many steps as a length, None if it is no number of them."""
    amount = whole(steps)
    return None if amount is None or amount < 0 else Length("batches", amount * _step(document)[0])


def searcher_in_batches(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the searcher section with the names that its keys got when steps became batches."""
    searcher = dict(document["searcher"])
    for old, new in _RENAMED.items():
        length = length_of_steps(document, searcher.pop(old, None))
        if length is not None:
            searcher.setdefault(new, length.to_document())
    return searcher


def explain_steps(path: str, document: Mapping[str, Any]) -> str | None:
    """Return what to say of a key that there was with steps only; None if it is none."""
    if path == "batches_per_step":
        return _explain_step(document)
    section, _, key = path.rpartition(".")
    if section != "searcher" or key not in _LENGTHS:
        return None
    given = look_up(document, path)
    if look_up(document, f"searcher.{_LENGTHS[key]}") is not None:
        return f"searcher.{_LENGTHS[key]} has its place; remove it"
    length = length_of_steps(document, given)
    remedy = "{batches: ...}" if length is None else _flow(length)
    return f"got {shown(given)}{_in_steps(document)}; write {_LENGTHS[key]}: {remedy}"


def _explain_step(document: Mapping[str, Any]) -> str:
    if "scheduling_unit" in document:
        return "scheduling_unit has its place; remove it"
    return f"there are no steps any more; write scheduling_unit: {_step(document)[0]}"


def find_bare_steps(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for each bare number that counted steps; elsewhere it counts batches."""
    if not counts_in_steps(document):
        return
    for path in _PERIODS:
        given = document.get(path)
        length = length_of_steps(document, given)
        if length is not None and length.amount > 0:
            yield f"{path}: got {given}{_in_steps(document)}; write {_flow(length)}"
    given = look_up(document, "searcher.max_length")
    length = length_of_steps(document, given)
    if length is not None and length.amount > 0:
        yield (
            f"searcher.max_length: got {given} in a file that counts in steps; write "
            f"{{batches: {given}}}, or {_flow(length)} if it counts steps"
        )


def _in_steps(document: Mapping[str, Any]) -> str:
    size, source = _step(document)
    return f", in steps of {size} batches ({source})"


def _step(document: Mapping[str, Any]) -> tuple[int, str]:
    """Return the batches of a step, and where that is from.

    `scheduling_unit` is what `batches_per_step` was renamed to: a file may have been changed in
    part.
    """
    for key in ("batches_per_step", "scheduling_unit"):
        size = whole(document.get(key))
        if size is not None and size > 0:
            return size, key
    return _DEFAULT, "batches_per_step is not given"


def _flow(length: Length) -> str:
    return f"{{{length.unit}: {length.amount}}}"
