"""Answers the live view's questions (labextension/src/model/questions.ts).

{type, request, ...what is asked}   ->   {type, request, error, ...the answer}
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.errors import DetError, NotFound
from det_jupyter.live.log_answers import log_answer
from det_jupyter.live.order_answers import change_answer, profile_answer
from det_jupyter.live.series_answers import series_answer
from det_jupyter.live.stack_answers import stack_answer
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


ANSWERERS: dict[str, Answerer] = {
    "logs": log_answer,
    "config": config_answer,
    "checkpoints": checkpoints_answer,
    "series": series_answer,
    "stacks": stack_answer,
    "profile": profile_answer,
    "change": change_answer,
}


def answer(
    client: Client,
    experiment_id: int,
    question: Question,
    answerers: Mapping[str, Answerer] = ANSWERERS,
) -> dict[str, Any]:
    """Return the answer, or in `error` why there is none."""
    kind = question.get("type")
    said = {"type": kind, "request": question.get("request"), "error": ""}
    if not isinstance(kind, str) or kind not in answerers:
        return {**said, "error": f"there is no question {kind!r}"}
    try:
        return {**answerers[kind](client, experiment_id, question), **said}
    except DetError as error:
        return {**said, "error": str(error)}
    except Exception as error:  # the boundary to the browser: it is said in the view
        logger.exception("%s of experiment %d", kind, experiment_id)
        return {**said, "error": error_text(error)}
