"""YAML in, with line numbers, so that a problem can be shown where it was written.

Plain words and numbers are read as YAML 1.2 reads them: 1e-3 and 0o17 are numbers; 1:30 and
2024-01-31 are text; keys are always text. Where YAML's versions differ and both readings make
sense (off, 010, None as a hyperparameter), neither is taken: the problem names the line and what
to write. Where the field is of a known kind, that decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from det_jupyter.config.paths import join
from det_jupyter.config.values import MAX_VALUES
from det_jupyter.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
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


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's plain scalars, which refuses what no configuration can be."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        reader = _Reader()
        reader.visit(node, "", ())
        if reader.problems:
            raise ConfigError(reader.problems)
        return node


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(node.value.replace("_", ""), 0)


def _install_scalars() -> None:
    letters = {"null": "~nN\0", "bool": "tTfF", "int": "-+0123456789", "float": "-+.0123456789"}
    for name, first in letters.items():
        # An empty scalar has no first letter: PyYAML asks for "".
        initials = ["" if letter == "\0" else letter for letter in first]
        pattern = re.compile(f"^(?:{_SCALARS[name].pattern})$")
        _Loader.add_implicit_resolver(f"{_TAG}{name}", pattern, initials)
    _Loader.add_implicit_resolver(f"{_TAG}merge", re.compile("^<<$"), ["<"])
    _Loader.add_constructor(f"{_TAG}int", _construct_int)


_install_scalars()


class _Reader:
    """Looks at every node of a document before values are made of them."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._sizes: dict[int, int] = {}  # of nodes that were visited, with all that they hold
        self._parents: list[yaml.Node] = []

    def visit(self, node: yaml.Node | None, path: str, keys: Sequence[str]) -> int:
        """Note the problems of a node and all below it; return how many values it holds."""
        if node is None or id(node) in self._sizes:
            return self._sizes.get(id(node), 0)
        if any(node is parent for parent in self._parents):
            raise ConfigError(
                [f"line {_line(node)}: the value that begins here refers to itself (*anchor)"]
            )
        if node.tag.removeprefix(_TAG) not in {*_SCALARS, "str", "map", "seq", "merge"}:
            raise ConfigError([f"line {_line(node)}: {path}: the tag {node.tag} is not allowed"])
        if isinstance(node, yaml.ScalarNode):
            self._visit_scalar(node, path, keys)
        self._parents.append(node)
        size = 1 + sum(self._visit_items(node, path, keys))
        self._parents.pop()
        if size > MAX_VALUES:
            line = _line(node)
            raise ConfigError(
                [f"line {line}: the value that begins here is too large, with all its *anchors"]
            )
        self._sizes[id(node)] = size
        return size

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
        for key, _ in node.value:
            line = _line(key)
            if not isinstance(key, yaml.ScalarNode) or not key.value:
                raise ConfigError([f"line {line}: a key has to be a name, got {_kind(key)}"])
            if key.tag != f"{_TAG}merge":
                key.tag = f"{_TAG}str"
            name = (key.tag, key.value)
            if first := seen.get(name):
                here = join(path, key.value)
                self.problems.append(f"{here}: given twice, in lines {first} and {line}")
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

    def _tell(self, node: yaml.Node, path: str, problem: str) -> None:
        self.problems.append(f"line {_line(node)}: {path}: {problem}")


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


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "nothing"
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a sequence"


def _below(path: str, keys: Sequence[str], key: str) -> tuple[str, Sequence[str]]:
    """Return path and keys of what is below a key; a merge (<<) adds nothing to them."""
    return (path, keys) if key == "<<" else (join(path, key), (*keys, key))


def parse_yaml(text: str) -> dict[str, Any]:
    """Return the document of a configuration.

    Raises:
        ConfigError: It is not YAML, or not a mapping; the message names the line.
    """
    try:
        document = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        problem = error.problem or error.context or ""
        remedy = "; indent with spaces, not tabs" if r"character '\t'" in problem else ""
        raise ConfigError([f"{where}this is not YAML: {problem}{remedy}"]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"the character #x{error.character:04x} is not allowed"
        raise ConfigError([f"line {line}: this is not YAML: {what}"]) from None
    except RecursionError:
        raise ConfigError(["the configuration is nested too deeply"]) from None
    if document is None:
        raise ConfigError(
            ["the configuration is empty; it needs at least entrypoint and searcher"]
        )
    if not isinstance(document, dict):
        raise ConfigError([f"got {type(document).__name__}, expected `key: value` lines"])
    return document


def lines_of_paths(text: str) -> dict[str, int]:
    """Return the line (from 1) of every key, by its dotted path; empty when `text` is not YAML."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, ConfigError, RecursionError):
        return {}
    lines: dict[str, int] = {}
    _collect_lines(root, "", lines)
    return lines


def _collect_lines(node: yaml.Node | None, path: str, lines: dict[str, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = join(path, str(key.value))
            lines[here] = _line(key)
            _collect_lines(value, here, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            here = join(path, index)
            lines[here] = _line(value)
            _collect_lines(value, here, lines)


def line_of(problem: str, lines: Mapping[str, int]) -> int:
    """Return the line that a problem's path is in, 0 if it is about the whole.

    What is missing is in the line of the section that it is missing from.
    """
    path = problem.partition(":")[0]
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path, 0)


def with_lines(problems: Iterable[str], text: str) -> list[str]:
    """Return the problems with the lines of `text` that they are about, in their order."""
    lines = lines_of_paths(text)
    placed = sorted(((line_of(problem, lines), problem) for problem in problems), key=_first)
    return [f"line {line}: {problem}" if line else problem for line, problem in placed]


def _first(placed: tuple[int, str]) -> int:
    return placed[0]
