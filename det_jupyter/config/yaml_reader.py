"""Converts the nodes of a YAML text to values, and reports problems of nodes without a value.

Plain scalars are read as in YAML 1.2: 1e-3 and 0o17 are numbers; 1:30 and 2024-01-31 are text;
keys are always text. If versions of YAML differ (off, 010), the type of the field decides; without
one the scalar is a problem, which says what to write. None is text in all versions, also in files
of Determined; notices.py has a notice about it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from det_jupyter.config.json_values import MAX_DEPTH, MAX_VALUES, Unread
from det_jupyter.config.tree import types_at
from det_jupyter.contract.schema.key_paths import format_value, join
from det_jupyter.errors import ConfigError, Problem

_TAG = "tag:yaml.org,2002:"
# The tag of a node whose value is the number of a problem (yaml_salvage.py).
UNREAD_TAG = "!det_jupyter.unread"
_SCALARS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(  # a prefix without digits is text, even with underscores
        r"[-+]?(0|[1-9][0-9_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0o_*[0-7][0-7_]*|0b_*[01][01_]*)"
    ),
    "float": re.compile(
        r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*\.[0-9_]*)([eE][-+]?[0-9]+)?"
        r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
}
_MOST_DIGITS = 400  # digits of a number; 1e308 has 309
_SWITCHES = {"yes": True, "on": True, "no": False, "off": False}
_INDEX = re.compile(r"\[\d+\]")
_KINDS = {*_SCALARS, "str", "map", "seq", "merge"}
_OCTAL = re.compile(r"[-+]?0[0-9_]+")


class Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's plain scalars."""

    yaml_implicit_resolvers: dict[str, Any] = {}
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node.

        Raises:
            ConfigError: The node is nested too deeply; [m] parsing 490 levels takes seconds.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            line = self.line + 1  # where the scanner is
            text = f"nested too deeply; expected at most {MAX_DEPTH} levels"
            raise ConfigError(Problem("", text, line=line))
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _install_scalars() -> None:
    letters = {"null": "~nN\0", "bool": "tTfF", "int": "-+0123456789", "float": "-+.0123456789"}
    for name, first in letters.items():
        # PyYAML's first letter of an empty scalar is "".
        initials = ["" if letter == "\0" else letter for letter in first]
        pattern = re.compile(f"^(?:{_SCALARS[name].pattern})$")
        Loader.add_implicit_resolver(f"{_TAG}{name}", pattern, initials)
    Loader.add_implicit_resolver(f"{_TAG}merge", re.compile("^<<$"), ["<"])
    Loader.add_constructor(f"{_TAG}int", lambda _, node: int(node.value.replace("_", ""), 0))


_install_scalars()


