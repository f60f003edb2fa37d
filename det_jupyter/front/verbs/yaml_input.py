"""Reads the YAML and the changes of a line: its cell, a file, or `--config max_restarts=2`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from det_jupyter.client.submitting.drafts import read_file
from det_jupyter.config import find_conflicts, merge, nested, parse_part
from det_jupyter.errors import ConfigError, Problem, UsageError
from det_jupyter.front.verbs.grammar import Call

_LISTS = ("bind_mounts",)  # one value is a list of one


def read_overrides(assignments: Iterable[str], text: str | None) -> dict[str, Any]:
    """Parse `text` (YAML, or None), and merge assignments such as "max_restarts=2" into it.

    Raises:
        ConfigError: All that is invalid, and assignments of which one undoes another.
    """
    document: dict[str, Any] = {}
    parsed: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    try:
        if text is not None and text.strip():
            document = parse_part(text)
    except ConfigError as error:
        problems += error.problems
    for assignment in assignments:
        try:
            parsed[assignment] = _parse_assignment(assignment)
        except ConfigError as error:
            problems += error.problems
    problems += find_conflicts(parsed, "--config")
    if problems:
        raise ConfigError(problems)
    return reduce(merge, parsed.values(), document)


def _parse_assignment(text: str) -> dict[str, Any]:
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            [
                Problem(
                    "--config",
                    f"got {text!r}, expected KEY=VALUE, such as searcher.max_length.epochs=12",
                )
            ]
        )
    parsed = _parse_value(text, value)
    if keys[-1] in _LISTS and not isinstance(parsed, list):
        parsed = [parsed]
    return nested(path.strip(), parsed)


def _parse_value(text: str, value: str) -> Any:
    """Parse a value of YAML; `a,b` is a list, too."""
    is_list = "," in value and value.strip()[:1] not in ("[", "{", '"', "'")
    try:
        return yaml.safe_load(f"[{value}]" if is_list else value)
    except yaml.YAMLError:
        raise ConfigError(
            [Problem("--config", f"got {text!r}, expected YAML after the =")]
        ) from None


def set_from_yaml(call: Call, set_it: Callable[[str], str], above: str) -> str:
    """Return `set_it(text)` for the YAML of the cell, or of the file that the line names.

    `above` is the line to type above YAML in a cell, for the error if neither is given.
    """
    if (call.text is None) == (call.options.file is None):
        ways = "a file with YAML" if call.is_shell else f"either a file, or {above} above YAML"
        raise UsageError(f"{call.options.words}: give {ways}")
    if call.text is not None:
        return set_it(call.text)
    path = Path(call.options.file)
    text = read_file(path)
    try:
        return set_it(text)
    except ConfigError as error:
        raise ConfigError([replace(each, source=str(path)) for each in error.problems]) from None
