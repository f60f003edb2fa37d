"""YAML in, with line numbers, so that a problem can be shown where it was written."""

from __future__ import annotations

import re
from typing import Any

import yaml

from det_jupyter.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses what no document in JSON can be, and reads 1e-3 as a number."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        _check(node, [], set())
        return node


def _check(node: yaml.Node | None, parents: list[yaml.Node], done: set[int]) -> None:
    """Refuse a key given twice, and an anchor that is used inside the value that it names."""
    if not isinstance(node, yaml.CollectionNode) or id(node) in done:
        return
    if any(node is parent for parent in parents):
        line = node.start_mark.line + 1
        raise ConfigError([f"line {line}: the value that begins here refers to itself (*anchor)"])
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
    parents.append(node)
    for item in node.value:
        _check(item[1] if isinstance(item, tuple) else item, parents, done)
    parents.pop()
    done.add(id(node))


def _check_keys(node: yaml.MappingNode) -> None:
    seen: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError([f"line {line}: a key has to be a name, got a {key.id}"])
        if first := seen.get((key.tag, key.value)):
            raise ConfigError([f"{key.value}: given twice, in lines {first} and {line}"])
        seen[key.tag, key.value] = line


# YAML 1.1, which PyYAML implements, takes 1e-3 for a string because it has no dot.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


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
    except yaml.YAMLError as error:
        raise ConfigError([f"this is not YAML: {error}"]) from None
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
            here = f"{path}.{key.value}" if path else str(key.value)
            lines[here] = key.start_mark.line + 1
            _collect_lines(value, here, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[f"{path}[{index}]"] = value.start_mark.line + 1
            _collect_lines(value, f"{path}[{index}]", lines)
