"""Text in, with line numbers: as much as can be read, and all that is wrong with the rest.

A mistake in the text hides nothing else: the value that has it becomes an Unread, of which no more
is said, and the rest is a document like any other. `Sources` says where what a problem is about
was written: in the configuration, or in the template under it.
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
class Reading:
    """What a text says."""

    document: dict[str, Any] = field(default_factory=dict)  # as much of it as could be read
    # What is wrong with the text itself, most of it with its line.
    problems: list[Problem] = field(default_factory=list)
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
        return Reading(problems=[*problems, explain(error)], is_document=False)
    except RecursionError:
        problems.append(Problem("", "the configuration is nested too deeply"))
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


def _without_controls(text: str) -> tuple[str, list[Problem]]:
    """Return the text without the characters that YAML does not allow, and a problem for each."""
    problems = []
    for match in yaml.reader.Reader.NON_PRINTABLE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        what = f"the character #x{ord(match[0]):04x} is not allowed"
        problems.append(Problem("", f"this is not YAML: {what}", line=line))
    return yaml.reader.Reader.NON_PRINTABLE.sub(" ", text) if problems else text, problems


def _parse(text: str) -> tuple[yaml.Node | None, NodeReader, list[Problem]]:
    """Return the root of what can be parsed, a reader for it, and problems that are of no key."""
    found: Sequence[Problem] = ()
    problems: list[Problem] = []
    try:
        root = yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError:
        if tabs := _TAB.findall(text):
            first = text.count("\n", 0, _TAB.search(text).start()) + 1  # type: ignore[union-attr]
            others = f", here and in {len(tabs) - 1} more" if len(tabs) > 1 else ""
            said = f"this is not YAML: indent with spaces, not tabs{others}"
            problems = [Problem("", said, line=first)]
            text = _TAB.sub(lambda match: match[0].expandtabs(2), text)
        text, found, more = salvage(text)
        problems += more
        root = yaml.compose(text, Loader=Loader)
    return root, NodeReader(found), problems


def _no_document(document: Any) -> Problem:
    if document is None:
        return Problem("", "the configuration is empty; it needs at least entrypoint and searcher")
    return Problem("", f"got {format_value(document)}, expected `key: value` lines")


def with_line(problem: Problem, lines: Mapping[str, int]) -> Problem:
    """Return a problem with its line; without, if it is about the whole.

    What is missing is in the line of the section that it is missing from.
    """
    if problem.line:
        return problem
    places = enclosing_paths(problem.path)
    return replace(problem, line=next((lines[place] for place in places if place in lines), 0))


def with_lines(problems: Iterable[Problem], lines: Mapping[str, int]) -> list[Problem]:
    """Return the problems, each once and with its line, in the order of the lines."""
    placed = dict.fromkeys(with_line(problem, lines) for problem in problems)
    return sorted(placed, key=lambda problem: problem.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a configuration is made of, with the lines of its keys where they are known."""

    document: Mapping[str, Any]
    lines: Mapping[str, int]
    template: Mapping[str, Any] = field(default_factory=dict)
    template_lines: Mapping[str, int] = field(default_factory=dict)

    def locate(self, problems: Iterable[Problem]) -> tuple[list[Problem], list[Problem]]:
        """Return problems of the merged document where they were written, in lines' order.

        Returns:
            Those of the document, and those that the template brings in; each once.
        """
        merged = merge(self.template, self.document)
        # What the user replaced whole is not the template's any more.
        inherited = set(_paths(self.template, "")) & set(_paths(merged, ""))
        own: list[Problem] = []
        theirs: list[Problem] = []
        for problem in problems:
            path, is_inherited = problem.path, False
            if not problem.line:  # else it is of the text itself
                path, is_inherited = self._place(path, merged, inherited)
            (theirs if is_inherited else own).append(replace(problem, path=path))
        return with_lines(own, self.lines), with_lines(theirs, self.template_lines)

    def _place(
        self, path: str, merged: Mapping[str, Any], inherited: set[str]
    ) -> tuple[str, bool]:
        """Return the path where it was written, and whether that is in the template."""
        path, is_inherited = self._own_entry(path, merged)
        if is_inherited is None:
            # What is missing is missing where its innermost section is.
            known = (
                place
                for place in enclosing_paths(path)
                if place in self.lines or place in inherited
            )
            where = next(known, "")
            is_inherited = where not in self.lines and where in inherited
        return path, is_inherited

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
