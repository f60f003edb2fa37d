"""Which words fit at a place of our magics' lines, and of the YAML below them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from functools import cache, partial

from det_jupyter.autostart import find_master
from det_jupyter.client import Client
from det_jupyter.config.tree import all_paths
from det_jupyter.errors import DetError
from det_jupyter.notebook.complete import lookups
from det_jupyter.notebook.complete.yaml_words import find_cursor, words_at
from det_jupyter.notebook.handles import connection
from det_jupyter.verbs.completing import options_of, words_after
from det_jupyter.verbs.table import CELL_VERBS, cell_parser, det_parser, line_parser


def find_words(lines: Sequence[str], number: int, line: str) -> tuple[list[str], str] | None:
    """Return what fits at the end of `line`, and how much of it is typed; None: not ours.

    Args:
        lines: The cell.
        number: Index of the line in it.
        line: The line up to the cursor.
    """
    if magic := re.match(r"\s*%(det_experiment|det)\s", line):
        parser = line_parser() if magic[1] == "det_experiment" else det_parser()
        return _line_words(parser, line), _typed(line)
    if not (magic := re.match(r"%%(det_experiment|det)(?=\s|$)", lines[0])):
        return None
    if number > 0:
        return _yaml_words("\n".join([*lines[1:number], line]))
    if magic[1] == "det":
        return _line_words(det_parser(), line), _typed(line)
    given = line.removesuffix(_typed(line)).split()[1:]
    if given[:1] and given[0] in CELL_VERBS:
        return _line_words(line_parser(), line), _typed(line)
    if given[-1:] == ["--template"]:
        return _KNOWN["templates"](), _typed(line)
    return [*options_of(cell_parser()), *([] if given else CELL_VERBS)], _typed(line)


def _typed(line: str) -> str:
    return "" if line[-1:].isspace() else (line.split() or [""])[-1]


def _line_words(parser: argparse.ArgumentParser, line: str) -> list[str]:
    """Return what may follow the words of a line: verbs, then what its verb takes."""
    return words_after(parser, line.removesuffix(_typed(line)).split()[1:], _KNOWN)


def _yaml_words(text: str) -> tuple[list[str], str]:
    cursor = find_cursor(text)
    if (*cursor.section, cursor.key) == ("resources", "resource_pool"):
        return _KNOWN["pools"](), cursor.typed
    return words_at(cursor, _metrics), cursor.typed


@cache
def _lookups() -> lookups.Lookups:
    return lookups.Lookups(_running_master)


def _running_master() -> Client | None:
    """Return a client of the master that runs; None when none does: Tab starts nothing."""
    try:
        return connection.client() if find_master() else None
    except DetError:
        return None


def _look_up(question: str, ask: lookups.Ask) -> list[str]:
    return _lookups().words(question, ask)


def _metrics(entrypoint: str | None) -> list[str]:
    ask = partial(lookups.metric_names, entrypoint=entrypoint)
    return _look_up(f"metrics of {entrypoint}", ask)


_KNOWN: dict[str, Callable[[], list[str]]] = {
    "keys": lambda: list(all_paths()),
    **{name: partial(_look_up, name, ask) for name, ask in lookups.QUESTIONS.items()},
}
