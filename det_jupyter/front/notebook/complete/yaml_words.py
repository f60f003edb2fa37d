"""Where the cursor is in YAML that is being written and parses as nothing yet, and what fits.

    searcher:                    block: a deeper indentation is inside of the key above it
      name: random
      max_length: {epochs: |}    flow: what is between braces is inside of the key before them

Reads only what is before the cursor, line by line, and never fails: of what it does not understand
it makes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from det_jupyter.config import choices, known_keys
from det_jupyter.config.keys import NO_MEANING
from det_jupyter.contract.values.entrypoints import entrypoint_text

TYPES = {
    "const": ("val",),
    "int": ("minval", "maxval", "count"),
    "double": ("minval", "maxval", "count"),
    "log": ("base", "minval", "maxval", "count"),
    "categorical": ("vals",),
}

MetricNames = Callable[[str | None], list[str]]  # of a trial class
Path = tuple[str, ...]
_LINE = re.compile(r"(?P<indent> *(?:- +)*)(?:(?P<key>[^\s'\"#{}\[\],:][^\s:]*) *:(?= |$))?")
_COMMENT = re.compile(r"(^|\s)#.*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """What is being written."""

    section: Path  # keys that lead to the section that the cursor is in
    key: str | None  # whose value is being written; None: a key is being written
    typed: str  # the beginning of it
    document: dict[str, Any]  # of the lines before, as far as understood; scalars as text

    @property
    def given(self) -> dict[str, Any]:
        """What the section has already."""
        place: Any = self.document
        for key in self.section:
            place = place.get(key) if isinstance(place, dict) else None
        return place if isinstance(place, dict) else {}


@dataclass(slots=True)
class _Flow:
    """An open brace or bracket."""

    is_mapping: bool
    key: str | None = None
    text: str = ""


@dataclass(slots=True)
class _Scanner:
    document: dict[str, Any] = field(default_factory=dict)
    blocks: list[tuple[int, str]] = field(default_factory=list)  # indentation and key
    flows: list[_Flow] = field(default_factory=list)
    key: str | None = None
    value: str = ""

    def take(self, line: str) -> None:
        """Read the next line."""
        if self.flows:
            self._scan(line)
            return
        matched = _LINE.match(line)
        assert matched is not None, "all parts of the pattern may be empty"
        rest = line[matched.end() :].lstrip(":")
        if not matched["key"] and not rest.strip() and not matched["indent"]:
            self.key, self.value, self.blocks = None, "", []
            return
        indent = len(matched["indent"])
        while self.blocks and self.blocks[-1][0] >= indent:
            self.blocks.pop()
        self.key, self.value = matched["key"], rest.strip()
        if self.key is None:
            return
        self._note((*self._section(), self.key), self.value)
        if not self.value or self.value[0] in "{[":
            self.blocks.append((indent, self.key))
            self._scan(self.value)

    def _scan(self, text: str) -> None:
        for place, char in enumerate(text):
            top = self.flows[-1] if self.flows else None
            is_in_quotes = top is not None and top.text.lstrip()[:1] in ("'", '"')
            if is_in_quotes and top is not None and not _is_closed(top.text.lstrip()):
                top.text += char
            elif char in "{[":
                self.flows.append(_Flow(is_mapping=char == "{"))
            elif top is None:
                continue
            elif char in "}]":
                self._end_item(top)
                self.flows.pop()
                if self.flows:
                    self.flows[-1].text = ""
            elif char == ",":
                self._end_item(top)
                top.key, top.text = None, ""
            elif char == ":" and top.is_mapping and text[place + 1 : place + 2] in ("", " "):
                top.key, top.text = top.text.strip(), ""
            else:
                top.text += char

    def _end_item(self, flow: _Flow) -> None:
        if flow.key and flow.text.strip():
            self._note((*self._section(), flow.key), flow.text.strip())

    def _note(self, path: Path, value: str) -> None:
        place = self.document
        for key in path[:-1]:
            inner = place.get(key)
            if not isinstance(inner, dict):
                inner = place[key] = {}
            place = inner
        if not value or value[0] in "{[":
            place.setdefault(path[-1], {})
        else:
            place[path[-1]] = value.strip("'\"")

    def _section(self) -> Path:
        outer = tuple(flow.key for flow in self.flows[:-1] if flow.key is not None)
        return (*(key for _, key in self.blocks), *outer)

    def cursor(self) -> Cursor:
        """Return where the end of the last line is."""
        if self.flows:
            top = self.flows[-1]
            section, key, typed = self._section(), top.key, top.text.lstrip()
            if not top.is_mapping:  # a list is the value of the key before it
                section, key = section[:-1], section[-1] if section else None
        else:
            section, key, typed = self._section(), self.key, self.value
            if key is not None and section and section[-1] == key and not typed:
                section = section[:-1]  # its value may still be written on this line
        return Cursor(section=section, key=key, typed=typed, document=self.document)


def _is_closed(text: str) -> bool:
    return len(text) > 1 and text[-1] == text[0]


def find_cursor(text: str) -> Cursor:
    """Return where the end of `text`, the YAML before the cursor, is."""
    scanner = _Scanner()
    for line in _content(text):
        scanner.take(line)
    return scanner.cursor()


def _content(text: str) -> Iterator[str]:
    """Yield the lines with content, and the last one in any case."""
    *before, last = text.split("\n")
    for line in before:
        if (content := _COMMENT.sub("", line).rstrip()).strip():
            yield content
    yield last


def words_at(cursor: Cursor, metric_names: MetricNames) -> list[str]:
    """Return what may be written at the cursor, keys with their colon.

    `metric_names` is called only where the name of a metric is asked for.
    """
    if cursor.section[:1] == ("hyperparameters",):
        return _in_hyperparameters(cursor)
    if cursor.key is not None:
        return _values(cursor, metric_names)
    known = known_keys(".".join(cursor.section), cursor.document)
    return [
        f"{name}: "
        for name, key in known.items()
        if key.path not in NO_MEANING and name not in cursor.given
    ]


def _in_hyperparameters(cursor: Cursor) -> list[str]:
    if cursor.key == "type":
        return list(TYPES)
    if cursor.key is not None or len(cursor.section) < 2:
        return []
    keys = TYPES.get(str(cursor.given.get("type", "")), ("type",))
    return [f"{key}: " for key in keys if key not in cursor.given]


def _values(cursor: Cursor, metric_names: MetricNames) -> list[str]:
    path = ".".join((*cursor.section, cursor.key or ""))
    if path == "searcher.metric":
        entrypoint = cursor.document.get("entrypoint")
        return metric_names(entrypoint_text(entrypoint) if entrypoint else None)
    return list(choices(path))
