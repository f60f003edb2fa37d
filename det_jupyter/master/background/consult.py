"""Puts the machine's questions to samplers and pruners, one at a time, and brings their answers.

A sampler may think for seconds, so it does that in another thread, and the loop goes on. Answers
are events: they are stored, so a restarted master need not ask again, and an update of Optuna does
not change what was decided.
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

_PAUSE_S = 1.0
_FAILED = (ExitReason.ERRORED, ExitReason.INVALID_HP, ExitReason.CANCELED)


async def consult(service: Service, samplers: Samplers) -> None:
    """Answer questions until cancelled; first those that an earlier master left open."""
    for question in service.machine.pending_questions():
        if isinstance(question, ConsultSampler):
            service.questions.put_nowait(question)
    while True:
        question = await service.questions.get()
        try:
            experiment = service.machine.state.experiments.get(question.experiment_id)
            if experiment is not None and not experiment.state.is_terminal:
                service.take(await _answer(service, samplers, experiment, question))
        except Exception:  # a full disk, say: the question is put again
            logger.exception("experiment=%d: an answer was lost", question.experiment_id)
            await asyncio.sleep(_PAUSE_S)
            service.questions.put_nowait(question)


async def _answer(
    service: Service, samplers: Samplers, experiment: Experiment, question: ConsultSampler
) -> HparamsSampled | TrialJudged:
    trials = service.machine.state.trials_of(experiment)
    about = (experiment.id, experiment.config, question.index, [to_history(t) for t in trials])
    answer: HparamsSampled | TrialJudged
    if question.question == "judge":
        answer = TrialJudged(experiment_id=experiment.id, index=question.index, is_pruned=False)
    else:
        answer = HparamsSampled(experiment_id=experiment.id, index=question.index)
    try:
        if isinstance(answer, TrialJudged):
            answer.is_pruned = await asyncio.to_thread(samplers.judge, *about)
        else:
            answer.hparams = await asyncio.to_thread(samplers.sample, *about)
    except Exception as error:
        logger.exception("experiment=%d: Optuna failed", experiment.id)
        answer.error = error_text(error)
    return answer


def to_history(trial: Trial) -> TrialHistory:
    """Return a trial as a sampler sees it."""
    return TrialHistory(
        index=trial.index,
        hparams=trial.hparams,
        state=_state(trial),
        value=trial.latest_metric,
        reports=sorted(trial.metrics_by_step.items()),
        created_at=trial.created_at,
        ended_at=trial.ended_at,
    )


def _state(trial: Trial) -> Literal["running", "complete", "pruned", "failed"]:
    if trial.exit_reason is None:
        return "running"
    if trial.exit_reason in _FAILED:
        return "failed"
    return "pruned" if trial.was_stopped else "complete"
