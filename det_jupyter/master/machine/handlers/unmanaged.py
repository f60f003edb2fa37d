"""Runs that users have started by hand: nothing is scheduled, and no agent has their ranks.

An unmanaged experiment has one trial, and each run of it begins with a StartUnmanaged:

    experiment of its name         effect
    none, or `resume` is false     it is made
    further on than the beginning  another one is made
      of a run that is taken in
    over                           it goes on, from its latest checkpoint
    active, the run is silent      that run has failed, and it goes on
    active                         refused

Its reports are those of an agent that the master does not know, so all handlers of runs handle
them. It is never restarted. What would have to reach its ranks is refused (`managed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from det_jupyter.config.pools import DEFAULT_POOL
from det_jupyter.contract.messages import GangExited, StartUnmanaged, State
from det_jupyter.contract.messages.changes import Cancel, Kill
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.handlers.exits import on_gang_exited
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.configured import Configured
from det_jupyter.master.machine.model.events import UnmanagedHeard
from det_jupyter.master.machine.model.lifecycle import OVER
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.continuing import reopen_unmanaged
from det_jupyter.master.machine.rules.placing import begin_unmanaged
from det_jupyter.master.machine.rules.searching import start_search

_KEPT = ("labels", "description")  # what the user may have changed since the first start


def on_start_unmanaged(turn: Turn, event: StartUnmanaged) -> None:
    """Begin a run, of a new experiment or of the one with its name. Idempotent by its key."""
    if find_run(turn.state, event.key) is not None:
        return
    began = replace(turn, now=min(turn.now, event.started_at))  # it may be taken in later
    new = Configured(config=event.config)
    known = _find_named(turn.state, new.settings.name) if event.resume else None
    if known is not None and not _follows(turn.state, known, event):
        known = None
    if known is None:
        experiment = _new_experiment(began, event, new)
    else:
        experiment = known
        if (held := _run_of(turn.state, experiment)) is not None:
            _end_silent(turn, *held)
        _reopen(began, experiment, new)
    experiment.run_keys.append(event.key)
    start_search(began, experiment)
    (trial,) = turn.state.trials_of(experiment)
    begin_unmanaged(began, trial, f"unmanaged@{event.host}", event.slots)


def find_run(state: MachineState, key: str) -> tuple[Experiment, Allocation | None] | None:
    """Return the experiment that has the run with this key, and its allocation until it is over.

    None: no experiment has it.
    """
    for experiment in reversed(state.experiments.values()):
        if key in experiment.run_keys:
            held = _run_of(state, experiment)
            is_latest = key == experiment.run_keys[-1]
            return experiment, held[1] if held is not None and is_latest else None
    return None


def _find_named(state: MachineState, name: str) -> Experiment | None:
    found = reversed(state.experiments.values())
    usable = (*OVER, State.ACTIVE)
    return next(
        (each for each in found
         if each.is_unmanaged and each.name == name and each.state in usable), None
    )  # fmt: skip


def _follows(state: MachineState, experiment: Experiment, event: StartUnmanaged) -> bool:
    """Return whether the run has begun where the experiment is, or begins there now."""
    (trial,) = state.trials_of(experiment)
    latest = trial.latest_checkpoint
    return event.begun_from is None or latest is None or latest.uuid == event.begun_from


def _run_of(state: MachineState, experiment: Experiment) -> tuple[Trial, Allocation] | None:
    for trial in state.trials_of(experiment):
        if trial.allocation is not None and trial.allocation.holds_slots:
            return trial, trial.allocation
    return None


def _new_experiment(turn: Turn, event: StartUnmanaged, new: Configured) -> Experiment:
    turn.state.last_experiment_id += 1
    number = turn.state.last_experiment_id
    experiment = Experiment.built_from(
        event,
        id=number,
        is_unmanaged=True,
        pool=DEFAULT_POOL,
        position=float(number),
        created_at=turn.now,
    )
    turn.state.experiments[number] = experiment.with_settings(new.settings)
    turn.touch(experiment)
    return experiment


def _reopen(turn: Turn, experiment: Experiment, new: Configured) -> None:
    if experiment.is_archived:
        raise Conflict(
            f"experiment {experiment.id}, {experiment.name!r}, is archived; unarchive it, or "
            "begin another one with resume=False"
        )
    kept = {key: experiment.config[key] for key in _KEPT if experiment.config.get(key)}
    reopen_unmanaged(turn, experiment, Configured(config=new.config | kept))


def _end_silent(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """End a run that has not reported for long.

    Raises:
        Conflict: It reports.
    """
    experiment = turn.state.experiment(trial.experiment_id)
    if allocation.silent_since is None:
        raise Conflict(
            f"experiment {experiment.id}, {experiment.name!r}, is running: "
            f"{allocation.processes}; end that, or give this run another name, or resume=False. "
            "If it was killed, try again in a minute"
        )
    on_gang_exited(turn, _lost(turn, allocation))


def _lost(turn: Turn, allocation: Allocation) -> GangExited:
    """Return the end of a run that does not report any more, and record that it was cut."""
    experiment = turn.state.experiment(turn.state.trial_of(allocation.id).experiment_id)
    experiment.cut_keys.append(experiment.run_keys[-1])
    turn.touch(experiment)
    return GangExited(
        allocation_id=allocation.id,
        at=turn.now,
        exit_codes=dict.fromkeys(range(len(allocation.slots))),
        error=f"{allocation.processes} has reported nothing any more",
    )


def on_unmanaged_heard(turn: Turn, event: UnmanagedHeard) -> None:
    """Record that a run is silent, or that it reports again."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is not None:
        trial, allocation = found
        allocation.silent_since = event.silent_since
        turn.touch(trial, "silent" if event.silent_since else "reports again")


def managed(handle: Callable[[Turn, Any], None]) -> Callable[[Turn, Any], None]:
    """Return a handler that refuses events about unmanaged experiments that are not over.

    One that is silent can be killed or canceled.
    """

    def checked(turn: Turn, event: Any) -> None:
        experiment_id = getattr(event, "experiment_id", None)
        if experiment_id is None and event.trial_id in turn.state.trials:
            experiment_id = turn.state.trials[event.trial_id].experiment_id
        experiment = turn.state.experiments.get(experiment_id or 0)
        if experiment is None or not experiment.is_unmanaged or experiment.state.is_terminal:
            handle(turn, event)
            return
        held = _run_of(turn.state, experiment)
        if held is None or held[1].silent_since is None or not isinstance(event, Cancel | Kill):
            process = held[1].processes if held is not None else "its process"
            raise Conflict(
                f"experiment {experiment.id} was started by hand, so nothing can be changed in "
                f"it from here; interrupt {process} (Ctrl-C, or the kernel of its notebook), and "
                f"start that again: with name={experiment.name!r} it goes on"
            )
        handle(turn, Kill(experiment_id=experiment.id))  # nothing can be saved
        on_gang_exited(turn, _lost(turn, held[1]))

    return checked
