"""Checks that a document consists of JSON values, and is neither too large nor too deep.

Configurations are sent and stored as JSON. Documents from Python or YAML are checked here first,
so that later code can recurse into, print and compare their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.contract.schema.key_paths import format_value, join
from det_jupyter.errors import Problem

MAX_DEPTH = 50
MAX_VALUES = 100_000
MAX_INT = 2**63 - 1


class Unread:
    """Stands for a value of a text that cannot be read.

    Args:
        problem: What is wrong with the value.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem


def find_bounds_problem(document: Any) -> Problem | None:
    """Return a problem if the document is no mapping, too large or too deeply nested."""
    if not isinstance(document, Mapping):
        return Problem(
            "", f"got {format_value(document)}, expected a mapping (`key: value` lines)"
        )
    count = 0
    level: list[tuple[str, Any]] = [("", document)]
    for _ in range(MAX_DEPTH):
        below: list[tuple[str, Any]] = []
        for top, value in level:
            if isinstance(value, Mapping):
                below += [(top or str(key), item) for key, item in value.items()]
            elif isinstance(value, (list, tuple)):
                below += [(top, item) for item in value]
            if count + len(below) > MAX_VALUES:
                text = f"the configuration is too large; expected at most {MAX_VALUES} values"
                return Problem("", text)
        if not below:
            return None
        count += len(below)
        level = below
    return Problem(
        format_value(level[0][0])[1:-1], f"nested too deeply; expected at most {MAX_DEPTH} levels"
    )


def is_plain(value: Any) -> bool:
    """Return whether a value consists of types that JSON decoders return, without tuples."""
    if isinstance(value, dict):
        return all(map(_is_name, value)) and all(map(is_plain, value.values()))
    if isinstance(value, list):
        return all(map(is_plain, value))
    return not isinstance(value, (Mapping, tuple)) and not _find_problem(value)


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and bool(key.strip()) and key.isprintable()


def to_plain(value: Any) -> Any:
    """Return a copy for which `is_plain` holds; values that JSON lacks become None."""
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return None if _find_problem(value) else value


def find_nameless_keys(value: Any, path: str = "") -> Iterator[Problem]:
    """Yield a problem for each key that is no name; values below it have no path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if _is_name(key):
                yield from find_nameless_keys(item, join(path, key))
            else:
                where = path or "configuration"
                yield Problem(
                    where, f"got the key {format_value(key)}, expected a name on one line"
                )
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from find_nameless_keys(item, join(path, index))


def find_strange_values(value: Any, path: str = "") -> Iterator[Problem]:
    """Yield a problem for each value, below named keys, that JSON lacks."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if _is_name(key) and item is not None:
                yield from find_strange_values(item, join(path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from find_strange_values(item, join(path, index))
    elif isinstance(value, Unread):
        yield Problem(path, value.problem)
    elif problem := _find_problem(value):
        yield Problem(path, f"got {format_value(value)}, {problem}")


def _find_problem(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.isascii() or _is_text(value) else "expected whole characters"
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return None if abs(value) <= MAX_INT else "expected a number that 64 bits can hold"
    if isinstance(value, float):
        return None if math.isfinite(value) else "expected a finite number"
    return "expected text, a number, true, false, null, a list or a mapping"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
