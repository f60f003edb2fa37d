"""Carries out queries of samplers and pruners, one at a time; their answers are events.

A sampler may compute for seconds, so it does so in a thread. As answers are stored as events, a
restarted master does not query again, and an update of Optuna does not change past decisions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from det_jupyter.contract.values.text import error_text
from det_jupyter.master.machine.model.commands import ConsultSampler
from det_jupyter.master.machine.model.events import HparamsSampled, TrialJudged
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.sampling.optuna_study import TrialHistory
from det_jupyter.master.sampling.samplers import Samplers
from det_jupyter.master.service.service import Service
from det_jupyter.searcher import ExitReason

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_FAILED = (ExitReason.ERRORED, ExitReason.INVALID_HP, ExitReason.CANCELED)


async def consult(service: Service, samplers: Samplers) -> None:
    """Answer questions until cancelled, beginning with those left by a former master process."""
    for question in service.machine.pending_questions():
        if isinstance(question, ConsultSampler):
            service.questions.put_nowait(question)
    while True:
        question = await service.questions.get()
        try:
            experiment = service.machine.state.experiments.get(question.experiment_id)
            if experiment is not None and not experiment.state.is_terminal:
                service.take(await _answer(service, samplers, experiment, question))
        except Exception:  # a full disk, for example; the question is queued again
            logger.exception("experiment=%d: an answer was lost", question.experiment_id)
            await asyncio.sleep(_RETRY_S)
            service.questions.put_nowait(question)


async def _answer(
    service: Service, samplers: Samplers, experiment: Experiment, question: ConsultSampler
) -> HparamsSampled | TrialJudged:
    trials = service.machine.state.trials_of(experiment)
    args = (experiment.id, experiment.config, question.index, [to_history(t) for t in trials])
    answer: HparamsSampled | TrialJudged
    if question.question == "judge":
        answer = TrialJudged(experiment_id=experiment.id, index=question.index, is_pruned=False)
    else:
        answer = HparamsSampled(experiment_id=experiment.id, index=question.index)
    try:
        if isinstance(answer, TrialJudged):
            answer.is_pruned = await asyncio.to_thread(samplers.judge, *args)
        else:
            answer.hparams = await asyncio.to_thread(samplers.sample, *args)
    except Exception as error:  # a sampler of the user may raise anything
        logger.exception("experiment=%d: Optuna failed", experiment.id)
        answer.error = error_text(error)
    return answer


def to_history(trial: Trial) -> TrialHistory:
    """Return the data of a trial that samplers use."""
    state: Literal["running", "complete", "pruned", "failed"]
    if trial.exit_reason is None:
        state = "running"
    elif trial.exit_reason in _FAILED:
        state = "failed"
    else:
        state = "pruned" if trial.was_stopped else "complete"
    return TrialHistory(
        index=trial.index,
        hparams=trial.hparams,
        state=state,
        value=trial.latest_metric,
        reports=sorted(trial.metrics_by_step.items()),
        created_at=trial.created_at,
        ended_at=trial.ended_at,
    )
