"""Environment variables in a configuration: NAME=value, or NAME alone, also by kind of slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def without_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the values of its environment variables.

    They may be secrets, so files that others may read contain only the names.

    >>> without_values({"environment": {"environment_variables": ["TOKEN=abc", "HOME"]}})
    {'environment': {'environment_variables': ['TOKEN', 'HOME']}}
    """
    environment = config.get("environment")
    given = environment.get("environment_variables") if isinstance(environment, Mapping) else None
    if not environment or not given:
        return dict(config)
    by_kind = isinstance(given, Mapping)
    kept = {kind: _names(given[kind]) for kind in given} if by_kind else _names(given)
    return {**config, "environment": {**environment, "environment_variables": kept}}


def variable_lines(config: Mapping[str, Any], kind: str) -> list[str]:
    """Return the variables for a kind of slot, as NAME=value or NAME."""
    given = config.get("environment", {}).get("environment_variables", [])
    lines: list[str] = given.get(kind, []) if isinstance(given, dict) else given
    return lines


def variables_in(lines: Iterable[str], captured: Mapping[str, str]) -> dict[str, str]:
    """Return the values of variables.

    Args:
        lines: NAME=value or NAME.
        captured: Values, from the user's kernel, of the variables that are listed without one.

    >>> variables_in(["A=1", "B", "C"], {"B": "2"})
    {'A': '1', 'B': '2'}
    """
    lines = list(lines)
    chosen = dict(line.split("=", 1) for line in lines if "=" in line)
    return chosen | {name: captured[name] for name in lines if name in captured}


def _names(lines: Iterable[str]) -> list[str]:
    return [line.partition("=")[0] for line in lines]


def assigned_variables(document: Mapping[str, Any]) -> set[str]:
    """Return the names of the variables that a configuration lists, with or without a value."""
    return {line.partition("=")[0] for line in _all_lines(document)}


def assigned_values(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the variables that a configuration lists with a value."""
    pairs = (line.partition("=") for line in _all_lines(document))
    return {name: value for name, sign, value in pairs if sign}


def _all_lines(document: Mapping[str, Any]) -> list[str]:
    # The document need not be valid, nor of this version, so its values are read one by one.
    environment = document.get("environment")
    given = environment.get("environment_variables") if isinstance(environment, Mapping) else None
    lists = given.values() if isinstance(given, Mapping) else [given]
    lines = [line for some in lists if isinstance(some, list) for line in some]
    return [line for line in lines if isinstance(line, str)]
