"""Changes of a configuration, as Python and lines give them: a key with dots leads into sections.

    {"searcher.max_length.epochs": 3}       {"searcher": {"max_length": {"epochs": 3}}}
    {"slots": 2}                            {"resources": {"slots_per_trial": 2}}
    {"data": {"a.b": 1}}                    as it stands: names below the top may have dots

A configuration itself (YAML) has sections only. Values of numpy and torch become plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import combinations
from typing import Any

from det_jupyter.config.merging import merge
from det_jupyter.errors import ConfigError, Problem

_SHORT = {"slots": "resources.slots_per_trial"}


def read_changes(changes: Mapping[str, Any], where: str = "config") -> dict[str, Any]:
    """Return the document that changes come to.

    Args:
        where: The path of a problem with two of them.

    Raises:
        ConfigError: All that is wrong with keys and values, and changes that undo one another.
    """
    document, problems = try_changes(changes, where)
    if problems:
        raise ConfigError(problems)
    return document


def try_changes(
    changes: Mapping[str, Any], where: str = "config"
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the document that changes come to, and what is wrong with them."""
    problems: list[Problem] = []
    parts = {}
    for key, value in changes.items():
        name = str(key)
        if all(name.split(".")):
            parts[name] = nested(name, _plain(value, name, problems))
        else:
            problems.append(
                Problem(where, f"got {name!r}, expected a key such as searcher.max_length.epochs")
            )
    problems += find_undone(parts, where)
    return reduce(merge, parts.values(), {}), problems


def find_undone(parts: Mapping[str, Mapping[str, Any]], where: str) -> list[Problem]:
    """Return a problem for each two changes that undo one another; each has its text as key."""
    return [
        Problem(where, f"got {first} and {second}, expected only one of them")
        for first, second in combinations(parts, 2)
        for both in [merge(parts[first], parts[second])]
        if not (_is_in(parts[first], both) and _is_in(parts[second], both))
    ]


def _is_in(part: Any, whole: Any) -> bool:
    """Return whether everything in a part is in the whole too.

    >>> whole = {"a": {"b": 1, "c": [1, 2]}}
    >>> [_is_in(part, whole) for part in ({"a": {"b": 1}}, {"a": {"c": [2]}}, {"a": {"b": 2}})]
    [True, True, False]
    """
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return all(key in whole and _is_in(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return all(item in whole for item in part)
    return part is whole or bool(part == whole)


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return the document that has only this key.

    >>> nested("searcher.max_length.epochs", 3)
    {'searcher': {'max_length': {'epochs': 3}}}
    """
    *sections, last = _SHORT.get(key, key).split(".")
    document = {last: value}
    for section in reversed(sections):
        document = {section: document}
    return document


def _plain(value: Any, path: str, problems: list[Problem]) -> Any:
    """Return a value as YAML has it: numbers of numpy and torch, tuples and paths are made so."""
    if isinstance(value, Mapping):
        return {key: _plain(each, f"{path}.{key}", problems) for key, each in value.items()}
    if isinstance(value, list | tuple | range | set | frozenset):
        return [_plain(each, f"{path}[{i}]", problems) for i, each in enumerate(value)]
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if hasattr(value, "tolist"):  # of numpy and torch: a number if it has no dimensions
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    problems.append(
        Problem(
            path,
            f"got an object of type {type(value).__name__}, expected a number, text, a list "
            "or a dict of these",
        )
    )
    return None
