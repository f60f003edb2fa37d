"""YAML that a line or a cell gives to a verb."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from det_jupyter.client.drafts import read_file
from det_jupyter.errors import ConfigError, UsageError
from det_jupyter.verbs.grammar import Call


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
