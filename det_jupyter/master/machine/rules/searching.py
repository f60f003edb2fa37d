"""Creates, trains and ends trials as the actions of their experiment's search require.

    action      effect
    Create      a trial is created; it rests until its first TrainTo
    TrainTo     it trains to a target: it queues, or its ranks continue without a pause
    Close       it saves its state and leaves; it will be COMPLETED
    Shutdown    no trial will follow: the experiment ends with its last trial
    Ask…        the sampler or pruner is consulted; its answer is an event

    rests ── TrainTo ──► queues, runs ── reaches the target ──► rests, and releases its slots
      ▲                                        │ TrainTo at once: goes on in its slots
      └────────────────────────────────────────┘

A trial that has reached its last target exits without being asked. An experiment ends in ERROR or
CANCELED if all of its trials did, else in COMPLETED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from det_jupyter.config import Length
from det_jupyter.contract.messages import AllocationState, State
from det_jupyter.contract.messages.status import PAUSES
from det_jupyter.contract.run.journal import TargetReached
from det_jupyter.master.machine.model.commands import ConsultSampler
from det_jupyter.master.machine.model.lifecycle import ENDS_AS, is_stopping, move
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn, attribute_errors_to
from det_jupyter.master.machine.rules.alerts import raise_end
from det_jupyter.master.machine.rules.continuing import report_existing_trial
from det_jupyter.master.machine.rules.placing import queue_trial, send_target, stop_run
from det_jupyter.master.machine.rules.retention import delete_unneeded, finished_sources_of
from det_jupyter.searcher import (
    Action,
    AskPruner,
    AskSampler,
    Close,
    Create,
    ExitReason,
    Shutdown,
    TrainTo,
)


def start_search(turn: Turn, experiment: Experiment) -> None:
    """Start an experiment's search, which creates its first trials."""
    apply_actions(turn, experiment, turn.searches.of(experiment).start())


def report_validation(
    turn: Turn, trial: Trial, *, time: float | None, metric: float | None
) -> None:
    """Report a validation of a training trial to the search."""
    experiment = turn.state.experiment(trial.experiment_id)
    actions = turn.searches.of(experiment).on_report(trial.index, time, metric)
    _update_rungs(turn, experiment, trial)
    apply_actions(turn, experiment, actions)


def on_target_reached(turn: Turn, trial: Trial, record: TargetReached) -> None:
    """Report to the search that a trial has reached its target; it continues, rests or ends."""
    is_outdated = trial.is_resting or record.target != trial.target
    if is_outdated or is_stopping(trial.state):
        return
    trial.is_resting = True
    experiment = turn.state.experiment(trial.experiment_id)
    metric = trial.metrics_by_step.get(record.steps_completed)
    actions = turn.searches.of(experiment).on_target_reached(trial.index, metric)
    _update_rungs(turn, experiment, trial)
    turn.touch(trial, f"reached {trial.target}")
    apply_actions(turn, experiment, actions)
    if trial.is_resting and not trial.target_is_last and not is_stopping(trial.state):
        trial.waiting_for = _describe_rest(experiment, trial)
        if trial.allocation is not None:
            trial.allocation.is_for_rest = True
        turn.touch(trial, "rests")
        stop_run(turn, trial, at_once=False)


def _describe_rest(experiment: Experiment, trial: Trial) -> str:
    """Return a sentence on why a trial rests, and when it continues."""
    divisor = experiment.search_view.divisor if experiment.search_view else None
    share = f"the best 1 of {divisor:g}" if divisor else "the best"
    return f"rests at {trial.target} and holds no slots; goes on if it is among {share} there"


def _update_rungs(turn: Turn, experiment: Experiment, trial: Trial) -> None:
    """Copy a trial's bracket and rungs from the search, for views."""
    search = turn.searches.of(experiment)
    new = (search.bracket_of(trial.index), search.rung_metrics(trial.index))
    if new != (trial.bracket, trial.rung_metrics):
        trial.bracket, trial.rung_metrics = new
        turn.touch(trial)


def finish_trial(turn: Turn, trial: Trial, reason: ExitReason) -> None:
    """End a stopping trial whose ranks have exited, and report `reason` to the search.

    A trial that diverges when it completes ends in ERROR. The search nevertheless receives
    `reason`, as it has received the metrics.
    """
    trial.exit_reason = reason
    is_invalid = reason is ExitReason.INVALID_HP
    if trial.divergence and trial.state is State.STOPPING_COMPLETED and not is_invalid:
        trial.message = "; ".join(filter(None, (str(trial.divergence), trial.message)))
        move(trial, State.STOPPING_ERROR)
    end_trial(turn, trial)
    experiment = turn.state.experiment(trial.experiment_id)
    if is_stopping(experiment.state) and experiment.state is not State.STOPPING_COMPLETED:
        end_if_drained(turn, experiment)  # the experiment ends: the search is not consulted
        return
    actions = turn.searches.of(experiment).on_exited(trial.index, reason)
    _update_rungs(turn, experiment, trial)
    apply_actions(turn, experiment, actions)


def end_trial(turn: Turn, trial: Trial) -> None:
    """Move a stopping trial without ranks to its terminal state.

    Only the data that views show are kept: a search may have a million trials.
    """
    move(trial, ENDS_AS[trial.state])
    trial.ended_at = turn.now
    trial.waiting_for = None
    trial.allocation = None
    turn.touch(trial)
    trial.story = []


