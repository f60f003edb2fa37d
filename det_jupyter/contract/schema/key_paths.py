"""Paths of values in a configuration: `searcher.divisor`, `bind_mounts[0].host_path`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

from det_jupyter.errors import Problem

_LONGEST_KEY = 60


def join(path: str, part: int | str) -> str:
    """Return the path of the entry `part` (a key or an index) of the value at `path`.

    >>> join(join("", "bind_mounts"), 0)
    'bind_mounts[0]'
    """
    if isinstance(part, int):
        return f"{path}[{part}]"
    key = part if part.isprintable() and len(part) <= _LONGEST_KEY else format_value(part)
    return f"{path}.{key}" if path else key


def join_all(parts: Iterable[int | str]) -> str:
    """Return the path with these keys and indices."""
    return reduce(join, parts, "")


def enclosing_paths(path: str) -> Iterator[str]:
    """Yield the path and those of everything that contains it, innermost first.

    >>> list(enclosing_paths("bind_mounts[0].host_path"))
    ['bind_mounts[0].host_path', 'bind_mounts[0]', 'bind_mounts']
    """
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def look_up(document: Any, path: str) -> Any:
    """Return the value at a path of keys, without indices; None if there is none."""
    for part in path.split("."):
        if not isinstance(document, Mapping):
            return None
        document = document.get(part)
    return document


def section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of a document; an empty mapping if it is absent or no mapping."""
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems without duplicates, sorted by path; `[10]` comes after `[9]`.

    Missing values come last: they may be missing because of another problem.
    """

    def sort_key(problem: Problem) -> tuple[bool, list[str], str]:
        parts = re.findall(r"\d+|\D+", problem.path)
        padded = [part.zfill(20) if part.isdigit() else part for part in parts]
        return problem.is_missing, padded, problem.text

    return sorted(dict.fromkeys(problems), key=sort_key)


_WORDS = {None: "null", True: "true", False: "false"}


def format_value(value: Any, longest: int = _LONGEST_KEY) -> str:
    """Format a value for an error message, cut to `longest` characters."""
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if not isinstance(value, (str, int, float, list, dict)):
        return f"a {type(value).__name__}"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits; a list in itself
        return f"a {type(value).__name__}"
    return text if len(text) <= longest else text[: longest - 3] + "..."
