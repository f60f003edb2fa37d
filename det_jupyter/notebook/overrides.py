"""Changes of a configuration as a line gives them: `--config searcher.max_length.epochs=12`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from det_jupyter.config import merge, parse_yaml
from det_jupyter.errors import ConfigError
from det_jupyter.notebook.drafts import below_magic


def read_overrides(assignments: Iterable[str], cell: str | None) -> dict[str, Any]:
    """Return the YAML of a cell, if there is one, with the assignments laid over it.

    Raises:
        ConfigError: All that cannot be read.
    """
    document = parse_yaml(below_magic(cell)) if cell is not None and cell.strip() else {}
    problems: list[str] = []
    for text in assignments:
        try:
            document = merge(document, _parse_assignment(text))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return document


def _parse_assignment(text: str) -> dict[str, Any]:
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            [f"--config: got {text!r}, expected KEY=VALUE, such as searcher.max_length.epochs=12"]
        )
    parsed = _parse_value(text, value)
    for key in reversed(keys):
        parsed = {key: parsed}
    assert isinstance(parsed, dict)
    return parsed


def _parse_value(text: str, value: str) -> Any:
    """Return a value: YAML, but `a,b` is a list as well."""
    is_list = "," in value and value.strip()[:1] not in ("[", "{", '"', "'")
    try:
        return yaml.safe_load(f"[{value}]" if is_list else value)
    except yaml.YAMLError:
        raise ConfigError([f"--config: got {text!r}, expected YAML after the ="]) from None
