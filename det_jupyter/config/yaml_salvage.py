"""Repairs text that is not YAML: finds the smallest invalid entries, and replaces their values.

    searcher:                        searcher:
      name: single                     name: single
      max_length: {epochs: 6     ->    max_length: !det_jupyter.unread 0
    max_restarts: 2                  max_restarts: 2

An entry is a key (or a `-`) with all that is indented below it. If one does not parse by itself
and has entries of its own, these are repaired; otherwise its value is replaced. Line numbers do
not change.
"""

from __future__ import annotations

import re

import yaml

from det_jupyter.config.json_values import MAX_DEPTH
from det_jupyter.config.yaml_reader import UNREAD_TAG, Loader
from det_jupyter.errors import Problem

_HEADING = re.compile(r"\s*(?:- )?[^\s#'\"{\[][^#'\"{\[]*:\s*(?:#.*)?$")
_NAME = re.compile(r"((?:- +)*)([A-Za-z_][\w.-]*)(?=\s*(?::|\s|$|\{|\[))")
_ALIAS = re.compile(r"found undefined alias '?([^']+)'?")


def salvage(text: str) -> tuple[str, list[Problem], list[Problem]]:
    """Return the text with invalid values replaced.

    Returns:
        The text, with a node of tag UNREAD_TAG for each replaced value; the problems of these
        nodes, at the index that a node contains; problems without a key. All have lines.
    """
    repair = _Repair(text)
    repair.run(0, len(repair.lines), MAX_DEPTH)
    return "\n".join(repair.lines), repair.found, repair.others


class _Repair:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.found: list[Problem] = []
        self.others: list[Problem] = []
        self._anchors = set(re.findall(r"&([^\s,\]}]+)", text))

    def run(self, start: int, end: int, depth: int) -> None:
        """Repair the lines from `start` to `end`, entry by entry."""
        entries = self._entries(start, end)
        for first, last in entries:
            problem = self._problem(first, last)
            if problem and last > first + 1 and depth:
                if _HEADING.match(self.lines[first]):
                    self.run(first + 1, last, depth - 1)
                elif self._problem(first, first + 1) is None:  # a value, and lines indented below
                    self._shift(first + 1, last, _indent(self.lines[first]), problem)
                problem = self._problem(first, last)
            if problem:
                self._replace(first, last, problem)
        self._fit(start, end, entries)

    def _fit(self, start: int, end: int, entries: list[tuple[int, int]]) -> None:
        """Repair entries that are valid by themselves but not together: correct indentation."""
        base = _indent(self.lines[entries[0][0]]) if entries else 0
        for _ in range(2 * len(entries)):
            problem = self._problem(start, end)
            at_fault = [
                entry for entry in entries if problem and entry[0] < problem.line <= entry[1]
            ]
            if problem is None or not at_fault:
                return
            first, last = at_fault[0]
            if _indent(self.lines[first]) != base:
                self._shift(first, last, base, problem)
            else:
                self._replace(first, last, problem)

    def _shift(self, first: int, last: int, indent: int, problem: Problem) -> None:
        """Change the indentation of lines to `indent`, and add the problem."""
        change = indent - _indent(self.lines[first])
        for number in range(first, last):
            line = self.lines[number]
            self.lines[number] = " " * max(0, _indent(line) + change) + line.lstrip(" ")
        self.others.append(problem)

    def _entries(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the line ranges [first, end) of the entries."""
        base, is_list = -1, False
        starts: list[int] = []
        for number in range(start, end):
            line = self.lines[number]
            content = line.strip()
            if not content or content.startswith(("#", "%")) or (content == "---" and not starts):
                continue
            if base < 0:
                base, is_list = _indent(line), content.startswith("-")
            # The entries of a list may have the same indentation as its key.
            if _indent(line) <= base and (is_list or not re.match(r"-( |$)", content)):
                starts.append(number)
        return list(zip(starts, [*starts[1:], end], strict=False))  # empty without entries

    def _problem(self, start: int, end: int) -> Problem | None:
        """Return the problem of these lines if parsed on their own; None if there is none."""
        try:
            node = yaml.compose("\n" * start + "\n".join(self.lines[start:end]), Loader=Loader)
        except yaml.MarkedYAMLError as error:
            alias = _ALIAS.match(error.problem or "")
            return None if alias and alias[1] in self._anchors else explain(error)
        if self.lines[start].strip() == "---":
            return Problem("", "a second document begins here; expected one", line=start + 1)
        if isinstance(node, yaml.ScalarNode) and node.tag != UNREAD_TAG:
            missing = "space after the colon" if ":" in node.value else "colon"
            line = int(node.start_mark.line) + 1
            shown = node.value if len(node.value) <= 40 else f"{node.value[:37]}..."
            text = f"this is not YAML: got {shown!r}, expected `key: value` (no {missing})"
            return Problem("", text, line=line)
        return None

    def _replace(self, first: int, last: int, problem: Problem) -> None:
        """Replace an entry's value by a node with UNREAD_TAG; delete an entry without a key."""
        line, indent = self.lines[first].strip(), _indent(self.lines[first])
        self.lines[first:last] = [""] * (last - first)
        mark = f"{UNREAD_TAG} {len(self.found)}"
        if name := _NAME.match(line):
            self.lines[first] = f"{' ' * indent}{name[1]}{name[2]}: {mark}"
        elif re.match(r"-( |$)", line):
            self.lines[first] = f"{' ' * indent}- {mark}"
        else:
            self.others.append(problem)
            return
        self.found.append(problem)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def explain(error: yaml.MarkedYAMLError) -> Problem:
    """Return the problem for an error of PyYAML, with its line."""
    message, context = error.problem or error.context or "", error.context or ""
    mark = error.problem_mark or error.context_mark
    is_open = "end of stream" in message or "<stream end>" in message
    if is_open and error.context_mark is not None and "block" not in context:
        mark = error.context_mark
        is_brace = "mapping" in context
        if "node" in context:  # a part is missing there: what was opened last
            before = (mark.buffer or "")[: mark.pointer]
            is_brace = before.rfind("{") > before.rfind("[")
        sign = "quotation mark" if "quoted" in context else "{" if is_brace else "["
        message = f"the {sign} that begins here is not closed"
    remedy = ""
    if r"character '\t'" in message:
        remedy = "; indent with spaces, not tabs"
    elif "cannot start any token" in message:
        remedy = "; put the value in quotes"
    elif "mapping values are not allowed" in message:
        message = "a second `key: ` in the line, or one indented more than the line before"
    elif "<block end>, but found" in message and "?" not in message and "start" not in message:
        message = f"{message.rpartition('found ')[2]} is left over; perhaps quotes are missing"
    elif "but found '<block mapping start>'" in message or "but found '?'" in message:
        message = "indented otherwise than the lines before"
    return Problem("", f"this is not YAML: {message}{remedy}", line=mark.line + 1 if mark else 1)
