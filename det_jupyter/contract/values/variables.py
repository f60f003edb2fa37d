"""Environment variables in a configuration: NAME=value, or NAME alone, also by kind of slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def without_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in whose environment variables the values are left out.

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


def _names(lines: Iterable[str]) -> list[str]:
    return [line.partition("=")[0] for line in lines]
