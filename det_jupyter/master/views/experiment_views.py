"""Views of experiments, trials and agents. Pure: state and progress in, wire views out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from det_jupyter.contract.messages import (
    AgentView,
    AllocationState,
    AllocationView,
    ExperimentView,
    SlotView,
    State,
    TrialView,
    Verdict,
)
from det_jupyter.master.machine.model.indexes import Indexes
from det_jupyter.master.machine.model.state import (
    Agent,
    Allocation,
    Experiment,
    MachineState,
    Trial,
)
from det_jupyter.searcher import ExitReason

Sentence = Callable[[Trial], str | None]  # why a trial does not run, None if it runs or is over
VerdictOf = Callable[[int], Verdict | None]  # the last verdict on a trial


class Progress(Protocol):
    """Gives each trial's steps completed and fraction of its length; a mapping fits."""

    def get(self, trial_id: int, default: tuple[int, float], /) -> tuple[int, float]:
        """Return a trial's progress."""


_MOST_VERDICTS = 100  # of trials, the newest, in the view of an experiment: each is about 1 kB


def experiment_view(
    state: MachineState,
    progress: Progress,
    experiment: Experiment,
    *,
    living: Iterable[Trial],
    sentence: Sentence,
    verdict_of: VerdictOf | None = None,
    last_seq: int = 0,
    with_trials: bool = True,
) -> ExperimentView:
    trials = state.trials_of(experiment) if with_trials else []
    num_silent = len(trials) - _MOST_VERDICTS
    return ExperimentView.built_from(
        experiment,
        name=experiment.name,
        # The names in it are for people; only ranks need the blobs, which may be thousands.
        capsule=experiment.capsule.model_copy(update={"buffers": [], "modules": {}}),
        progress=progress_of(state, experiment, progress, living),
        message=_message(experiment),
        search=experiment.search_view,
        trials=[
            trial_view(trial, progress, sentence, None if i < num_silent else verdict_of)
            for i, trial in enumerate(trials)
        ],
        last_seq=last_seq,
    )


def _message(experiment: Experiment) -> str:
    """Return the experiment's message, and what of its news was set aside."""
    num = experiment.num_set_aside
    if num == 0 or experiment.is_given_up:
        return experiment.message
    more = f" and {num - 1} more" if num > 1 else ""
    said = f"set aside, as it could not be read or handled: {experiment.set_aside}{more}"
    return f"{experiment.message}; {said}" if experiment.message else said


def progress_of(
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
    counted = state.trials_of(experiment) if is_ended else living
    started = sum(progress.get(trial.id, (0, 0.0))[1] for trial in counted)
    return min(1.0, (0.0 if is_ended else done) + started / max(1, search.max_trials))


def trial_view(
    trial: Trial, progress: Progress, sentence: Sentence, verdict_of: VerdictOf | None = None
) -> TrialView:
    steps_completed, fraction = progress.get(trial.id, (0, 0.0))
    is_trained = trial.exit_reason is ExitReason.COMPLETED and not trial.was_stopped
    return TrialView.built_from(
        trial,
        steps_completed=steps_completed,
        progress=1.0 if is_trained else fraction,
        allocation=_allocation_view(trial.allocation),
        waiting_for=sentence(trial),
        divergence=trial.divergence,
        is_resting=trial.is_resting and not trial.state.is_terminal,
        verdict=verdict_of(trial.id) if verdict_of is not None else None,
    )


def _allocation_view(allocation: Allocation | None) -> AllocationView | None:
    if allocation is None or allocation.state is AllocationState.ENDED:
        return None
    return AllocationView.built_from(allocation)


def held_on(agent_id: str, indexes: Indexes) -> Iterator[tuple[Trial, Allocation, int, SlotView]]:
    """Yield trial, allocation, rank and slot of each rank on an agent."""
    for trial in indexes.trials_on_agent(agent_id):
        if (held := trial.allocation) is not None:
            for rank, (home, slot) in enumerate(zip(held.agent_ids, held.slots, strict=True)):
                if home == agent_id:
                    yield trial, held, rank, slot


def agent_view(agent: Agent, indexes: Indexes, *, is_connected: bool) -> AgentView:
    return AgentView.built_from(
        agent,
        connected=is_connected,
        used={
            slot.id: allocation.id
            for _, allocation, _, slot in held_on(agent.id, indexes)
            if slot.id >= 0
        },
    )
