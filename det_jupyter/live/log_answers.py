"""What the ranks printed, for the live view (labextension/src/logs/)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from det_jupyter.client import Client
from det_jupyter.client.asking import ask_for
from det_jupyter.wire import LogLine, LogQuery

_FILTERS = ("after", "tail", "rank", "level")
_MAX_CHARACTERS = 1000  # of a line
_MAX_ANSWER = 300_000  # characters: Jupyter drops messages above 1 MB a second


def _bounded(lines: Sequence[LogLine]) -> list[dict[str, Any]]:
    """Return the newest lines that a message can carry, long ones cut."""
    kept: list[dict[str, Any]] = []
    room = _MAX_ANSWER
    for line in reversed(lines):
        text = line.text
        if len(text) > _MAX_CHARACTERS:
            text = f"{text[:_MAX_CHARACTERS]}…"
        room -= len(text)
        if room < 0:
            break
        kept.append({**line.model_dump(), "text": text})
    return kept[::-1]


def log_answer(client: Client, experiment_id: int, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lines that fit; of these the `first`, if the question says so."""
    given = {name: question.get(name) for name in _FILTERS}
    query = ask_for(LogQuery, **given, search=question.get("search") or None)
    page = client.experiment_logs(experiment_id, query, trial_id=question.get("trial_id"))
    return {**page.model_dump(), "lines": _bounded(page.lines[: question.get("first")])}
