"""Checks of a change to a running search: its length must not shrink, nor its space grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.contract.schema.hyperparameters import find_problems, is_nested
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import Problem


def find_wider(
    new: Mapping[str, Any], old: Mapping[str, Any], path: str = "hyperparameters"
) -> Iterator[Problem]:
    """Yield a problem for every part of `new` that is wrong or outside of `old`."""
    problems = list(find_problems(new, path))
    yield from problems or _find_wider(new, old, path)


def _find_wider(new: Mapping[str, Any], old: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for name in sorted(old.keys() - new.keys()):
        yield Problem.missing(f"{path}.{name}", "; a search keeps its hyperparameters")
    for name in sorted(new.keys() - old.keys()):
        yield Problem(f"{path}.{name}", "unknown; a search keeps its hyperparameters")
    for name in sorted(new.keys() & old.keys()):
        yield from _find_wider_value(new[name], old[name], f"{path}.{name}")


def _find_wider_value(new: Any, old: Any, path: str) -> Iterator[Problem]:
    if is_nested(old) or is_nested(new):
        if is_nested(old) and is_nested(new):
            yield from _find_wider(new, old, path)
        else:
            yield Problem(path, f"got {new!r}, expected what it was: {old!r}")
    elif not _holds(old, new):
        yield Problem(path, f"got {new!r}, expected a part of what it was: {old!r}")


def _holds(old: Any, new: Any) -> bool:
    old_kind, new_kind = _kind(old), _kind(new)
    if old_kind == "const":
        return new_kind == "const" and same_value(_constant(old), _constant(new))
    if old_kind == "categorical":
        values = new["vals"] if new_kind == "categorical" else [_constant(new)]
        return new_kind in ("categorical", "const") and all(
            any(same_value(value, known) for known in old["vals"]) for value in values
        )
    if new_kind == "const":
        return _holds_number(old, _constant(new))
    is_alike = new_kind == old_kind and new.get("base") == old.get("base")
    return bool(is_alike and old["minval"] <= new["minval"] and new["maxval"] <= old["maxval"])


def _holds_number(old: Mapping[str, Any], value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    low, high = old["minval"], old["maxval"]
    if old["type"] == "log":
        low, high = float(old["base"]) ** low, float(old["base"]) ** high
    is_fit = old["type"] != "int" or isinstance(value, int)
    return bool(is_fit and min(low, high) <= value <= max(low, high))


def _kind(spec: Any) -> Any:
    return spec["type"] if isinstance(spec, Mapping) else "const"


def _constant(spec: Any) -> Any:
    return spec["val"] if isinstance(spec, Mapping) else spec


def find_shorter(new: Length | None, unit: str, full: int) -> list[Problem]:
    """Return a problem if `new` is shorter than `full`, the present length."""
    if new is not None and new.unit != unit:
        return [
            Problem(
                "searcher.max_length", f"got {new}, but this search counts in {unit}: use these"
            )
        ]
    if new is not None and new.amount < full:
        return [Problem("searcher.max_length", f"got {new}, expected at least {full} {unit}")]
    return []


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values are the same: 1 and true are not, 1 and 1.0 are."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
