"""Trials made and ended, and the experiment with the last of them, as its search method says.

    method says     Create      a trial is made and queues
                    Stop        the trial shall leave; it will be COMPLETED
                    Shutdown    no more will come: the experiment ends with its last trial

An experiment ends in ERROR when every one of its trials did, else in COMPLETED.
"""

from __future__ import annotations

import random
from typing import assert_never

from det_jupyter.config import parse_config, sample_hparams, trial_seed
from det_jupyter.master.lifecycle import ENDS_AS, is_stopping, move
from det_jupyter.master.placing import make_leave, queue
from det_jupyter.master.state import Experiment, Trial
from det_jupyter.master.turn import Turn
from det_jupyter.searcher import (
    Action,
    Create,
    ExitReason,
    SearchMethod,
    Shutdown,
    Stop,
    make_search_method,
)
from det_jupyter.wire import State


def start_search(turn: Turn, experiment: Experiment) -> None:
    """Make an experiment's first trials."""
    method = _method_of(experiment)
    _carry_out(turn, experiment, method, method.start())


def judge_validation(turn: Turn, trial: Trial, steps_completed: int, metric: float) -> None:
    """Show the search method a validation of a trial that goes on."""
    experiment = turn.experiment(trial.experiment_id)
    method = _method_of(experiment)
    index = experiment.trial_ids.index(trial.id)
    actions = method.on_validation(index, steps_completed, metric)
    _carry_out(turn, experiment, method, actions)


def finish_trial(turn: Turn, trial: Trial, reason: ExitReason) -> None:
    """End a stopping trial that no user has stopped, and tell the search method."""
    end_trial(turn, trial)
    experiment = turn.experiment(trial.experiment_id)
    method = _method_of(experiment)
    index = experiment.trial_ids.index(trial.id)
    _carry_out(turn, experiment, method, method.on_trial_exited(index, reason))


def end_trial(turn: Turn, trial: Trial) -> None:
    """Take a stopping trial without ranks to its terminal state."""
    move(trial, ENDS_AS[trial.state])
    trial.ended_at = turn.now
    turn.touch(trial, str(trial.state))


def conclude_if_drained(turn: Turn, experiment: Experiment) -> None:
    """Take a stopping experiment to its terminal state, if its last trial is there."""
    trials = turn.trials_of(experiment)
    if not all(trial.state.is_terminal for trial in trials):
        return
    experiment.message = next((trial.message for trial in trials if trial.message), "")
    completed = experiment.state is State.STOPPING_COMPLETED
    if completed and all(trial.state is State.ERROR for trial in trials):
        experiment.message = f"trial {trials[0].id}: {trials[0].message}"
        move(experiment, State.STOPPING_ERROR)
    move(experiment, ENDS_AS[experiment.state])
    experiment.ended_at = turn.now
    turn.touch(experiment)


def _method_of(experiment: Experiment) -> SearchMethod:
    return make_search_method(parse_config(experiment.config).searcher, experiment.searcher)


def _carry_out(
    turn: Turn, experiment: Experiment, method: SearchMethod, actions: list[Action]
) -> None:
    experiment.searcher = method.snapshot()
    for action in actions:
        match action:
            case Create():
                _create_trial(turn, experiment)
            case Stop(index):
                _stop_trial(turn, turn.trials_of(experiment)[index])
            case Shutdown():
                if experiment.state in (State.ACTIVE, State.PAUSED):
                    move(experiment, State.STOPPING_COMPLETED)
                    turn.touch(experiment)
            case _:
                assert_never(action)
    if is_stopping(experiment.state):
        conclude_if_drained(turn, experiment)


def _stop_trial(turn: Turn, trial: Trial) -> None:
    if trial.state.is_terminal or is_stopping(trial.state):
        return
    move(trial, State.STOPPING_COMPLETED)
    turn.touch(trial, "stopped by the searcher")
    make_leave(turn, trial, at_once=False)
    if not trial.holds_slots:
        finish_trial(turn, trial, ExitReason.COMPLETED)


def _create_trial(turn: Turn, experiment: Experiment) -> None:
    config = parse_config(experiment.config)
    seed = trial_seed(config.reproducibility.experiment_seed, len(experiment.trial_ids))
    turn.state.last_trial_id += 1
    trial = Trial(
        id=turn.state.last_trial_id,
        experiment_id=experiment.id,
        hparams=sample_hparams(config.hyperparameters, random.Random(seed)),
        seed=seed,
        created_at=turn.now,
    )
    turn.state.trials[trial.id] = trial
    experiment.trial_ids.append(trial.id)
    turn.touch(experiment)
    queue(turn, trial)
