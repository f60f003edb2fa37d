"""Answers the live view's requests for what the ranks printed (labextension/src/logs/)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from det_jupyter.client import Client
from det_jupyter.client.asking import ask_for
from det_jupyter.errors import DetError
from det_jupyter.wire import LogLine, LogQuery
from det_jupyter.words import error_text

logger = logging.getLogger(__name__)

_FILTERS = ("after", "tail", "rank", "level")
_MAX_CHARACTERS = 1000  # of a line
_MAX_ANSWER = 300_000  # characters: Jupyter drops messages above 1 MB a second


def answer_soon(
    client: Client, experiment_id: int, question: dict[str, Any], send: Callable[[Any], None]
) -> None:
    """Send the answer from another thread: a search may take seconds, and cells should run."""
    threading.Thread(
        target=lambda: send(answer(client, experiment_id, question)),
        name=f"det-logs-{experiment_id}",
        daemon=True,
    ).start()


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


def answer(client: Client, experiment_id: int, question: dict[str, Any]) -> dict[str, Any]:
    """Return the lines that fit, or in `error` why there are none."""
    said = {"type": "logs", "request": question.get("request"), "error": ""}
    try:
        given = {name: question.get(name) for name in _FILTERS}
        query = ask_for(LogQuery, **given, search=question.get("search") or None)
        page = client.experiment_logs(experiment_id, query, trial_id=question.get("trial_id"))
        return {**page.model_dump(), "lines": _bounded(page.lines), **said}
    except DetError as error:
        return {**said, "error": str(error)}
    except Exception as error:  # the boundary to the browser: it is said in the panel
        logger.exception("logs of experiment %d", experiment_id)
        return {**said, "error": error_text(error)}
