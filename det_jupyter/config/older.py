"""What older files write, and files that mix up two kinds of them, in the words of today.

    steps                           batches (steps.py)
    searcher.name: adaptive_simple  adaptive_asha, with the same keys
    resources.slots: 4              resources.slots_per_trial: 4; it is a key of notebooks' files

It is done to the configuration and to its template before they are merged: what a configuration
says in old words goes before what its template says in new ones. All of it gets a notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.config.paths import look_up, section, shown
from det_jupyter.config.rungs import whole
from det_jupyter.config.steps import counts_in_steps, find_steps, in_batches, step_size

_RENAMED = {"adaptive_simple": "adaptive_asha"}


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
    return _RENAMED.get(name) if isinstance(name, str) else None


def find_wrong_slots(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem if `resources.slots` is no number, and nothing else counts the slots."""
    slots = look_up(document, "resources.slots")
    if slots is not None and look_up(document, "resources.slots_per_trial") is None:
        yield (
            f"resources.slots: got {shown(slots)}; it is a key of notebooks and commands; write "
            "slots_per_trial with a whole number"
        )


def find_older(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a notice for what is read as something else, as `path: sentence.`"""
    yield from find_steps(document)
    searcher = section(document, "searcher")
    if name := _new_name(searcher):
        yield f"searcher.name: {searcher['name']} is no more; read as {name}, which replaced it."
