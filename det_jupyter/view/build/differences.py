"""What differs between documents, and between captured sources. Pure.

Modules are compared by their paths. Cells have other numbers each time they are executed, so a
cell is compared with the one that defines the same names or has most lines in common.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from typing import Any

from det_jupyter.view.build.space import leaves

_LEAST_ALIKE = 0.4  # of two cells that count as one cell that was changed
_SAME_NAMES = 1.0  # what it counts that two cells define the same names


def differing(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values that differ, by dotted key: one of each document, None where it has none.

    >>> differing([{"optimizer": {"lr": 0.1}, "depth": 2}, {"optimizer": {"lr": 0.2}, "depth": 2}])
    {'optimizer.lr': [0.1, 0.2]}
    """
    flat = [{".".join(path): value for path, value in leaves(each)} for each in documents]
    keys = dict.fromkeys(key for each in flat for key in each)
    rows = {key: [each.get(key) for each in flat] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}


def source_differences(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield name and lines of what differs between two sources: changed, then gone, then added.

    A cell that has another name now is named by both.
    """
    olds = {name: text for name, text in before.items() if text != after.get(name)}
    news = {name: text for name, text in after.items() if text != before.get(name)}
    for old, new in _pairs(olds, news):
        names = old or "/dev/null", new or "/dev/null"
        texts = olds.get(old, "").splitlines(), news.get(new, "").splitlines()
        if lines := list(unified_diff(*texts, *names, lineterm="")):
            yield " → ".join(dict.fromkeys(filter(None, (old, new)))), lines


def _pairs(olds: dict[str, str], news: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the names that belong together; empty for one that has no counterpart."""
    found = {name: name for name in olds if name in news and not _is_cell(name)}
    for old, new in _alike(olds, news):
        if old not in found and new not in found.values():
            found[old] = new
    yield from ((old, found[old]) for old in olds if old in found)
    yield from ((old, "") for old in olds if old not in found)
    yield from (("", new) for new in news if new not in found.values())


def _alike(olds: dict[str, str], news: dict[str, str]) -> list[tuple[str, str]]:
    """Return pairs of cells that may be versions of one cell, the most alike first."""
    names = {text: _defined(text) for text in (*olds.values(), *news.values())}
    scored = [
        (_likeness(olds[old], news[new], names), old, new)
        for old in filter(_is_cell, olds)
        for new in filter(_is_cell, news)
    ]
    scored.sort(key=lambda each: -each[0])
    return [(old, new) for score, old, new in scored if score >= _LEAST_ALIKE]


def _likeness(old: str, new: str, names: Mapping[str, frozenset[str]]) -> float:
    if old == new:
        return 2 + _SAME_NAMES
    lines = SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False).ratio()
    union = names[old] | names[new]
    shared = len(names[old] & names[new]) / len(union) if union else 0.0
    return lines + _SAME_NAMES * shared


def _defined(source: str) -> frozenset[str]:
    """Return the names that a cell binds at its top level."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):  # it has magics
        return frozenset()
    made = [n.name for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
    return frozenset([*made, *(target.id for target in targets if isinstance(target, ast.Name))])


def _is_cell(name: str) -> bool:
    return name.startswith("Cell ")
