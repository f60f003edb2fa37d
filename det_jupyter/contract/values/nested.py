"""Nested mappings of values, such as hyperparameters, by dotted paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.contract.values.text import hparam_text


def flattened(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of each value.

    >>> dict(flattened({"optimizer": {"lr": 0.1}, "depth": 2}))
    {'optimizer.lr': 0.1, 'depth': 2}
    """
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the values that differ.

    >>> describe_changes({"lr": 0.1, "net": {"depth": 2}}, {"lr": 0.01, "net": {"depth": 2}})
    ['lr 0.1 → 0.01']
    """
    before, after = dict(flattened(old)), dict(flattened(new))
    none = object()
    return [
        f"{path} {_text(before, path)} → {_text(after, path)}"
        for path in dict.fromkeys([*before, *after])
        if before.get(path, none) != after.get(path, none)
    ]


def _text(values: Mapping[str, Any], path: str) -> str:
    return hparam_text(values[path]) if path in values else "none"
