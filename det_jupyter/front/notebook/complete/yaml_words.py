"""Completion of incomplete YAML, which no parser reads: the cursor's section, and words for it.

    searcher:                    block style: deeper indented lines are inside the key above
      name: random
      max_length: {epochs: |}    flow style: the text between braces is inside the key before

Only the text before the cursor is read, line by line. Nothing raises: text that is not understood
is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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

MetricNames = Callable[[str | None], list[str]]  # returns the names of a trial class's metrics
Path = tuple[str, ...]
_LINE = re.compile(r"(?P<indent> *(?:- +)*)(?:(?P<key>[^\s'\"#{}\[\],:][^\s:]*) *:(?= |$))?")
_COMMENT = re.compile(r"(^|\s)#.*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The position of the cursor."""

    section: Path  # keys of the section that contains the cursor
    key: str | None  # the key whose value is being typed; None: a key is being typed
    typed: str  # beginning of the word at the cursor
    document: dict[str, Any]  # the text before, as far as understood; scalars as text

    @property
    def given(self) -> dict[str, Any]:
        """The section's keys and values so far."""
        section: Any = self.document
        for key in self.section:
            section = section.get(key) if isinstance(section, dict) else None
        return section if isinstance(section, dict) else {}


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
            text_so_far = "" if top is None else top.text.lstrip()
            is_closed = len(text_so_far) > 1 and text_so_far[-1] == text_so_far[0]
            if top is not None and text_so_far[:1] in ("'", '"') and not is_closed:
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
        section = self.document
        for key in path[:-1]:
            inner = section.get(key)
            if not isinstance(inner, dict):
                inner = section[key] = {}
            section = inner
        if not value or value[0] in "{[":
            section.setdefault(path[-1], {})
        else:
            section[path[-1]] = value.strip("'\"")

    def _section(self) -> Path:
        outer = tuple(flow.key for flow in self.flows[:-1] if flow.key is not None)
        return (*(key for _, key in self.blocks), *outer)

    def cursor(self) -> Cursor:
        """Return the position of the end of the last line."""
        if self.flows:
            top = self.flows[-1]
            section, key, typed = self._section(), top.key, top.text.lstrip()
            if not top.is_mapping:  # a list is the value of the key before it
                section, key = section[:-1], section[-1] if section else None
        else:
            section, key, typed = self._section(), self.key, self.value
            if key is not None and section and section[-1] == key and not typed:
                section = section[:-1]  # the key's value may follow on this line
        return Cursor(section=section, key=key, typed=typed, document=self.document)


def find_cursor(text: str) -> Cursor:
    """Return the position of the end of `text`, the YAML before the cursor."""
    scanner = _Scanner()
    *before, last = text.split("\n")
    for line in before:
        if (content := _COMMENT.sub("", line).rstrip()).strip():
            scanner.take(content)
    scanner.take(last)
    return scanner.cursor()


def words_at(cursor: Cursor, metric_names: MetricNames) -> list[str]:
    """Return the words that may be typed at the cursor, keys with their colon.

    `metric_names` is called, with the entrypoint, only for the value of `searcher.metric`.
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
