"""Finds where keys belong that are in the wrong place, such as with too little or much indent.

hyperparameters:            lr has lost its indent: it is a usual hyperparameter, and that
lr: 0.1                     section, which has no value, is right above it
searcher:
  max_length:               epochs is the key of a length, and this one has no value
  epochs: 1
hyperparameters:
  lr: {type: double}
minval: 0.1                 a key that a hyperparameter still needs
resources:
  max_restarts: 3           a key of the top level
searcher:                   a null, and a name that is the one of a searcher
name: single
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any

from det_jupyter.config.dotted_changes import SHORT
from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.keys import NO_EFFECT
from det_jupyter.config.tree import (
    fields_of,
    is_in_list,
    kinds,
    paths_by_name,
    sections_at,
)
from det_jupyter.contract.schema.hyperparameters import find_wanting, is_range
from det_jupyter.contract.schema.key_paths import format_value, look_up, section
from det_jupyter.contract.values.lengths import UNITS
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import Problem

_USUAL_HYPERPARAMETERS = (
    "global_batch_size", "batch_size", "learning_rate", "lr", "momentum", "weight_decay",
    "dropout", "optimizer",
)  # fmt: skip


def find_homes(key: str, written: Mapping[str, Any], above: Sequence[str] = ()) -> Sequence[str]:
    """Return the paths to which a misplaced key may belong.

    The paths are in sections that have no value yet; if there is none, in sections that are given;
    else in any. A name that no section has is a hyperparameter if it is a usual or a given one,
    or follows the hyperparameters and is not like another name.

    Args:
        written: The document, with nulls.
        above: The keys of the section that it is in.
    """
    if not above and (wanting := find_wanting(section(written, "hyperparameters"), key)):
        return [f"hyperparameters.{wanting}.{key}"]
    if key not in paths_by_name():
        is_one = key in _USUAL_HYPERPARAMETERS or key in section(written, "hyperparameters")
        is_one |= not above and _follows(key, written) and not _is_like_another(key)
        return [f"hyperparameters.{key}"] if is_one else []
    found = [path for path in paths_by_name()[key] if _has_room(path, written)]
    below = "".join(f"{part}." for part in above)
    found = [path for path in found if path.startswith(below)] or found
    for is_likely in (_is_in_null, _is_in_given):
        found = [path for path in found if is_likely(path, written)] or found
    if len(found) > 1 and not above and _follows(key, written):
        return [f"hyperparameters.{key}"]
    return [] if any(map(is_in_list, found)) else found


def path_of_change(name: str) -> tuple[str, bool]:
    """Return the dotted key that the name of a change stands for; "" if no key is similar.

    Returns:
        The key, and whether it has exactly this name.

    >>> path_of_change("epochs"), path_of_change("max_restart"), path_of_change("on")
    (('searcher.max_length.epochs', True), ('max_restarts', False), ('', False))
    """
    if "." in name or name in SHORT or name in ExperimentConfig.model_fields:
        return name, True
    if homes := find_homes(name, {}):
        return homes[0], True
    if name in paths_by_name():  # of an entry of a list
        return "", False
    paths = {last: found[0] for last, found in paths_by_name().items() if not is_in_list(found[0])}
    near = get_close_matches(name, paths, n=1, cutoff=0.8)
    return (paths[near[0]], False) if near else ("", False)


def _follows(key: str, written: Mapping[str, Any]) -> bool:
    """Return whether the last section before a key of the top level is the hyperparameters."""
    before = takewhile(lambda name: name != key, written)
    known = [name for name in before if name in ExperimentConfig.model_fields]
    return known[-1:] == ["hyperparameters"]


def _is_like_another(key: str) -> bool:
    is_near = get_close_matches(key, ExperimentConfig.model_fields, n=1)
    return bool(is_near or get_close_matches(key, paths_by_name(), n=1, cutoff=0.8))


def _has_room(path: str, written: Mapping[str, Any]) -> bool:
    above, _, key = path.rpartition(".")
    return key not in UNITS or look_up(written, above) is None


def _is_in_null(path: str, written: Mapping[str, Any]) -> bool:
    place = path.rpartition(".")[0]
    outer, _, name = place.rpartition(".")
    around = look_up(written, outer) if outer else written
    return isinstance(around, Mapping) and name in around and around[name] is None


def _is_in_given(path: str, written: Mapping[str, Any]) -> bool:
    return path.partition(".")[0] in written


def misplaced(path: str, begin: str, homes: Sequence[str]) -> Problem:
    """Return the problem of a key that belongs to one of the paths `homes`.

    Args:
        begin: The beginning of the sentence, whose next word is "belongs".
    """
    places = [home.rpartition(".")[0] for home in homes]
    if len(homes) > 1:
        return Problem(path, f"{begin} belongs below {listed(places, last='or')}")
    home, place = homes[0], places[0]
    here = path.rpartition(".")[0]
    text = f"{begin} belongs {f'below {place}' if place else 'at the top level'}"
    if not here or place.startswith(f"{here}."):
        in_yaml = f"{text}: indent it"
    elif not place or here.startswith(f"{place}."):
        in_yaml = f"{text}: indent it less"
    else:
        in_yaml = text
    return Problem(path, f"{text}: write {home}", home, in_yaml=in_yaml)


def find_lost_kind(written: Mapping[str, Any]) -> list[Problem]:
    """Return a problem if the name of a searcher has become that of the experiment."""
    name = written.get("name")
    is_lost = "searcher" in written and look_up(written, "searcher.name") is None
    if is_lost and isinstance(name, str) and name in kinds("searcher"):
        begin = f"got {format_value(name)}, a kind of searcher; it"
        return [misplaced("name", begin, ["searcher.name"])]
    return []


def find_swallowed(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a notice about each hyperparameter with the name of a key that is not given.

    Only for names that a hyperparameter is unlikely to have: those of several words, or that of a
    section with keys of that section in it.
    """
    for name, value in section(document, "hyperparameters").items():
        homes = [path for path in paths_by_name().get(name, ()) if not is_in_list(path)]
        is_apt = len(homes) == 1 and homes[0] not in NO_EFFECT and not is_range(value)
        if is_apt and look_up(document, homes[0]) is None and _is_telling(name, value):
            place = homes[0].rpartition(".")[0]
            where = f"below {place}" if place else "at the top level"
            yield (
                f"hyperparameters.{name}: a hyperparameter here; if {homes[0]} is meant, it "
                f"belongs {where}."
            )


def _is_telling(name: str, value: Any) -> bool:
    fields = fields_of(sections_at([name]))
    is_section = isinstance(value, Mapping) and bool(fields.keys() & value.keys())
    return "_" in name or is_section
