"""What others see of the machine's state. Pure: state and progress in, wire views out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from det_jupyter.master.machine.core.indexes import Indexes
from det_jupyter.master.machine.core.state import (
    Agent,
    Allocation,
    Experiment,
    MachineState,
    Trial,
)
from det_jupyter.searcher import ExitReason
from det_jupyter.wire import (
    AgentView,
    AllocationState,
    AllocationView,
    ExperimentView,
    State,
    TrialView,
)


class Reasons(Protocol):
    """Of each trial that does not run, why, in a sentence."""

    def sentence(self, trial: Trial) -> str | None:
        """Return it; None if there is nothing to say."""


class Progress(Protocol):
    """Of each trial its steps completed and the fraction of its length: a mapping will do."""

    def get(self, trial_id: int, default: tuple[int, float], /) -> tuple[int, float]:
        """Return a trial's progress."""


def experiment_view(
    state: MachineState,
    progress: Progress,
    experiment: Experiment,
    *,
    living: Iterable[Trial],
    reasons: Reasons,
    last_seq: int = 0,
    with_trials: bool = True,
) -> ExperimentView:
    """Return an experiment as others see it."""
    trials = [state.trials[i] for i in experiment.trial_ids] if with_trials else []
    return ExperimentView(
        id=experiment.id,
        name=experiment.name,
        state=experiment.state,
        config=experiment.config,
        # What is in it is for people; the blobs are the ranks' business, and may be thousands.
        capsule=experiment.capsule.model_copy(update={"buffers": [], "modules": {}}),
        notebook=experiment.notebook,
        python=experiment.python,
        cwd=experiment.cwd,
        progress=_progress(state, experiment, progress, living),
        created_at=experiment.created_at,
        ended_at=experiment.ended_at,
        message=_message(experiment),
        template=experiment.template,
        search=experiment.search_view,
        trials=[trial_view(trial, progress, reasons) for trial in trials],
        last_seq=last_seq,
        pool=experiment.pool,
        priority=experiment.priority,
        weight=experiment.weight,
        max_slots=experiment.max_slots,
        is_archived=experiment.is_archived,
        parent_id=experiment.parent_id,
    )


def _message(experiment: Experiment) -> str:
    """Return what is to be said of an experiment, and of the news of it that was set aside."""
    num = experiment.num_set_aside
    if num == 0 or experiment.is_given_up:
        return experiment.message
    more = f" and {num - 1} more" if num > 1 else ""
    said = f"set aside, as it could not be read or handled: {experiment.set_aside}{more}"
    return f"{experiment.message}; {said}" if experiment.message else said


def _progress(
    state: MachineState, experiment: Experiment, progress: Progress, living: Iterable[Trial]
) -> float:
    """Return how far an experiment is; without rungs, running trials count as far as they are."""
    search = experiment.search_view
    if experiment.state is State.COMPLETED:
        return 1.0
    if search is None or search.brackets:
        return experiment.search_progress
    # The search counts a trial when it is over; until then it counts as far as it is. When users
    # have ended the search it counts no more: then each trial is as far as it came.
    is_ended, done = experiment.state.is_terminal, experiment.search_progress
    counted = (state.trials[i] for i in experiment.trial_ids) if is_ended else living
    started = sum(progress.get(trial.id, (0, 0.0))[1] for trial in counted)
    return min(1.0, (0.0 if is_ended else done) + started / max(1, search.max_trials))


def trial_view(trial: Trial, progress: Progress, reasons: Reasons) -> TrialView:
    """Return a trial as others see it."""
    steps_completed, fraction = progress.get(trial.id, (0, 0.0))
    return TrialView(
        id=trial.id,
        experiment_id=trial.experiment_id,
        state=trial.state,
        hparams=trial.hparams,
        seed=trial.seed,
        restarts=trial.restarts,
        steps_completed=steps_completed,
        progress=1.0 if _is_trained(trial) else fraction,
        best_metric=trial.best_metric,
        latest_metric=trial.latest_metric,
        allocation=_allocation_view(trial.allocation),
        waiting_for=reasons.sentence(trial),
        failure=trial.failure,
        notices=trial.notices,
        created_at=trial.created_at,
        ended_at=trial.ended_at,
        index=trial.index,
        bracket=trial.bracket,
        rung_metrics=trial.rung_metrics,
        target=trial.target,
        is_resting=trial.is_resting and not trial.state.is_terminal,
        was_stopped=trial.was_stopped,
    )


def _is_trained(trial: Trial) -> bool:
    """Return whether the trial was trained to its full length."""
    return trial.exit_reason is ExitReason.COMPLETED and not trial.was_stopped


def _allocation_view(allocation: Allocation | None) -> AllocationView | None:
    if allocation is None or allocation.state is AllocationState.ENDED:
        return None
    return AllocationView(
        id=allocation.id,
        run=allocation.run,
        state=allocation.state,
        agent_id=allocation.agent_id,
        slots=allocation.slots,
        agent_ids=allocation.agent_ids,
        preempted_by=allocation.preempted_by,
        ranks=allocation.ranks,
        started_at=allocation.started_at,
        first_step_at=allocation.first_step_at,
        launch_note=allocation.launch_note,
    )


def agent_view(agent: Agent, indexes: Indexes, *, is_connected: bool) -> AgentView:
    """Return an agent and what its slots do."""
    return AgentView(
        id=agent.id,
        hostname=agent.hostname,
        pid=agent.pid,
        connected=is_connected,
        problem=agent.problem,
        slots=agent.slots,
        used={
            slot.id: trial.allocation.id
            for trial in indexes.holding(agent.id)
            if trial.allocation is not None
            for agent_id, slot in zip(
                trial.allocation.agent_ids, trial.allocation.slots, strict=True
            )
            if agent_id == agent.id and slot.id >= 0
        },
    )
