"""Words that complete a line of our magics, or the YAML below one.

Names and ids come from the master, if one runs already. They are fetched in a thread, for which
Tab waits at most 40 ms. If that takes longer, Tab offers the former answer, and the new one later.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial

from det_jupyter.client import Client
from det_jupyter.config.tree import all_paths
from det_jupyter.connection import find_master
from det_jupyter.contract.messages import ExperimentQuery
from det_jupyter.errors import DetError
from det_jupyter.front.notebook.complete.magic_parsers import (
    CELL_VERBS,
    cell_parser,
    det_parser,
    line_parser,
)
from det_jupyter.front.notebook.complete.yaml_words import find_cursor, words_at
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.verbs.word_completion import QUESTIONS, Fetch, options_of, words_after

_PATIENCE_S = 0.04
_FRESH_S = 5.0  # an answer is fetched again when it is older
_SOURCES = 3  # experiments whose metrics are offered


def find_words(lines: Sequence[str], number: int, line: str) -> tuple[list[str], str] | None:
    """Return the words that may end `line`, and the typed beginning of the word.

    Args:
        lines: The lines of the cell.
        number: Index of the cursor's line in it.
        line: That line up to the cursor.

    Returns:
        None if the line does not belong to our magics.
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
    """Return the words that may follow in a line of verbs."""
    return words_after(parser, line.removesuffix(_typed(line)).split()[1:], _KNOWN)


def _yaml_words(text: str) -> tuple[list[str], str]:
    cursor = find_cursor(text)
    if (*cursor.section, cursor.key) == ("resources", "resource_pool"):
        return _KNOWN["pools"](), cursor.typed
    return words_at(cursor, _metrics), cursor.typed


class Lookups:
    """Answers of the master by question, each fetched again when it is some seconds old."""

    def __init__(self, connect: Callable[[], Client | None]) -> None:
        self._connect = connect
        self._answers: dict[str, list[str]] = {}
        self._asked_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def words(self, question: str, fetch: Fetch) -> list[str]:
        """Return the newest answer to a question; [] if there is none yet.

        `fetch` is called with a client in a thread, if the answer is too old.
        """
        with self._lock:
            is_fresh = time.monotonic() - self._asked_at.get(question, -_FRESH_S) < _FRESH_S
            if not is_fresh:
                self._asked_at[question] = time.monotonic()
        if not is_fresh:
            thread = threading.Thread(
                target=self._find_out, args=(question, fetch), name="det-complete", daemon=True
            )
            thread.start()
            thread.join(_PATIENCE_S)
        return self._answers.get(question, [])

    def _find_out(self, question: str, fetch: Fetch) -> None:
        client = self._connect()
        if client is not None:
            with suppress(DetError):  # the master exits just now: the former answer stays
                self._answers[question] = fetch(client)


def metric_names(client: Client, entrypoint: str | None) -> list[str]:
    """Return the validation metrics of the newest experiments of this entrypoint."""
    rows = client.find(ExperimentQuery(archived=True)).rows
    names: dict[str, None] = {}
    for row in [row for row in rows if entrypoint in (None, row.entrypoint)][:_SOURCES]:
        names[row.metric] = None
        for curve in client.curves(row.id, max_points=5):
            if curve.group == "validation":
                names[curve.name] = None
    return list(names)


@cache
def _lookups() -> Lookups:
    return Lookups(_running_master)


def _running_master() -> Client | None:
    """Return a client of the running master; None if none runs, as Tab must not start one."""
    try:
        return connection.client() if find_master() else None
    except DetError:
        return None


def _look_up(question: str, fetch: Fetch) -> list[str]:
    return _lookups().words(question, fetch)


def _metrics(entrypoint: str | None) -> list[str]:
    return _look_up(f"metrics of {entrypoint}", partial(metric_names, entrypoint=entrypoint))


_KNOWN: dict[str, Callable[[], list[str]]] = {
    "keys": lambda: list(all_paths()),
    **{name: partial(_look_up, name, fetch) for name, fetch in QUESTIONS.items()},
}
