"""What YAML's plain words and numbers mean, and what no configuration can be.

Plain words and numbers are read as YAML 1.2 reads them: 1e-3 and 0o17 are numbers; 1:30 and
2024-01-31 are text; keys are always text. Where YAML's versions differ and both readings make
sense (off, 010, None as a hyperparameter), neither is taken: the problem names the line and what
to write. Where the field is of a known kind, that decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from det_jupyter.config.paths import join
from det_jupyter.config.values import MAX_DEPTH, MAX_VALUES, Unread
from det_jupyter.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
UNREAD_TAG = "!det_jupyter.unread"  # of a node with the number of a problem found before
_SCALARS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(  # a prefix alone, even with underscores, is text
        r"[-+]?(0|[1-9][0-9_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0o_*[0-7][0-7_]*|0b_*[01][01_]*)"
    ),
    "float": re.compile(
        r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*\.[0-9_]*)([eE][-+]?[0-9]+)?"
        r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
}
_MOST_DIGITS = 400  # of a number; 1e308 has 309
_SWITCHES = {"yes": True, "on": True, "no": False, "off": False}
_OCTAL = re.compile(r"[-+]?0[0-9_]+")


class Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's plain scalars, and an Unread for each value with a problem."""

    yaml_implicit_resolvers: dict[str, Any] = {}
    problems: Mapping[int, str] = {}  # by the id of the node
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node.

        Raises:
            ConfigError: It is nested deeper than any value may be; [m] to parse 490 levels takes
                seconds.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            line = self.line + 1  # where the scanner is
            raise ConfigError(
                [f"line {line}: nested too deeply; expected at most {MAX_DEPTH} levels"]
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node."""
        problem = self.problems.get(id(node))
        return Unread(problem) if problem else super().construct_object(node, deep)


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(node.value.replace("_", ""), 0)


def _install_scalars() -> None:
    letters = {"null": "~nN\0", "bool": "tTfF", "int": "-+0123456789", "float": "-+.0123456789"}
    for name, first in letters.items():
        # An empty scalar has no first letter: PyYAML asks for "".
        initials = ["" if letter == "\0" else letter for letter in first]
        pattern = re.compile(f"^(?:{_SCALARS[name].pattern})$")
        Loader.add_implicit_resolver(f"{_TAG}{name}", pattern, initials)
    Loader.add_implicit_resolver(f"{_TAG}merge", re.compile("^<<$"), ["<"])
    Loader.add_constructor(f"{_TAG}int", _construct_int)


_install_scalars()


class Reader:
    """Looks at every node of a document before values are made of them.

    Args:
        found: Line and problem of each value that could not even be parsed.
    """

    def __init__(self, found: Sequence[tuple[int, str]] = ()) -> None:
        self.problems: list[str] = []  # each with its line before it
        self.unread: dict[int, str] = {}  # what is wrong with a value, by the id of its node
        self.lines: dict[str, int] = {}  # of problems that are not in the line of their key
        self._found = found
        self._sizes: dict[int, int] = {}  # of nodes that were visited, with all that they hold
        self._parents: list[yaml.Node] = []

    def visit(self, node: yaml.Node | None, path: str, keys: Sequence[str]) -> int:
        """Note the problems of a node and all below it; return how many values it holds.

        Raises:
            ConfigError: No values can be made of the document.
        """
        if node is None or id(node) in self._sizes:
            return self._sizes.get(id(node), 0)
        if any(node is parent for parent in self._parents):
            line = line_of_node(node)
            raise ConfigError(
                [f"line {line}: the value that begins here refers to itself (*anchor)"]
            )
        size = 1
        if node.tag.removeprefix(_TAG) not in {*_SCALARS, "str", "map", "seq", "merge"}:
            self._visit_strange(node, path)
        elif isinstance(node, yaml.ScalarNode):
            self._visit_scalar(node, path, keys)
        elif path and (wrong := _wrong_key(node)):  # {{ lr }}, say: nothing of it can be read
            self._tell(node, path, _of_key(wrong))
        else:
            self._parents.append(node)
            size += sum(self._visit_items(node, path, keys))
            self._parents.pop()
        if size > MAX_VALUES:
            line = line_of_node(node)
            raise ConfigError(
                [f"line {line}: the value that begins here is too large, with all its *anchors"]
            )
        self._sizes[id(node)] = size
        return size

    def _visit_strange(self, node: yaml.Node, path: str) -> None:
        if node.tag == UNREAD_TAG and int(node.value) < len(self._found):
            self.lines[path], problem = self._found[int(node.value)]
            self._tell(node, path, problem, self.lines[path])
        else:
            self._tell(node, path, f"the tag {node.tag} is not allowed")

    def _visit_items(self, node: yaml.Node, path: str, keys: Sequence[str]) -> list[int]:
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self.visit(item, join(path, index), keys) for index, item in items]
        if not isinstance(node, yaml.MappingNode):
            return []
        self._check_keys(node, path)
        return [self.visit(value, *_below(path, keys, key.value)) for key, value in node.value]

    def _check_keys(self, node: yaml.MappingNode, path: str) -> None:
        seen: dict[tuple[str, str], int] = {}
        names = [pair for pair in node.value if _is_name(pair[0])]
        for key, _ in node.value if len(names) < len(node.value) else ():
            if not _is_name(key):
                self.problems.append(f"line {line_of_node(key)}: {_of_key(key)}")
        node.value = names
        for key, _ in names:
            line = line_of_node(key)
            if key.tag != f"{_TAG}merge":
                key.tag = f"{_TAG}str"
            name = (key.tag, key.value)
            if first := seen.get(name):
                here = join(path, key.value)
                problem = f"given twice, in lines {first} and {line}"
                self.problems.append(f"line {line}: {here}: {problem}")
            seen[name] = line

    def _visit_scalar(self, node: yaml.ScalarNode, path: str, keys: Sequence[str]) -> None:
        kind = node.tag.removeprefix(_TAG)
        is_whole_float = kind == "float" and _SCALARS["int"].fullmatch(node.value)
        if kind in _SCALARS and not (is_whole_float or _SCALARS[kind].fullmatch(node.value)):
            self._tell(node, path, f"got {node.value!r}, expected a value of type {kind}")
        elif kind in ("int", "float") and len(node.value) > _MOST_DIGITS:
            self._tell(node, path, f"got a number of {len(node.value)} digits")
        elif kind == "str" and node.style is None:
            self._visit_word(node, path, keys)

    def _visit_word(self, node: yaml.ScalarNode, path: str, keys: Sequence[str]) -> None:
        """Decide on plain text that another version of YAML reads as something else."""
        word = node.value
        switch = _SWITCHES.get(word.lower())
        is_octal = _OCTAL.fullmatch(word) is not None
        if switch is None and not is_octal and word != "None":
            return
        from det_jupyter.config.tree import types_at  # loads all sections: it is seldom needed

        types = types_at(keys)
        if switch is not None and bool in types:
            node.tag, node.value = f"{_TAG}bool", "true" if switch else "false"
        elif not types & {str, bool}:
            self._tell(node, path, _remedy(word, switch))

    def _tell(self, node: yaml.Node, path: str, problem: str, line: int = 0) -> None:
        self.unread[id(node)] = problem
        self.problems.append(f"line {line or line_of_node(node)}: {path}: {problem}")


def _remedy(word: str, switch: bool | None) -> str:
    if word == "None":
        return 'None is text in YAML; write null, or "None" if it is text'
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
    """Return the line (from 1) that a node begins in."""
    return int(node.start_mark.line) + 1


def _wrong_key(node: yaml.Node) -> yaml.Node | None:
    """Return the first key that is no name, if the node is a mapping in braces with one."""
    if not isinstance(node, yaml.MappingNode) or not node.flow_style:
        return None
    keys: list[yaml.Node] = [key for key, _ in node.value]
    return next((key for key in keys if not _is_name(key)), None)


def _of_key(key: yaml.Node) -> str:
    hint = "; no template fills {{ }} in here" if isinstance(key, yaml.MappingNode) else ""
    return f"a key has to be a name, got {_kind(key)}{hint}"


def _is_name(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and bool(key.value)


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "nothing"
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a sequence"


def _below(path: str, keys: Sequence[str], key: str) -> tuple[str, Sequence[str]]:
    """Return path and keys of what is below a key; a merge (<<) adds nothing to them."""
    return (path, keys) if key == "<<" else (join(path, key), (*keys, key))
