"""Answers the live view's questions (labextension/src/model/questions.ts), each in a thread.

{type, request, ...what is asked}   ->   {type, request, error, ...the answer}
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.errors import DetError, NotFound
from det_jupyter.notebook.handles.log_answers import log_answer
from det_jupyter.notebook.handles.order_answers import change_answer, profile_answer
from det_jupyter.notebook.handles.series_answers import series_answer
from det_jupyter.notebook.handles.show import STATIC_DIR
from det_jupyter.words import error_text

logger = logging.getLogger(__name__)

Question = Mapping[str, Any]
Answerer = Callable[[Client, int, Question], dict[str, Any]]

_MAX_CHECKPOINTS = 500


def config_answer(client: Client, experiment_id: int, question: Question) -> dict[str, Any]:
    """Return the effective configuration as YAML, whose comments say where values come from."""
    effective = client.effective_config(experiment_id)
    return effective.model_dump(include={"yaml", "template", "notices"})


def checkpoints_answer(client: Client, experiment_id: int, question: Question) -> dict[str, Any]:
    """Return the newest checkpoints, the newest first, and which is the best."""
    experiment = Experiment(client, experiment_id)
    handles = experiment.checkpoints()
    try:
        best = experiment.best_checkpoint().view.uuid
    except NotFound:
        best = ""
    newest = [handle.view.model_dump() for handle in handles[: -_MAX_CHECKPOINTS - 1 : -1]]
    return {"checkpoints": newest, "total": len(handles), "best": best}


def tabs_answer(client: Client, experiment_id: int, question: Question) -> dict[str, Any]:
    """Return the code of the tabs that a view begins without."""
    return {"text": (STATIC_DIR / "tabs.js").read_text(encoding="utf-8")}


ANSWERERS: dict[str, Answerer] = {
    "logs": log_answer,
    "config": config_answer,
    "checkpoints": checkpoints_answer,
    "tabs": tabs_answer,
    "series": series_answer,
    "profile": profile_answer,
    "change": change_answer,
}


def answer_soon(
    client: Client, experiment_id: int, question: Question, send: Callable[[Any], None]
) -> None:
    """Send the answer from another thread: a search may take seconds, and cells should run."""
    threading.Thread(
        target=lambda: send(answer(client, experiment_id, question)),
        name=f"det-answer-{experiment_id}",
        daemon=True,
    ).start()


def answer(client: Client, experiment_id: int, question: Question) -> dict[str, Any]:
    """Return the answer, or in `error` why there is none."""
    kind = question.get("type")
    said = {"type": kind, "request": question.get("request"), "error": ""}
    try:
        return {**ANSWERERS[str(kind)](client, experiment_id, question), **said}
    except DetError as error:
        return {**said, "error": str(error)}
    except Exception as error:  # the boundary to the browser: it is said in the view
        logger.exception("%s of experiment %d", kind, experiment_id)
        return {**said, "error": error_text(error)}
