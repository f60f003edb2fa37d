"""Where what a problem is about was written: in the configuration, or in the template under it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from det_jupyter.config.merging import merge
from det_jupyter.config.paths import join, look_up, within
from det_jupyter.config.reading import split_line

_ENTRY = re.compile(r"([^\[:]+)\[(\d+)\](.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Located:
    """A problem, with the path that it has where it was written."""

    problem: str  # `path: problem`
    line: int  # the line there; 0: it is about the whole, or the line is not known
    is_inherited: bool = False  # whether the template brings it in

    def with_line(self) -> str:
        """Return the problem with its line before it."""
        return f"line {self.line}: {self.problem}" if self.line else self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a configuration is made of, with the lines of its keys where they are known."""

    document: Mapping[str, Any]
    lines: Mapping[str, int]
    template: Mapping[str, Any] = field(default_factory=dict)
    template_lines: Mapping[str, int] = field(default_factory=dict)

    def locate(self, problems: Iterable[str]) -> list[Located]:
        """Return problems of the merged document, each once: first by source, then by line."""
        merged = merge(self.template, self.document)
        # What the user replaced whole is not the template's any more.
        inherited = set(_paths(self.template, "")) & set(_paths(merged, ""))
        found = dict.fromkeys(self._locate(problem, merged, inherited) for problem in problems)
        return sorted(found, key=lambda located: (located.is_inherited, located.line))

    def _locate(self, problem: str, merged: Mapping[str, Any], inherited: set[str]) -> Located:
        line, problem = split_line(problem, {})
        if line:  # it is of the text itself
            return Located(problem, line)
        path, *rest = problem.split(":", 1)  # a problem of the whole has no path
        path, is_inherited = self._own_entry(path, merged)
        problem = ":".join([path, *rest])
        if is_inherited is None:
            # What is missing is missing where its innermost section is.
            known = (place for place in within(path) if place in self.lines or place in inherited)
            where = next(known, "")
            is_inherited = where not in self.lines and where in inherited
        lines = self.template_lines if is_inherited else self.lines
        return Located(problem, split_line(problem, lines)[0], is_inherited)

    def _own_entry(self, path: str, merged: Mapping[str, Any]) -> tuple[str, bool | None]:
        """Return an entry's path in the list that it is from, and which; None: not known.

        In the merged list the template's entries come first.
        """
        match = _ENTRY.fullmatch(path)
        if match is None:
            return path, None
        mine, theirs, both = (
            look_up(source, match[1]) for source in (self.document, self.template, merged)
        )
        index = int(match[2])
        are_lists = all(isinstance(entries, list) for entries in (mine, theirs, both))
        if not are_lists or index >= len(both):
            return path, None
        entry, num_theirs = both[index], len(both) - len(mine)
        if match[1] == "labels":  # a set: the same one may come from both
            is_inherited = entry not in mine
            own = (theirs if is_inherited else mine).index(entry)
        else:
            is_inherited = index < num_theirs
            own = theirs.index(entry) if is_inherited else index - num_theirs
        return join(match[1], own) + match[3], is_inherited


def _paths(value: Any, path: str) -> Iterator[str]:
    """Yield the path of everything in a document."""
    if path:
        yield path
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _paths(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")
