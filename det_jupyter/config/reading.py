"""Text in, with line numbers: as much as can be read, and all that is wrong with the rest.

A mistake in the text hides nothing else: the value that has it becomes an Unread, of which no more
is said, and the rest is a document like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from det_jupyter.config.paths import shown, within
from det_jupyter.config.salvage import explain, salvage
from det_jupyter.config.text import Loader, Reader
from det_jupyter.errors import ConfigError

_LINE = re.compile(r"line (\d+): ")
_TAB = re.compile(r"^[ \t]*\t[ \t]*(?=\S)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a text says."""

    document: dict[str, Any] = field(default_factory=dict)  # as much of it as could be read
    # What is wrong with the text itself, most of it with its line before it.
    problems: list[str] = field(default_factory=list)
    # The line (from 1) of every key and list entry, by its path.
    lines: dict[str, int] = field(default_factory=dict)
    # Whether it is `key: value` lines at all; else nothing of it was read.
    is_document: bool = True


def read_yaml(text: str) -> Reading:
    """Return all that can be read of a text, and what is wrong with it."""
    text, problems = _without_controls(text)
    try:
        root, reader, more = _parse(text)
        document = None if root is None else reader.read(root)
    except ConfigError as error:
        return Reading(problems=problems + error.problems, is_document=False)
    except yaml.MarkedYAMLError as error:
        line, problem = explain(error)
        return Reading(problems=[*problems, f"line {line}: {problem}"], is_document=False)
    except RecursionError:
        problems.append("the configuration is nested too deeply")
        return Reading(problems=problems, is_document=False)
    problems += more + reader.problems
    if not isinstance(document, dict):
        # What could not be read is reported already: the text need not be empty.
        found = problems if problems and document is None else [*problems, _no_document(document)]
        return Reading(problems=found, is_document=False)
    return Reading(document=document, problems=problems, lines=reader.lines)


def parse_yaml(text: str) -> dict[str, Any]:
    """Return the document of a configuration.

    Raises:
        ConfigError: All that is wrong with the text, each with its line.
    """
    reading = read_yaml(text)
    if reading.problems:
        raise ConfigError(with_lines(reading.problems, reading.lines))
    return reading.document


def lines_of_paths(text: str) -> dict[str, int]:
    """Return the line (from 1) of every key, by its dotted path, as far as the text is YAML."""
    return read_yaml(text).lines


def _without_controls(text: str) -> tuple[str, list[str]]:
    """Return the text without the characters that YAML does not allow, and a problem for each."""
    problems = []
    for match in yaml.reader.Reader.NON_PRINTABLE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        what = f"the character #x{ord(match[0]):04x} is not allowed"
        problems.append(f"line {line}: this is not YAML: {what}")
    return yaml.reader.Reader.NON_PRINTABLE.sub(" ", text) if problems else text, problems


def _parse(text: str) -> tuple[yaml.Node | None, Reader, list[str]]:
    """Return the root of what can be parsed, a reader for it, and problems that are of no key."""
    found: Sequence[tuple[int, str]] = ()
    problems: list[str] = []
    try:
        root = yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError:
        if tabs := _TAB.findall(text):
            first = text.count("\n", 0, _TAB.search(text).start()) + 1  # type: ignore[union-attr]
            others = f", here and in {len(tabs) - 1} more" if len(tabs) > 1 else ""
            problems = [f"line {first}: this is not YAML: indent with spaces, not tabs{others}"]
            text = _TAB.sub(lambda match: match[0].expandtabs(2), text)
        text, found, more = salvage(text)
        problems += more
        root = yaml.compose(text, Loader=Loader)
    return root, Reader(found), problems


def _no_document(document: Any) -> str:
    if document is None:
        return "the configuration is empty; it needs at least entrypoint and searcher"
    return f"got {shown(document)}, expected `key: value` lines"


def split_line(problem: str, lines: Mapping[str, int]) -> tuple[int, str]:
    """Return the line that a problem is about, 0 if it is about the whole, and the rest of it.

    What is missing is in the line of the section that it is missing from.
    """
    if given := _LINE.match(problem):
        return int(given[1]), problem[given.end() :]
    places = within(problem.partition(":")[0])
    return next((lines[place] for place in places if place in lines), 0), problem


def with_lines(problems: Iterable[str], lines: Mapping[str, int]) -> list[str]:
    """Return the problems, each once and with its line, in the order of the lines."""
    placed = dict.fromkeys(split_line(problem, lines) for problem in problems)
    ordered = sorted(placed, key=lambda each: each[0])
    return [f"line {line}: {problem}" if line else problem for line, problem in ordered]
