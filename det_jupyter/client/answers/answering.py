"""Answers the live view's questions (labextension/src/model/questions.ts).

{type, request, ...arguments}   ->   {type, request, error, ...fields of the answer}
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from socket import gethostname
from typing import Any
from urllib.parse import urlsplit

from jupyter_core.utils import ensure_event_loop

from det_jupyter.client import Client, Experiment, Model, Trial
from det_jupyter.client.handles.boards import board_of
from det_jupyter.client.handles.models import create_model_in, find_models
from det_jupyter.client.handles.rank import Rank
from det_jupyter.client.handles.reasons import carry_out
from det_jupyter.client.requests import make_request
from det_jupyter.contract.messages import (
    LIFE,
    ConfigText,
    LogLine,
    LogPage,
    LogQuery,
    Pause,
    Remedy,
    SeriesQuery,
    Wire,
)
from det_jupyter.contract.messages.pages import (
    BoardAnswer,
    CellAnswer,
    ChangeAnswer,
    CheckpointsAnswer,
    ProfileAnswer,
    RankStack,
    RegisteredAnswer,
    SeriesAnswer,
    SeriesByTrial,
    StacksAnswer,
)
from det_jupyter.contract.messages.status import PAUSES, VERBS
from det_jupyter.contract.trial.plain_trainers import describe_plain, with_callback
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import ConfigError, Conflict, DetError, NotFound

logger = logging.getLogger(__name__)

Question = Mapping[str, Any]
Answerer = Callable[[Client, int, Question], Wire | None]  # None: there is nothing to answer

# Number of waiting trials, of each pool and of the experiment, that remedies are made for.
QUEUE_FRONT = 8
_MAX_CHECKPOINTS = 500
# Jupyter drops messages of more than 1 MB a second.
_MAX_LOGS = 300_000  # characters
_MAX_LINE = 1000
_MAX_STACK = 20_000  # characters per rank, as recursions can be thousands of frames deep
_MAX_POINTS = 16_000  # some 45 characters each
_RANKS_AT_ONCE = 32
_LOG_FILTERS = ("after", "tail", "rank", "agent", "level")
_CHANGES = ("lr", "lr_factor", "optimizer", "min_validation_period", "priority")


def config_answer(client: Client, experiment_id: int, question: Question) -> ConfigText:
    """Return the effective configuration as YAML, with the origins of values as comments."""
    return ConfigText.built_from(client.effective_config(experiment_id))


def checkpoints_answer(
    client: Client, experiment_id: int, question: Question
) -> CheckpointsAnswer:
    """Return the newest checkpoints, newest first, and the uuid of the best one."""
    experiment = Experiment(client, experiment_id)
    handles = experiment.checkpoints()
    try:
        best = experiment.best_checkpoint().view.uuid
    except NotFound:
        best = ""
    newest = [handle.view for handle in handles[: -_MAX_CHECKPOINTS - 1 : -1]]
    models = find_models(client, archived=True)
    registered: dict[str, list[str]] = {}
    for model in models:
        for version in model.versions:
            if version.checkpoint.experiment_id == experiment_id:
                registered.setdefault(version.uuid, []).append(f"{model.name} {version.number}")
    return CheckpointsAnswer(
        checkpoints=newest,
        total=len(handles),
        best=best,
        registered=registered,
        models=[model.name for model in models if not model.is_archived],
    )


def register_answer(client: Client, experiment_id: int, question: Question) -> RegisteredAnswer:
    """Make the checkpoint `uuid` a version of the model `model`, which is created if needed."""
    name = str(question.get("model") or "").strip()
    if all(model.name != name for model in client.models()):
        create_model_in(client, name)
    version = Model(client, name).register_version(str(question.get("uuid")))
    return RegisteredAnswer(model=name, number=version.number)


def log_answer(client: Client, experiment_id: int, question: Question) -> LogPage:
    """Return matching lines; only the first ones if the question has `first`."""
    given = {name: question.get(name) for name in _LOG_FILTERS}
    query = make_request(LogQuery, **given, search=question.get("search") or None)
    page = client.experiment_logs(experiment_id, query, trial_id=question.get("trial_id"))
    return page.model_copy(update={"lines": _bounded(page.lines[: question.get("first")])})


def _bounded(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the newest lines that fit into a message, long ones shortened."""
    kept: list[LogLine] = []
    room = _MAX_LOGS
    for line in reversed(lines):
        text = line.text
        if len(text) > _MAX_LINE:
            text = f"{text[:_MAX_LINE]}…"
        room -= len(text)
        if room < 0:
            break
        kept.append(line.model_copy(update={"text": text}))
    return kept[::-1]


