"""Reads a YAML text with line numbers: as much as can be read, and all problems of the rest.

A mistake in the text does not hide others: the value with the mistake becomes an Unread, which
gets no further problems, and the rest is read. `Sources` finds where the value of a problem was
written: in the configuration, or in its template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from det_jupyter.config.merging import merge
from det_jupyter.config.yaml_reader import Loader, NodeReader
from det_jupyter.config.yaml_salvage import explain, salvage
from det_jupyter.contract.schema.key_paths import enclosing_paths, format_value, join, look_up
from det_jupyter.errors import ConfigError, Problem

_TAB = re.compile(r"^[ \t]*\t[ \t]*(?=\S)", re.MULTILINE)
_ENTRY = re.compile(r"([^\[:]+)\[(\d+)\](.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """The document that was read from a text, its problems, and the lines of its keys."""

    document: dict[str, Any] = field(default_factory=dict)  # what could be read
    # Problems of the text itself, most of them with their lines.
    problems: list[Problem] = field(default_factory=list)
    # The line (from 1) of every key and list entry, by its path.
    lines: dict[str, int] = field(default_factory=dict)
    # Whether it consists of `key: value` lines; if not, `document` is empty.
    is_document: bool = True


def read_yaml(text: str) -> YamlDocument:
    """Read as much as possible of a text, and return it with the problems of the rest."""
    text, problems = _without_controls(text)
    try:
        root, reader, more = _parse(text)
        document = None if root is None else reader.read(root)
    except ConfigError as error:
        return YamlDocument(problems=problems + error.problems, is_document=False)
    except yaml.MarkedYAMLError as error:
        return YamlDocument(problems=[*problems, explain(error)], is_document=False)
    except RecursionError:
        problems.append(Problem("", "the configuration is nested too deeply"))
        return YamlDocument(problems=problems, is_document=False)
    problems += more + reader.problems
    if not isinstance(document, dict):
        # If the text could not be read, this is reported already: it need not be empty.
        if document is not None:
            text = f"got {format_value(document)}, expected `key: value` lines"
            problems.append(Problem("", text))
        elif not problems:
            text = "the configuration is empty; it needs at least entrypoint and searcher"
            problems.append(Problem("", text))
        return YamlDocument(problems=problems, is_document=False)
    return YamlDocument(document=document, problems=problems, lines=reader.lines)


def parse_yaml(text: str) -> dict[str, Any]:
    """Parse the YAML text of a configuration, and return the document.

    Raises:
        ConfigError: All problems of the text, each with its line.
    """
    reading = read_yaml(text)
    if reading.problems:
        raise ConfigError(with_lines(reading.problems, reading.lines))
    return reading.document


def lines_of_paths(text: str) -> dict[str, int]:
    """Return the line (from 1) of every key by its dotted path, as far as the text can be read."""
    return read_yaml(text).lines


def _without_controls(text: str) -> tuple[str, list[Problem]]:
    """Return the text without characters that YAML does not allow, and a problem for each."""
    problems = []
    for match in yaml.reader.Reader.NON_PRINTABLE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        what = f"the character #x{ord(match[0]):04x} is not allowed"
        problems.append(Problem("", f"this is not YAML: {what}", line=line))
    return yaml.reader.Reader.NON_PRINTABLE.sub(" ", text) if problems else text, problems


def _parse(text: str) -> tuple[yaml.Node | None, NodeReader, list[Problem]]:
    """Return the root node of what can be parsed, a reader for it, and problems without a key."""
    found: Sequence[Problem] = ()
    problems: list[Problem] = []
    try:
        root = yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError:
        if tabs := _TAB.findall(text):
            first = text.count("\n", 0, _TAB.search(text).start()) + 1  # type: ignore[union-attr]
            others = f", here and in {len(tabs) - 1} more" if len(tabs) > 1 else ""
            message = f"this is not YAML: indent with spaces, not tabs{others}"
            problems = [Problem("", message, line=first)]
            text = _TAB.sub(lambda match: match[0].expandtabs(2), text)
        text, found, more = salvage(text)
        problems += more
        root = yaml.compose(text, Loader=Loader)
    return root, NodeReader(found), problems


def with_line(problem: Problem, lines: Mapping[str, int]) -> Problem:
    """Return a problem with its line; 0 if it is about the whole document.

    The line of a missing key is that of its section.
    """
    if problem.line:
        return problem
    places = enclosing_paths(problem.path)
    line = next((lines[place] for place in places if place in lines), 0)
    text = problem.in_yaml if line and problem.in_yaml else problem.text
    return replace(problem, line=line, text=text)


def with_lines(problems: Iterable[Problem], lines: Mapping[str, int]) -> list[Problem]:
    """Return the problems with their lines, without duplicates, sorted by line.

    Missing values come last, and so do those without a line: another problem may be the cause.
    """
    placed = dict.fromkeys(with_line(problem, lines) for problem in problems)
    return sorted(placed, key=lambda each: (each.is_missing, not each.line, each.line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """A configuration and its template, with the lines of their keys as far as known."""

    document: Mapping[str, Any]
    lines: Mapping[str, int]
    template: Mapping[str, Any] = field(default_factory=dict)
    template_lines: Mapping[str, int] = field(default_factory=dict)

    def locate(self, problems: Iterable[Problem]) -> tuple[list[Problem], list[Problem]]:
        """Find where the values of problems of the merged document were written.

        Returns:
            The problems of the document, and those of the template, both sorted by line.
        """
        merged = merge(self.template, self.document)
        # Without what the document replaces.
        inherited = set(_paths(self.template, "")) & set(_paths(merged, ""))
        own: list[Problem] = []
        theirs: list[Problem] = []
        for problem in problems:
            path, is_inherited = problem.path, False
            if not problem.line:  # a problem with a line is of the text itself
                path, is_inherited = self._origin(path, merged, inherited)
            (theirs if is_inherited else own).append(replace(problem, path=path))
        return with_lines(own, self.lines), with_lines(theirs, self.template_lines)

    def _origin(
        self, path: str, merged: Mapping[str, Any], inherited: set[str]
    ) -> tuple[str, bool]:
        """Return the path at which a value was written, and whether that is in the template."""
        path, is_inherited = self._own_entry(path, merged)
        if is_inherited is None:
            # A missing key belongs where the innermost section around it was written.
            known = (
                place
                for place in enclosing_paths(path)
                if place in self.lines or place in inherited
            )
            where = next(known, "")
            is_inherited = where not in self.lines and where in inherited
        return path, is_inherited

    def _own_entry(self, path: str, merged: Mapping[str, Any]) -> tuple[str, bool | None]:
        """Return the path of a list entry in its own list, and whether that is the template's.

        In the merged list the template's entries come first. None: the path is no list entry.
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
        if match[1] == "labels":  # a set: an entry may be in both
            is_inherited = entry not in mine
            own = (theirs if is_inherited else mine).index(entry)
        else:
            is_inherited = index < num_theirs
            own = theirs.index(entry) if is_inherited else index - num_theirs
        return join(match[1], own) + match[3], is_inherited


def _paths(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of all values in a document."""
    if path:
        yield path
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _paths(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")
