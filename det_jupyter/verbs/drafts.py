"""YAML as the user wrote it, in a cell or in a file, and the problems with their lines in it.

All problems are reported at once, each with its line; one that a template brings in names the
template instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from det_jupyter.config import (
    ExperimentConfig,
    Reading,
    Sources,
    check_sanity,
    merge,
    parse_config,
)
from det_jupyter.errors import ConfigError, UsageError
from det_jupyter.verbs.grammar import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A configuration that is about to be submitted.

    Args:
        reading: The cell's YAML, lines as the user sees them.
        document: What is written there, with the options of the magic's line laid over it.
        template_name: The template's name, if one is given.
        template: What is in it; None: there is none of that name.
    """

    reading: Reading
    document: dict[str, Any]
    template_name: str | None = None
    template: dict[str, Any] | None = field(default_factory=dict)

    def merged(self) -> dict[str, Any]:
        """Return the whole document, not completed and not checked."""
        return merge(self.template or {}, self.document)

    def parse(self, *, default_seed: int) -> tuple[ExperimentConfig | None, list[str]]:
        """Return the complete configuration, and all that is wrong with text and content."""
        problems = list(self.reading.problems)
        if self.template is None or not self.reading.is_document:  # more may be missing
            return None, problems + check_sanity(self.document)
        try:
            return parse_config(
                self.document, default_seed=default_seed, template=self.template
            ), problems
        except ConfigError as error:
            return None, problems + error.problems

    def located(self, problems: Iterable[str]) -> ConfigError:
        """Return the problems, each with its line, in the order of the lines."""
        return located(problems, self.reading, self.document, self.template_name, self.template)


def below_magic(cell: str) -> str:
    """Return the YAML of a cell with its lines where the user sees them: the magic's is line 1."""
    return f"\n{cell}"


def located(
    problems: Iterable[str],
    reading: Reading,
    document: Mapping[str, Any] | None = None,
    template_name: str | None = None,
    template: Mapping[str, Any] | None = None,
) -> ConfigError:
    """Return the problems, each with its line in the text or with the template it comes from."""
    sources = Sources(
        document=reading.document if document is None else document,
        lines=reading.lines,
        template=template or {},
    )
    found = sources.locate(problems)
    inherited = [
        f"{each.problem} (from template {template_name})" for each in found if each.is_inherited
    ]
    return ConfigError(inherited + [each.with_line() for each in found if not each.is_inherited])


def set_from_yaml(call: Call, set_it: Callable[[str], str], above: str) -> str:
    """Return what `set_it` makes of the YAML in the cell, or in the file that the line names.

    Args:
        call: With the option `file`.
        set_it: Takes the text; raises a ConfigError with the lines of its problems.
        above: The line that stands above YAML in a cell.
    """
    if (call.text is None) == (call.options.file is None):
        raise UsageError(f"{call.options.words}: give either a file, or {above} above YAML")
    if call.text is not None:
        return set_it(call.text)
    path = Path(call.options.file)
    text = read_file(path)
    try:
        return set_it(text)
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from None


def read_file(path: Path) -> str:
    """Return a file's text.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError([f"{path}: {reason}; give a file with YAML"]) from None