class _SeriesArguments(Wire):
    trial_id: Whole | None = None
    agent_id: str | None = None
    trial_ids: list[Whole] = []
    query: dict[str, Any] = {}


def series_answer(
    client: Client, experiment_id: int, question: Question
) -> SeriesAnswer | SeriesByTrial:
    """Return a page of series of `trial_id` or `agent_id`, or one for each of `trial_ids`."""
    which = make_request(
        _SeriesArguments,
        **{n: question[n] for n in _SeriesArguments.model_fields & question.keys()},
    )
    most = _MAX_POINTS // max(1, len(which.trial_ids))
    query = make_request(SeriesQuery, **which.query).model_copy(update={"max_points": most})
    if which.agent_id is not None:
        return SeriesAnswer(page=client.agent_series(which.agent_id, query))
    if which.trial_id is not None:
        return SeriesAnswer(page=client.series(which.trial_id, query))
    return SeriesByTrial(
        pages={str(trial_id): client.series(trial_id, query) for trial_id in which.trial_ids}
    )


class _StackArguments(Wire):
    trial_id: int
    rank: int | None = None  # None: all ranks


def stack_answer(client: Client, experiment_id: int, question: Question) -> StacksAnswer:
    """Return the stack of each rank, or in `error` why the rank did not answer.

    Raises:
        Conflict: The trial does not run now.
    """
    asked = make_request(
        _StackArguments, trial_id=question.get("trial_id"), rank=question.get("rank")
    )
    trial = Trial(client, asked.trial_id, partial(Experiment, client))
    ranks = [rank for rank in trial.ranks if asked.rank in (None, rank.view.rank)]
    with ThreadPoolExecutor(_RANKS_AT_ONCE) as pool:
        return StacksAnswer(trial_id=trial.id, stacks=list(pool.map(_stack_of, ranks)))


def _stack_of(rank: Rank) -> RankStack:
    try:
        stack = rank.stack()
    except DetError as error:
        return RankStack(rank=rank.view.rank, error=str(error))
    finally:
        ensure_event_loop().close()  # jupyter_client has created it for this thread
    return RankStack(rank=rank.view.rank, stack=stack[-_MAX_STACK:])


def profile_answer(client: Client, experiment_id: int, question: Question) -> ProfileAnswer:
    """Record a profile; return all traces, and the path of the first one.

    Raises:
        Conflict: No rank has written a trace.
    """
    given = {name: question[name] for name in ("steps", "ranks") if question.get(name) is not None}
    traces = _trial(client, experiment_id, question).profile(**given)
    written = [trace for trace in traces if trace.path]
    if not written:
        raise Conflict(repr(traces))
    return ProfileAnswer(
        path=written[0].view.path,
        size_bytes=written[0].size_bytes,
        text="\n".join(map(repr, traces)),
        traces=[trace.view for trace in traces],
    )


def change_answer(client: Client, experiment_id: int, question: Question) -> ChangeAnswer:
    """Change a running trial; return the changes as text, and the batch from which they apply."""
    asked = question.get("changes") or {}
    if not isinstance(asked, Mapping):
        raise ConfigError([f"change: got {asked!r}, expected changes by name"])
    if unknown := asked.keys() - {*_CHANGES}:
        raise ConfigError(
            [f"change: got {min(unknown)!r}, expected some of {', '.join(_CHANGES)}"]
        )
    given = {name: value for name, value in asked.items() if value is not None}
    made = _trial(client, experiment_id, question).change(**given)
    texts = [] if made is None else [repr(made)]
    if "priority" in given:
        texts.append(f"priority {given['priority']}")
    return ChangeAnswer(
        text="; ".join(texts), steps_completed=None if made is None else made.steps_completed
    )


