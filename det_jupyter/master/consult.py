"""Puts the machine's questions to samplers and pruners, one at a time, and brings their answers.

A sampler may think for seconds, so it does that in another thread, and the loop goes on. Answers
are events: they are stored, so a restarted master need not ask again, and an update of Optuna does
not change what was decided.
"""

from __future__ import annotations

import asyncio
import logging

from det_jupyter.master.commands import ConsultSampler
from det_jupyter.master.events import HparamsSampled, TrialJudged
from det_jupyter.master.sampling import Samplers
from det_jupyter.master.service import Service
from det_jupyter.master.state import Experiment, Trial
from det_jupyter.searcher import ExitReason
from det_jupyter.searcher.history import TrialHistory

logger = logging.getLogger(__name__)


async def consult(service: Service, samplers: Samplers) -> None:
    """Answer questions for ever; first those that a master before us left open."""
    for question in service.machine.pending():
        if isinstance(question, ConsultSampler):
            service.questions.put_nowait(question)
    while True:
        question = await service.questions.get()
        experiment = service.machine.state.experiments.get(question.experiment_id)
        if experiment is not None and not experiment.state.is_terminal:
            service.apply(await _answer(service, samplers, experiment, question))


async def _answer(
    service: Service, samplers: Samplers, experiment: Experiment, question: ConsultSampler
) -> HparamsSampled | TrialJudged:
    trials = [service.machine.state.trials[trial_id] for trial_id in experiment.trial_ids]
    history = [to_history(trial) for trial in trials]
    about = {"experiment_id": experiment.id, "index": question.index}
    is_sample = question.question == "sample"
    ask = samplers.sample if is_sample else samplers.judge
    try:
        answer = await asyncio.to_thread(
            ask, experiment.id, experiment.config, question.index, history
        )
    except Exception as error:  # the boundary to somebody else's code: the user has to know
        logger.exception("experiment=%d: the sampler failed", experiment.id)
        said = f"{type(error).__name__}: {error}"
        if is_sample:
            return HparamsSampled(**about, error=said)
        return TrialJudged(**about, is_pruned=False, error=said)
    if isinstance(answer, bool):
        return TrialJudged(**about, is_pruned=answer)
    return HparamsSampled(**about, hparams=answer)


def to_history(trial: Trial) -> TrialHistory:
    """Return a trial as a sampler sees it."""
    failed = trial.exit_reason in (
        ExitReason.ERRORED,
        ExitReason.INVALID_HP,
        ExitReason.CANCELED,
    )
    if trial.exit_reason is None:
        state = "running"
    elif failed:
        state = "failed"
    else:
        state = "pruned" if trial.was_stopped else "complete"
    return TrialHistory(
        index=trial.index,
        hparams=trial.hparams,
        state=state,
        value=trial.latest_metric,
        reports=sorted(trial.metrics_by_step.items()),
    )
