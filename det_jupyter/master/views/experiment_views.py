"""Views of experiments, trials and agents, made from state and progress. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from det_jupyter.contract.messages import (
    AllocationState,
    AllocationView,
    ExperimentView,
    SlotView,
    State,
    TrackerState,
    TrialView,
    Verdict,
)
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.indexes import Indexes
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.views.leaving_gangs import leaving_of
from det_jupyter.searcher import ExitReason

# Returns why a trial does not run; None if it runs or is over.
Sentence = Callable[[Trial], str | None]
VerdictOf = Callable[[int], Verdict | None]  # returns the last verdict on a trial


class TrialProgress(Protocol):
    """Steps completed and fraction of the length by trial id. A mapping satisfies this."""

    def get(self, trial_id: int, default: tuple[int, float], /) -> tuple[int, float]:
        """Return a trial's progress, or `default` if none is stored."""


_MOST_VERDICTS = 100  # newest trials whose verdicts are in an experiment's view, at 1 kB each


def experiment_view(
    state: MachineState,
    progress: TrialProgress,
    experiment: Experiment,
    *,
    living: Iterable[Trial],
    sentence: Sentence,
    verdict_of: VerdictOf | None = None,
    trackers: Sequence[TrackerState] = (),
    known: Mapping[int, TrialView] = MappingProxyType({}),
) -> ExperimentView:
    """Return the view of an experiment.

    Args:
        living: Its trials that are not over.
        sentence: Returns why a trial does not run.
        trackers: The trackers that it is sent to, with their progress.
        known: Earlier views of trials that are reused, by id.
    """
    trials = state.trials_of(experiment)
    num_older = len(trials) - _MOST_VERDICTS
    return ExperimentView.built_from(
        experiment,
        name=experiment.name,
        # Only ranks need the blobs, of which there may be thousands.
        capsule=experiment.capsule.model_copy(update={"buffers": [], "modules": {}}),
        progress=progress_of(state, experiment, progress, living),
        message=_message(experiment),
        search=experiment.search_view,
        trials=[
            known_view
            if (known_view := known.get(trial.id)) and (i >= num_older or not known_view.verdict)
            else trial_view(
                state, trial, progress, sentence, None if i < num_older else verdict_of
            )
            for i, trial in enumerate(trials)
        ],
        trackers=list(trackers),
    )


def _message(experiment: Experiment) -> str:
    """Return the experiment's message, with its events that were set aside."""
    num = experiment.num_set_aside
    if num == 0 or experiment.is_given_up:
        return experiment.message
    more = f" and {num - 1} more" if num > 1 else ""
    notice = f"set aside, as it could not be read or handled: {experiment.set_aside}{more}"
    return f"{experiment.message}; {notice}" if experiment.message else notice


def progress_of(
    state: MachineState, experiment: Experiment, progress: TrialProgress, living: Iterable[Trial]
) -> float:
    """Return the progress of an experiment, from 0 to 1.

    With rungs, this is the progress of the search. Without rungs, running trials add their own
    progress.
    """
    search = experiment.search_view
    if experiment.state is State.COMPLETED:
        return 1.0
    if search is None or search.brackets:
        return experiment.search_progress
    # The search counts a trial when it is over; until then its own progress is added. If a user
    # has ended the search, only the progress of the trials counts.
    is_ended, done = experiment.state.is_terminal, experiment.search_progress
    counted = state.trials_of(experiment) if is_ended else living
    started = sum(progress.get(trial.id, (0, 0.0))[1] for trial in counted)
    return min(1.0, (0.0 if is_ended else done) + started / max(1, search.max_trials))


def trial_view(
    state: MachineState,
    trial: Trial,
    progress: TrialProgress,
    sentence: Sentence,
    verdict_of: VerdictOf | None = None,
) -> TrialView:
    steps_completed, fraction = progress.get(trial.id, (0, 0.0))
    is_trained = trial.exit_reason is ExitReason.COMPLETED and not trial.was_stopped
    return TrialView.built_from(
        trial,
        steps_completed=steps_completed,
        progress=1.0 if is_trained else fraction,
        allocation=_allocation_view(trial.allocation),
        waiting_for=sentence(trial),
        leaving=leaving_of(state, trial, steps_completed),
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
