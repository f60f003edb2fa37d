"""What users ask for: submit, pause, activate, cancel, kill.

To ask for what is so already is no error and changes nothing, so a request may be repeated.
"""

from __future__ import annotations

from det_jupyter.config import parse_config
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.master.events import ExperimentSubmitted
from det_jupyter.master.lifecycle import TRANSITIONS, is_stopping, move
from det_jupyter.master.placing import make_leave, queue
from det_jupyter.master.queue import agents_as_they_are
from det_jupyter.master.searching import conclude_if_drained, end_trial, start_search
from det_jupyter.master.state import Experiment, Trial
from det_jupyter.master.turn import Turn
from det_jupyter.scheduler import find_impossibility
from det_jupyter.wire import State


def on_submitted(turn: Turn, event: ExperimentSubmitted) -> None:
    """Make an experiment; it queues at once."""
    config = parse_config(event.config)
    agents = agents_as_they_are(turn.state)
    if problem := find_impossibility(config.resources.slots_per_trial, agents):
        raise ConfigError([problem])
    turn.state.last_experiment_id += 1
    experiment = Experiment(
        id=turn.state.last_experiment_id,
        config=event.config,
        capsule=event.capsule,
        python=event.python,
        cwd=event.cwd,
        notebook=event.notebook,
        created_at=turn.now,
    )
    turn.state.experiments[experiment.id] = experiment
    turn.touch(experiment)
    start_search(turn, experiment)


def on_pause_requested(turn: Turn, experiment_id: int) -> None:
    """Ask running trials to save their state and leave; take waiting ones out of the queue."""
    experiment = turn.experiment(experiment_id)
    if experiment.state is State.PAUSED:
        return
    _must_be(experiment, State.ACTIVE, "paused")
    move(experiment, State.PAUSED)
    turn.touch(experiment)
    for trial in _trials_that_go_on(turn, experiment):
        move(trial, State.PAUSED)
        turn.touch(trial, "asked to pause")
        make_leave(turn, trial, at_once=False)


def on_activate_requested(turn: Turn, experiment_id: int) -> None:
    """Let the trials queue again, each when the ranks it may still have are gone."""
    experiment = turn.experiment(experiment_id)
    if experiment.state is State.ACTIVE:
        return
    _must_be(experiment, State.PAUSED, "activated")
    move(experiment, State.ACTIVE)
    turn.touch(experiment)
    for trial in _trials_that_go_on(turn, experiment):
        move(trial, State.ACTIVE)
        turn.touch(trial, "activated")
        if not trial.holds_slots:
            queue(turn, trial)


def on_end_requested(turn: Turn, experiment_id: int, stopping: State) -> None:
    """Cancel (ranks save their state first) or kill, as `stopping` says."""
    experiment = turn.experiment(experiment_id)
    if stopping not in TRANSITIONS[experiment.state]:
        return  # it is over, or ending in this way or a sharper one
    move(experiment, stopping)
    turn.touch(experiment)
    for trial in turn.living_trials_of(experiment):
        move(trial, stopping)
        turn.touch(trial, str(stopping))
        make_leave(turn, trial, at_once=stopping is State.STOPPING_KILLED)
        if not trial.holds_slots:
            end_trial(turn, trial)
    conclude_if_drained(turn, experiment)


def _trials_that_go_on(turn: Turn, experiment: Experiment) -> list[Trial]:
    trials = turn.living_trials_of(experiment)
    return [trial for trial in trials if not is_stopping(trial.state)]


def _must_be(experiment: Experiment, state: State, verb: str) -> None:
    if experiment.state is not state:
        raise Conflict(
            f"experiment {experiment.id} is {experiment.state} and cannot be {verb}; "
            f"only one that is {state} can"
        )
