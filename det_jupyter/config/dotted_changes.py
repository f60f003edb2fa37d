"""Changes of a configuration, as Python code and command lines give them: with dotted keys.

    {"searcher.max_length.epochs": 3}       {"searcher": {"max_length": {"epochs": 3}}}
    {"slots": 2}                            {"resources": {"slots_per_trial": 2}}
    {"data": {"a.b": 1}}                    unchanged: only keys at the top are split at dots

In YAML, keys have no dots. Scalars of numpy and torch become plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import combinations
from typing import Any

from det_jupyter.config.merging import merge
from det_jupyter.errors import ConfigError, Problem

SHORT = {"slots": "resources.slots_per_trial"}


def read_changes(changes: Mapping[str, Any], where: str = "config") -> dict[str, Any]:
    """Return the document with these changes.

    Args:
        where: The path of problems that concern several changes.

    Raises:
        ConfigError: All problems with keys and values, and changes that contradict each other.
    """
    document, problems = try_changes(changes, where)
    if problems:
        raise ConfigError(problems)
    return document


def try_changes(
    changes: Mapping[str, Any], where: str = "config"
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the document with these changes, and the problems; see `read_changes`."""
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
    problems += find_conflicts(parts, where)
    return reduce(merge, parts.values(), {}), problems


def find_conflicts(parts: Mapping[str, Mapping[str, Any]], where: str) -> list[Problem]:
    """Return a problem for each pair of changes of which one undoes the other.

    Args:
        parts: The document of each change, by its text.
        where: The path of the problems.
    """
    return [
        Problem(where, f"got {first} and {second}, expected only one of them")
        for first, second in combinations(parts, 2)
        for both in [merge(parts[first], parts[second])]
        if not (_is_in(parts[first], both) and _is_in(parts[second], both))
    ]


def _is_in(part: Any, whole: Any) -> bool:
    """Return whether the document `whole` contains everything in `part`.

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
    """Return a document with this dotted key only.

    >>> nested("searcher.max_length.epochs", 3)
    {'searcher': {'max_length': {'epochs': 3}}}
    """
    *sections, last = SHORT.get(key, key).split(".")
    document = {last: value}
    for section in reversed(sections):
        document = {section: document}
    return document


def _plain(value: Any, path: str, problems: list[Problem]) -> Any:
    """Return a value of YAML's types: convert scalars of numpy and torch, tuples and paths."""
    if isinstance(value, Mapping):
        return {key: _plain(each, f"{path}.{key}", problems) for key, each in value.items()}
    if isinstance(value, list | tuple | range | set | frozenset):
        return [_plain(each, f"{path}[{i}]", problems) for i, each in enumerate(value)]
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if hasattr(value, "tolist"):  # arrays and tensors; a number if without dimensions
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
