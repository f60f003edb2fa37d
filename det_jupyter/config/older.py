"""What older files write, and files that mix up two kinds of them, in the words of today.

    searcher.name: adaptive_simple  adaptive_asha, with the same keys
    resources.slots: 4              resources.slots_per_trial: 4; it is a key of notebooks' files

Files of Determined before 0.13 count training in steps of `batches_per_step` batches, 100 if the
file does not say; here they are read in batches:

    batches_per_step: 50            scheduling_unit: 50
    min_validation_period: 5        min_validation_period: {batches: 250}
    searcher.max_steps: 10          searcher.max_length: {batches: 500}

A bare number is steps only in a file that has a key from the time of steps; elsewhere it counts
batches. A configuration and its template are one file here.

It is done to both before they are merged: what a configuration says in old words goes before what
its template says in new ones. All of it gets a notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.config.paths import look_up, section, shown
from det_jupyter.config.rungs import whole
from det_jupyter.errors import Problem
from det_jupyter.lengths import Length
from det_jupyter.words import count

_NEW_NAMES = {"adaptive_simple": "adaptive_asha"}
_DEFAULT = 100
_PERIODS = ("min_validation_period", "min_checkpoint_period")
_LENGTHS = {"max_steps": "max_length", "target_trial_steps": "max_length"}
_RENAMED = _LENGTHS | {"step_budget": "budget", "steps_per_round": "length_per_round"}
_BARE = ("max_length", "budget", "length_per_round")


def in_words_of_today(
    document: Mapping[str, Any], template: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return a configuration and its template with the keys that there are now.

    What has none in older files is returned as it is, and what is wrong stays: it is found later.
    """
    if counts_in_steps(document) or counts_in_steps(template):
        size, _ = step_size(document, template)
        document, template = in_batches(document, size), in_batches(template, size)
    return _renamed(document), _renamed(template)


def _renamed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    searcher, resources = section(document, "searcher"), section(document, "resources")
    if name := _new_name(searcher):
        document = {**document, "searcher": {**searcher, "name": name}}
    slots = whole(resources.get("slots"))
    if slots is not None and resources.get("slots_per_trial") is None:
        others = {key: value for key, value in resources.items() if key != "slots"}
        document = {**document, "resources": {**others, "slots_per_trial": slots}}
    return document


def _new_name(searcher: Mapping[str, Any]) -> str | None:
    name = searcher.get("name")
    return _NEW_NAMES.get(name) if isinstance(name, str) else None


def find_wrong_slots(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem if `resources.slots` is no number, and nothing else counts the slots."""
    slots = look_up(document, "resources.slots")
    if slots is not None and look_up(document, "resources.slots_per_trial") is None:
        yield (
            Problem(
                "resources.slots",
                f"got {shown(slots)}; it is a key of notebooks and commands; write "
                "slots_per_trial with a whole number",
            )
        )


def find_older(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a notice for what is read as something else, as `path: sentence.`"""
    yield from find_steps(document)
    searcher = section(document, "searcher")
    if name := _new_name(searcher):
        yield f"searcher.name: {searcher['name']} is no more; read as {name}, which replaced it."


def counts_in_steps(document: Mapping[str, Any]) -> bool:
    """Return whether a configuration has a key that Determined had only while it had steps."""
    searcher = section(document, "searcher")
    given = (document.get("batches_per_step"), *map(searcher.get, _RENAMED))
    return any(value is not None for value in given)


def step_size(*documents: Mapping[str, Any]) -> tuple[int, str]:
    """Return the batches of a step, and where that is from; the first that says so counts.

    `scheduling_unit` is what `batches_per_step` was renamed to: a file may have been changed in
    part.
    """
    for key in ("batches_per_step", "scheduling_unit"):
        for document in documents:
            size = whole(document.get(key))
            if size is not None and size > 0:
                return size, key
    return _DEFAULT, "batches_per_step is not given"


def in_batches(document: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Return a document that counts in steps of so many batches with lengths in batches.

    What is no number of steps stays as it is: `explain_steps` says what is wrong with it.
    """
    converted = dict(document)
    unit = whole(converted.get("batches_per_step"))
    if unit is not None and unit > 0:
        del converted["batches_per_step"]
        if converted.get("scheduling_unit") is None:
            converted["scheduling_unit"] = unit
    for path in _PERIODS:
        if (steps := whole(converted.get(path))) is not None and steps >= 0:
            converted[path] = {"batches": steps * size}
    searcher = converted.get("searcher")
    if isinstance(searcher, Mapping):
        converted["searcher"] = _searcher_in_batches(searcher, size)
    return converted


def _searcher_in_batches(searcher: Mapping[str, Any], size: int) -> dict[str, Any]:
    converted = dict(searcher)
    for key in _BARE:
        if length := _length(converted.get(key), size):
            converted[key] = length.to_document()
    for old, new in _RENAMED.items():
        if length := _length(converted.get(old), size):
            del converted[old]
            if converted.get(new) is None:
                converted[new] = length.to_document()
    return converted


def _length(steps: Any, size: int) -> Length | None:
    amount = whole(steps)
    return None if amount is None or amount <= 0 else Length("batches", amount * size)


def explain_steps(path: str, document: Mapping[str, Any]) -> Problem | None:
    """Return the problem with what is no number of steps; None if no such file has the key."""
    given = look_up(document, path)
    needed = f"got {shown(given)}, expected a whole number above 0; write"
    if path == "batches_per_step":
        text = f"{needed} scheduling_unit: {step_size(document)[0]}"
        return Problem(path, text, "scheduling_unit")
    section, _, key = path.rpartition(".")
    if section != "searcher" or key not in _LENGTHS:
        return None
    text = f"{needed} {_LENGTHS[key]}: {{batches: ...}}"
    return Problem(path, text, f"searcher.{_LENGTHS[key]}")


def find_steps(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a notice for each value in steps, as `path: sentence.`"""
    if not counts_in_steps(document):
        return
    size, source = step_size(document)
    unit = whole(document.get("batches_per_step"))
    if unit is not None and document.get("scheduling_unit") is not None:
        yield "batches_per_step: ignored but as the length of a step: scheduling_unit is given."
    elif unit is not None:
        yield f"batches_per_step: read as scheduling_unit: {unit}."

    def read_as(length: Length) -> str:
        return f"{count(length.amount // size, 'step')} of {size} batches ({source}), read as"

    for path in _PERIODS:
        if length := _length(document.get(path), size):
            yield f"{path}: {read_as(length)} {_flow(length)}."
    searcher = section(document, "searcher")
    for old, new in _RENAMED.items():
        length = _length(searcher.get(old), size)
        if length and searcher.get(new) is not None:
            yield f"searcher.{old}: ignored: searcher.{new} is given."
        elif length:
            yield f"searcher.{old}: {read_as(length)} {new}: {_flow(length)}."
    if length := _length(searcher.get("max_length"), size):
        yield (
            f"searcher.max_length: {read_as(length)} {_flow(length)}; for as many batches "
            f"write {{batches: {searcher['max_length']}}}."
        )


def _flow(length: Length) -> str:
    return f"{{{length.unit}: {length.amount}}}"