class NodeReader:
    """Converts nodes to values. A value with a problem becomes an Unread, and the rest is read.

    Args:
        found: The problems of nodes with UNREAD_TAG, which contain the index; with their lines.
    """

    def __init__(self, found: Sequence[Problem] = ()) -> None:
        self.problems: list[Problem] = []  # each with its line
        self.lines: dict[str, int] = {}  # line of every key and list entry, by its path
        self._found = found
        self._num_values = 0
        self._parents: list[yaml.Node] = []
        self._scalars = Loader("")

    def read(self, node: yaml.Node, path: str = "") -> Any:
        """Return the value of a node and all below it.

        Raises:
            ConfigError: The document is too large, or a value contains itself.
        """
        self._check_bounds(node)
        kind = node.tag.removeprefix(_TAG)
        if kind not in _KINDS:
            return self._read_strange(node, path)
        if isinstance(node, yaml.ScalarNode):
            return self._read_scalar(node, path, kind)
        if path and (wrong := _wrong_key(node)):  # {{ lr }}, for example
            return self._unread(node, path, _of_key(wrong))
        self._parents.append(node)
        is_list = isinstance(node, yaml.SequenceNode)
        value = self._read_list(node, path) if is_list else self._read_mapping(node, path)
        self._parents.pop()
        return value

    def _check_bounds(self, node: yaml.Node) -> None:
        self._num_values += 1
        if any(node is parent for parent in self._parents):
            text = "refers to itself (*anchor)"
        elif self._num_values > MAX_VALUES:
            node = [*self._parents, node][:2][-1]  # the top-level entry that contains it
            text = "is too large, with all its *anchors"
        else:
            return
        text = f"the value that begins here {text}"
        raise ConfigError(Problem("", text, line=line_of_node(node)))

    def _read_strange(self, node: yaml.Node, path: str) -> Unread:
        if node.tag == UNREAD_TAG and int(node.value) < len(self._found):
            problem = self._found[int(node.value)]
            self.lines[path] = problem.line
            return self._unread(node, path, problem.text, problem.line)
        return self._unread(node, path, f"the tag {node.tag} is not allowed")

    def _read_list(self, node: yaml.Node, path: str) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            here = join(path, index)
            self.lines[here] = line_of_node(item)
            items.append(self.read(item, here))
        return items

    def _read_mapping(self, node: yaml.Node, path: str) -> dict[str, Any]:
        named = self._named(node, path)
        values: dict[str, Any] = {}
        for key, value in named:
            if _is_merge(key):
                values = self._read_merged(value, path) | values
        for key, value in named:
            if not _is_merge(key):
                here = join(path, key.value)
                self.lines[here] = line_of_node(key)
                values[key.value] = self.read(value, here)
        return values

    def _read_merged(self, node: yaml.Node, path: str) -> dict[str, Any]:
        """Return the entries of `<<: *anchor`; of several anchors, the first takes precedence."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in reversed(sources):
            value = self.read(source, path)
            if isinstance(value, dict):
                merged |= value
            else:
                self._unread(
                    source, join(path, "<<"), f"got {format_value(value)}, expected a mapping"
                )
        return merged

    def _named(self, node: yaml.Node, path: str) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return the entries whose keys are names; add a problem for each other key."""
        seen: dict[tuple[bool, str], int] = {}
        named = []
        for key, value in node.value:
            line = line_of_node(key)
            if not _is_name(key):
                self.problems.append(Problem("", _of_key(key), line=line))
                continue
            named.append((key, value))
            if first := seen.get((_is_merge(key), key.value)):
                text = f"given twice, in lines {first} and {line}"
                self.problems.append(Problem(join(path, key.value), text, line=line))
            seen[_is_merge(key), key.value] = line
        return named

    def _read_scalar(self, node: yaml.ScalarNode, path: str, kind: str) -> Any:
        text = node.value
        is_whole_float = kind == "float" and _SCALARS["int"].fullmatch(text)
        if kind in _SCALARS and not (is_whole_float or _SCALARS[kind].fullmatch(text)):
            return self._unread(node, path, f"got {text!r}, expected a value of type {kind}")
        if kind in ("int", "float") and len(text) > _MOST_DIGITS:
            return self._unread(node, path, f"got a number of {len(text)} digits")
        if kind in _SCALARS:
            return self._scalars.construct_object(node)
        return self._read_word(node, path) if node.style is None else text

    def _read_word(self, node: yaml.ScalarNode, path: str) -> Any:
        """Return the value of a plain scalar, which versions of YAML may read differently."""
        word = node.value
        switch = _SWITCHES.get(word.lower())
        if switch is None and not _OCTAL.fullmatch(word) and word != "None":
            return word
        types = types_at(_INDEX.sub("", path).split("."))
        if switch is not None and bool in types:
            return switch
        is_text = bool(types & {str, bool}) or (word == "None" and not types)
        return word if is_text else self._unread(node, path, _remedy(word, switch))

    def _unread(self, node: yaml.Node, path: str, text: str, line: int = 0) -> Unread:
        self.problems.append(Problem(path, text, line=line or line_of_node(node)))
        return Unread(text)


def _remedy(word: str, switch: bool | None) -> str:
    if word == "None":
        return "None is text in YAML; write null, or leave the key out"
    if switch is not None:
        meaning = "true" if switch else "false"
        return (
            f"{word} is {meaning} in one version of YAML and text in the next; "
            f'write {meaning}, or "{word}" if it is text'
        )
    digits = word.replace("_", "")
    decimal = f"{int(digits)}"
    octal = f"{int(digits, 8)}" if re.fullmatch("[-+]?[0-7]+", digits) else "no number"
    return (
        f"{word} is {octal} in one version of YAML (octal) and {decimal} in the next; "
        f'write {decimal}, or "{word}" if it is text'
    )


def line_of_node(node: yaml.Node) -> int:
    """Return the line (from 1) in which a node begins."""
    return int(node.start_mark.line) + 1


def _wrong_key(node: yaml.Node) -> yaml.Node | None:
    """Return the first key of a mapping in flow style that is no name; None if there is none."""
    if not isinstance(node, yaml.MappingNode) or not node.flow_style:
        return None
    keys: list[yaml.Node] = [key for key, _ in node.value]
    return next((key for key in keys if not _is_name(key)), None)


def _of_key(key: yaml.Node) -> str:
    """Return the problem with a key that is no name."""
    kind = "a sequence"
    if isinstance(key, yaml.MappingNode):
        kind = "a mapping; no template fills {{ }} in here"
    elif isinstance(key, yaml.ScalarNode):
        kind = "nothing"
    return f"expected a name as key, got {kind}"


def _is_merge(key: yaml.Node) -> bool:
    return key.tag == f"{_TAG}merge"


def _is_name(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and bool(key.value)
