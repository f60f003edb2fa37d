"""What becomes of an experiment when news of it could not be handled. Pure.

A handler that raises something else than a refusal is a mistake of ours, or of what is stored. The
machine it worked on is half changed and is thrown away; another one is made of what is stored
(restoring.py). The news is set aside, and this is what follows for the experiment:

    it can go on without        (a line with metrics)       noted, and shown to the user
    it cannot                   (anything that the machine  given up: its ranks are killed, and it
                                 handles)                   ends in ERROR when they are gone
    its files were being        (deleting failed)           DELETE_FAILED
      deleted

Giving an experiment up calls nothing that could raise again: not its search, not its retention
(all its checkpoints stay), not the judgement of its last run.
"""

from __future__ import annotations

from det_jupyter.contract.messages import CloseRun, State
from det_jupyter.master.machine.model.events import Event, NewsSetAside
from det_jupyter.master.machine.model.lifecycle import move
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.placing import count_held, make_leave
from det_jupyter.master.machine.rules.searching import end_experiment, end_trial
from det_jupyter.searcher import ExitReason


def experiment_of(state: MachineState, event: Event) -> int | None:
    """Return the experiment that an event is about, if it is about one."""
    experiment_id: int | None = getattr(event, "experiment_id", None)
    trial_id: int | None = getattr(event, "trial_id", None)
    if trial_id is None and (allocation_id := getattr(event, "allocation_id", None)):
        found = state.find_allocation(allocation_id)
        trial_id = found[0].id if found else None
    trial = state.trials.get(trial_id) if trial_id is not None else None
    return experiment_id if trial is None else trial.experiment_id


def on_news_set_aside(turn: Turn, event: NewsSetAside) -> None:
    """Note it for the user; give the experiment up if it cannot go on without that news."""
    experiment = turn.state.experiments.get(event.experiment_id or 0)
    if experiment is None:
        return
    experiment.num_set_aside += 1
    experiment.set_aside = experiment.set_aside or event.what
    turn.touch(experiment)
    if not event.is_fatal:
        return
    if experiment.state is State.DELETING:
        move(experiment, State.DELETE_FAILED)
        experiment.message = _reason(event)
    elif not experiment.state.is_terminal:
        _give_up(turn, experiment, event)


def _reason(event: NewsSetAside) -> str:
    return f"the master failed at {event.what}; master.log has the traceback"


def _give_up(turn: Turn, experiment: Experiment, event: NewsSetAside) -> None:
    if not experiment.is_given_up:
        experiment.is_given_up = True
        experiment.message = _reason(event)
    if experiment.state is not State.STOPPING_ERROR:
        move(experiment, State.STOPPING_ERROR)
    for trial in turn.indexes.living(experiment.id):
        if trial.state is not State.STOPPING_ERROR:
            move(trial, State.STOPPING_ERROR)
        allocation = trial.allocation
        if allocation is not None and trial.holds_slots and allocation.id != event.gone:
            turn.touch(trial, "given up")
            make_leave(turn, trial, at_once=True)
        else:
            end_given_up(turn, trial)
    _conclude(turn, experiment)


def end_given_up(turn: Turn, trial: Trial) -> None:
    """End a trial of an experiment that was given up: its ranks are gone."""
    allocation = trial.allocation
    if allocation is not None and allocation.holds_slots:
        count_held(turn, trial, allocation)
        turn.order(allocation, CloseRun(allocation_id=allocation.id))
    trial.exit_reason = ExitReason.ERRORED
    end_trial(turn, trial)
    _conclude(turn, turn.state.experiment(trial.experiment_id))


def _conclude(turn: Turn, experiment: Experiment) -> None:
    if not (experiment.state.is_terminal or turn.indexes.has_living(experiment.id)):
        end_experiment(turn, experiment)
