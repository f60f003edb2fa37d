"""A configuration as it stands in a cell: what the user wrote, and the template under it.

All problems are told at once, each with the line of the cell that it is about; one that a template
brings in names the template instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from det_jupyter.config import ExperimentConfig, lines_of_paths, merge, parse_config
from det_jupyter.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A configuration that is about to be submitted.

    Args:
        text: The cell's YAML, lines as the user sees them.
        document: What is written there, with the options of the magic's line laid over it.
        template_name: The template's name, if one is given.
        template: What is in it.
    """

    text: str
    document: dict[str, Any]
    template_name: str | None = None
    template: dict[str, Any] = field(default_factory=dict)

    def merged(self) -> dict[str, Any]:
        """Return the whole document, not completed and not checked."""
        return merge(self.template, self.document)

    def parse(self, *, default_seed: int) -> ExperimentConfig:
        """Return the complete configuration.

        Raises:
            ConfigError: Everything that is wrong, without lines.
        """
        return parse_config(self.document, default_seed=default_seed, template=self.template)

    def located(self, problems: Iterable[str]) -> ConfigError:
        """Put before each problem the line that it is about, in the order of the lines."""
        return located(problems, self.text, self.template_name, self.template, self.merged())


def below_magic(cell: str) -> str:
    """Return the YAML of a cell with its lines where the user sees them: the magic's is line 1."""
    return f"\n{cell}"


def located(
    problems: Iterable[str],
    text: str,
    template_name: str | None = None,
    template: Mapping[str, Any] | None = None,
    merged: Mapping[str, Any] | None = None,
) -> ConfigError:
    """Return the problems, each with its line in the text or with the template it comes from."""
    lines = lines_of_paths(text)
    inherited = set(_paths(template or {}, ""))
    if merged is not None:  # what the user replaced whole is not the template's any more
        inherited &= set(_paths(merged, ""))
    placed = []
    for problem in problems:
        where = _nearest(problem.split(":", 1)[0], lines.keys() | inherited)
        if where in lines:
            placed.append((lines[where], f"line {lines[where]}: {problem}"))
        elif where in inherited:
            placed.append((0, f"{problem} (from template {template_name})"))
        else:
            placed.append((0, problem))
    return ConfigError([text for _, text in sorted(placed, key=lambda item: item[0])])


def _nearest(path: str, known: Iterable[str]) -> str:
    """Return the path or its innermost section that is known: what is missing is missing there."""
    while path and path not in known:
        path = re.sub(r"(^|\.)[^.\[\]]*$|\[\d+\]$", "", path)
    return path


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