def end_if_drained(turn: Turn, experiment: Experiment) -> None:
    """Move a stopping experiment to its terminal state, if all of its trials are over."""
    if turn.indexes.has_unfinished_trials(experiment.id):
        return
    trials = turn.state.trials_of(experiment)
    states = {trial.state for trial in trials}
    experiment.message = experiment.message or _final_message(experiment, trials)
    if experiment.state is State.STOPPING_COMPLETED and states == {State.ERROR}:
        experiment.message = f"trial {trials[0].id}: {trials[0].message}"
        if len(trials) > 1:
            experiment.message = f"all {len(trials)} trials failed; {experiment.message}"
        move(experiment, State.STOPPING_ERROR)
    elif experiment.state is State.STOPPING_COMPLETED and states == {State.CANCELED}:
        move(experiment, State.STOPPING_CANCELED)
    end_experiment(turn, experiment)
    delete_unneeded(turn, experiment)
    # The checkpoints that its trials started from are not in use any more.
    for source in finished_sources_of(turn.state, turn.indexes, experiment):
        with attribute_errors_to(source.id):
            delete_unneeded(turn, source)


def end_experiment(turn: Turn, experiment: Experiment) -> None:
    """Move a stopping experiment to its terminal state and discard its search."""
    move(experiment, ENDS_AS[experiment.state])
    experiment.ended_at = turn.now
    turn.searches.discard(experiment)
    turn.touch(experiment)
    raise_end(turn, experiment)


def _final_message(experiment: Experiment, trials: list[Trial]) -> str:
    """Return the message of the first trial that has one, or why a search has no best trial."""
    for trial in trials:
        if trial.message:
            return f"trial {trial.id}: {trial.message}" if len(trials) > 1 else trial.message
    searcher = experiment.settings.searcher
    is_search = searcher.name != "single" and experiment.state is State.STOPPING_COMPLETED
    if is_search and experiment.best_metric is None:
        return f"no trial reported a finite {searcher.metric!r}, which they are judged by"
    return ""


def apply_actions(turn: Turn, experiment: Experiment, actions: Iterable[Action]) -> None:
    """Carry out the actions of an experiment's search, and the actions that follow from them."""
    if experiment.state.is_terminal:
        return
    due = list(actions)
    for action in due:
        match action:
            case Create(index=index) if index < len(experiment.trial_ids):
                due += report_existing_trial(turn, experiment, action)
            case Create():
                _create_trial(turn, experiment, action)
            case TrainTo(index, length, is_last):
                trial = turn.state.trial_at(experiment, index)
                if not trial.state.is_terminal:
                    _train_to(turn, trial, length, is_last=is_last)
            case Close(index):
                _close_trial(turn, turn.state.trial_at(experiment, index))
            case Shutdown():
                if experiment.state.is_open:
                    move(experiment, State.STOPPING_COMPLETED)
                    turn.touch(experiment)
            case AskSampler() | AskPruner():
                consult(turn, experiment, [action])
            case _:
                assert_never(action)
    _update_search_view(turn, experiment)
    if is_stopping(experiment.state):
        end_if_drained(turn, experiment)


def consult(turn: Turn, experiment: Experiment, actions: Iterable[Action]) -> None:
    """Add commands that query the sampler or pruner. The actions must be questions."""
    for action in actions:
        assert isinstance(action, AskSampler | AskPruner)
        turn.commands.append(
            ConsultSampler(
                experiment_id=experiment.id,
                index=action.index,
                question="sample" if isinstance(action, AskSampler) else "judge",
                cause=turn.state.seq,
            )
        )


def _update_search_view(turn: Turn, experiment: Experiment) -> None:
    if experiment.state.is_terminal:
        return
    search = turn.searches.of(experiment)
    seen = (search.view(), search.progress)
    if seen != (experiment.search_view, experiment.search_progress):
        experiment.search_view, experiment.search_progress = seen
        turn.touch(experiment)


def _create_trial(turn: Turn, experiment: Experiment, create: Create) -> None:
    assert create.index == len(experiment.trial_ids), "searches number their trials in order"
    turn.state.last_trial_id += 1
    trial = Trial(
        id=turn.state.last_trial_id,
        experiment_id=experiment.id,
        index=create.index,
        hparams=create.hparams,
        seed=create.seed,
        bracket=turn.searches.of(experiment).bracket_of(create.index),
        is_resting=True,
        state=State.PAUSED if experiment.state in PAUSES else State.ACTIVE,
        warm_start=experiment.warm_start,
        created_at=turn.now,
    )
    turn.state.trials[trial.id] = trial
    experiment.trial_ids.append(trial.id)
    if experiment.continues is not None:  # the first trial starts from that trial's state
        source = turn.state.trials[experiment.continues]
        trial.seed, trial.latest_checkpoint = source.seed, source.latest_checkpoint
    turn.touch(trial)
    turn.touch(experiment)


def _train_to(turn: Turn, trial: Trial, length: Length, *, is_last: bool) -> None:
    trial.target, trial.target_is_last = length, is_last
    if trial.is_resting:
        trial.is_resting, trial.waiting_for = False, None
    allocation = trial.allocation
    if allocation is None or allocation.state is AllocationState.ENDED:
        if trial.state is State.ACTIVE:
            queue_trial(turn, trial)
    elif allocation.state in (AllocationState.STARTING, AllocationState.RUNNING):
        send_target(turn, trial, allocation)
    turn.touch(trial, f"to train to {trial.target}")


def _close_trial(turn: Turn, trial: Trial) -> None:
    if trial.state.is_terminal or is_stopping(trial.state):
        return
    experiment = turn.state.experiment(trial.experiment_id)
    exits_unasked = trial.is_resting and trial.target_is_last
    trial.was_stopped = turn.searches.of(experiment).was_stopped(trial.index)
    move(trial, State.STOPPING_COMPLETED)
    turn.touch(trial, "closed by the search")
    if not (exits_unasked and trial.holds_slots):
        stop_run(turn, trial, at_once=False)
    if not trial.holds_slots:
        finish_trial(turn, trial, ExitReason.COMPLETED)