def _trial(client: Client, experiment_id: int, question: Question) -> Trial:
    trial_id = question.get("trial_id")
    existing = [view.id for view in client.experiment(experiment_id).trials]
    if trial_id not in existing:
        raise NotFound(f"experiment {experiment_id} has no trial {trial_id}")
    return Trial(client, int(trial_id), partial(Experiment, client))


def tensorboard_answer(client: Client, experiment_id: int, question: Question) -> BoardAnswer:
    """Return the TensorBoard of the experiment; the first question starts it.

    Raises:
        DetError: The package tensorboard is not installed here, or it does not serve.
    """
    board = board_of(client.experiment(experiment_id).id)
    port = urlsplit(board.url).port
    return BoardAnswer(url=board.url, tunnel=f"ssh -NL {port}:localhost:{port} {gethostname()}")


def callback_answer(client: Client, experiment_id: int, question: Question) -> CellAnswer:
    """Return the cell that calls a trainer without DetCallback, and the cell with it added.

    Raises:
        Conflict: Its source cannot be changed safely.
    """
    view = client.experiment(experiment_id)
    entrypoint, trainer = view.capsule.entrypoint, view.plain_trainer
    for before in client.code(experiment_id).values():
        after = with_callback(before, entrypoint, trainer)
        if after is not None:
            return CellAnswer(before=before, after=after)
    raise Conflict(
        f"where to add it in {entrypoint} is unclear; {describe_plain(trainer, entrypoint)}"
    )


def command_answer(client: Client, experiment_id: int, question: Question) -> None:
    """Carry out a button's command: a verb, the end of ranks that do not leave, or a remedy.

    Raises:
        Conflict: The remedy is not offered any more.
    """
    command = str(question.get("command"))
    if command in VERBS:
        client.change(LIFE[command](experiment_id=experiment_id))
        return
    if command == Remedy(verb="pause_at_once", target=[experiment_id], text="").id:
        view = client.experiment(experiment_id)
        is_leaving = any(trial.leaving is not None for trial in view.trials)
        if view.state not in PAUSES and not is_leaving:
            raise Conflict("its ranks do not leave any more")
        client.change(Pause(experiment_id=experiment_id, at_once=True))
        return
    cluster = client.cluster(limit=QUEUE_FRONT, experiment_id=experiment_id)
    for reason in cluster.reasons_of(experiment_id).values():
        for remedy in reason.remedies:
            if remedy.id == command:
                carry_out(client, remedy)
                return
    raise Conflict("the queue has changed meanwhile, and this would no longer start the trial")


ANSWERERS: dict[str, Answerer] = {
    "command": command_answer,
    "logs": log_answer,
    "config": config_answer,
    "checkpoints": checkpoints_answer,
    "register": register_answer,
    "series": series_answer,
    "stacks": stack_answer,
    "profile": profile_answer,
    "change": change_answer,
    "tensorboard": tensorboard_answer,
    "callback": callback_answer,
}


def answer(
    client: Client,
    experiment_id: int,
    question: Question,
    answerers: Mapping[str, Answerer] = ANSWERERS,
) -> dict[str, Any]:
    """Return the answer to a question; its `error` is not empty if that failed."""
    kind = question.get("type")
    head = {"type": kind, "request": question.get("request"), "error": ""}
    if not isinstance(kind, str) or kind not in answerers:
        return {**head, "error": f"there is no question {kind!r}"}
    try:
        answered = answerers[kind](client, experiment_id, question)
        return {**(answered.model_dump() if answered is not None else {}), **head}
    except DetError as error:
        return {**head, "error": str(error)}
    except Exception as error:  # the boundary to the browser, which shows the error
        logger.exception("%s of experiment %d", kind, experiment_id)
        return {**head, "error": error_text(error)}
