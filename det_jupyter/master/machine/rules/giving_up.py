"""Ends an experiment if an event about it could not be handled. Pure.

If a handler raises anything but a refusal, there is a bug, or stored data are damaged. The machine
that it has changed in part is discarded, and another one is restored from the database
(restoring.py). The event is set aside in the table `quarantine`, with this effect on its
experiment:

    event                                        experiment
    not needed to continue (a metrics line)      continues; a message reports the event
    needed (anything that the machine handles)   given up: its ranks are killed, and it ends in
                                                 ERROR when they have exited
    about a deletion                             DELETE_FAILED

Giving an experiment up calls nothing that could raise again: not its search, not its retention
policy (all its checkpoints are kept), and its last run is not judged.
"""

from __future__ import annotations

from det_jupyter.contract.messages import GangExited, Loss, State
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.events import ContentSetAside, Event
from det_jupyter.master.machine.model.lifecycle import move
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.gang_ends import lost_part
from det_jupyter.master.machine.rules.placing import close_run, stop_run
from det_jupyter.master.machine.rules.searching import end_experiment, end_trial
from det_jupyter.searcher import ExitReason


def experiment_of(state: MachineState, event: Event) -> int | None:
    """Return the id of the experiment that an event is about; None if it is about none."""
    experiment_id: int | None = getattr(event, "experiment_id", None)
    trial_id: int | None = getattr(event, "trial_id", None)
    if trial_id is None and (allocation_id := getattr(event, "allocation_id", None)):
        found = state.find_allocation(allocation_id)
        trial_id = found[0].id if found else None
    trial = state.trials.get(trial_id) if trial_id is not None else None
    return experiment_id if trial is None else trial.experiment_id


def content_set_aside(
    experiment_id: int | None, what: str, *, is_fatal: bool, gone: GangExited | None
) -> ContentSetAside:
    """Return the event that replaces one that is set aside.

    Args:
        experiment_id: The experiment that the event is about; None if it is about none.
        what: A description of the event, and why it is set aside.
        is_fatal: Whether the experiment cannot continue without the event.
        gone: The event, if it reports an exit of ranks.
    """
    return ContentSetAside(
        experiment_id=experiment_id,
        what=what,
        is_fatal=is_fatal,
        gone="" if gone is None else gone.allocation_id,
        gone_ranks=[] if gone is None else sorted(gone.exit_codes),
    )


def on_content_set_aside(turn: Turn, event: ContentSetAside) -> None:
    """Record that an event was set aside; give up its experiment if the event was needed."""
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
        experiment.message = _failure_message(event)
    elif not experiment.state.is_terminal:
        _give_up(turn, experiment, event)


def _failure_message(event: ContentSetAside) -> str:
    return f"the master failed at {event.what}; master.log has the traceback"


def _give_up(turn: Turn, experiment: Experiment, event: ContentSetAside) -> None:
    if not experiment.is_given_up:
        experiment.is_given_up = True
        experiment.message = _failure_message(event)
    if experiment.state is not State.STOPPING_ERROR:
        move(experiment, State.STOPPING_ERROR)
    for trial in turn.indexes.unfinished_trials(experiment.id):
        if trial.state is not State.STOPPING_ERROR:
            move(trial, State.STOPPING_ERROR)
        allocation = trial.allocation
        if allocation is not None and trial.holds_slots and not _is_gone(allocation, event):
            turn.touch(trial, "given up")
            stop_run(turn, trial, at_once=True)
        else:
            end_given_up(turn, trial)
    _end_if_drained(turn, experiment)


def _is_gone(allocation: Allocation, event: ContentSetAside) -> bool:
    """Return whether all ranks of a run have exited; store which parts have."""
    if event.gone != allocation.id:
        return False
    part = allocation.part_with(event.gone_ranks)
    gone = [part] if part is not None else []
    for part in gone if event.gone_ranks else allocation.parts:
        if part.exited is None:
            part.exited = lost_part(allocation, part, 0.0, Loss.UNKNOWN)
    return not allocation.living_parts


def end_given_up(turn: Turn, trial: Trial) -> None:
    """End a trial of an experiment that was given up, once its ranks have exited."""
    allocation = trial.allocation
    if allocation is not None and allocation.holds_slots:
        close_run(turn, trial, allocation)
    trial.exit_reason = ExitReason.ERRORED
    end_trial(turn, trial)
    _end_if_drained(turn, turn.state.experiment(trial.experiment_id))


def _end_if_drained(turn: Turn, experiment: Experiment) -> None:
    if not (experiment.state.is_terminal or turn.indexes.has_unfinished_trials(experiment.id)):
        end_experiment(turn, experiment)
