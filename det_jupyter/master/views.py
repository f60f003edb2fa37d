"""What others see of the machine's state. Pure: state and progress in, wire views out."""

from __future__ import annotations

from collections.abc import Mapping

from det_jupyter.master.state import Agent, Allocation, Experiment, MachineState, Trial
from det_jupyter.wire import (
    AgentView,
    AllocationState,
    AllocationView,
    ExperimentView,
    State,
    TrialView,
)

Progress = Mapping[int, tuple[int, float]]  # trial -> steps completed, fraction of its length


def experiment_view(
    state: MachineState,
    progress: Progress,
    experiment: Experiment,
    *,
    last_seq: int = 0,
    with_trials: bool = True,
) -> ExperimentView:
    """Return an experiment as others see it."""
    trials = [trial_view(state.trials[i], progress) for i in experiment.trial_ids]
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
        progress=_mean_progress(experiment, trials),
        created_at=experiment.created_at,
        ended_at=experiment.ended_at,
        message=experiment.message,
        trials=trials if with_trials else [],
        last_seq=last_seq,
    )


def _mean_progress(experiment: Experiment, trials: list[TrialView]) -> float:
    if experiment.state is State.COMPLETED:
        return 1.0
    return sum(trial.progress for trial in trials) / max(1, len(trials))


def trial_view(trial: Trial, progress: Progress) -> TrialView:
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
        progress=1.0 if trial.state is State.COMPLETED else fraction,
        best_metric=trial.best_metric,
        latest_metric=trial.latest_metric,
        allocation=_allocation_view(trial.allocation),
        waiting_for=trial.waiting_for,
        failure=trial.failure,
        created_at=trial.created_at,
        ended_at=trial.ended_at,
    )


def _allocation_view(allocation: Allocation | None) -> AllocationView | None:
    if allocation is None or allocation.state is AllocationState.ENDED:
        return None
    return AllocationView(
        id=allocation.id,
        run=allocation.run,
        state=allocation.state,
        agent_id=allocation.agent_id,
        slots=allocation.slots,
        ranks=allocation.ranks,
        started_at=allocation.started_at,
        first_step_at=allocation.first_step_at,
        launch_note=allocation.launch_note,
    )


def agent_view(state: MachineState, agent: Agent, *, is_connected: bool) -> AgentView:
    """Return an agent and what its slots do."""
    return AgentView(
        id=agent.id,
        hostname=agent.hostname,
        pid=agent.pid,
        connected=is_connected,
        slots=agent.slots,
        used={
            slot.id: allocation.id
            for trial in state.trials.values()
            if (allocation := trial.allocation) is not None
            and allocation.holds_slots
            and allocation.agent_id == agent.id
            for slot in allocation.slots
        },
    )
