"""Changes of an experiment that users request, from its submission to its end.

submit, pause, activate, cancel, kill; name, description and labels. A step of the system clock
moves the times of all experiments that are not over.

A request for the state that the experiment already has changes nothing, and is no error. So
requests may be repeated.
"""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from det_jupyter.config.pools import DEFAULT_POOL
from det_jupyter.config.sections import Resources
from det_jupyter.contract.messages import (
    Activate,
    Cancel,
    ChangeDetails,
    CheckpointRef,
    CheckpointView,
    Kill,
    Pause,
    State,
)
from det_jupyter.contract.messages.leaving import RankProgress
from det_jupyter.contract.messages.status import PAUSES, in_words
from det_jupyter.contract.schema.fields import Title
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.events import ClockStepped, ExperimentSubmitted
from det_jupyter.master.machine.model.lifecycle import TRANSITIONS, move
from det_jupyter.master.machine.model.state import (
    Experiment,
    MachineState,
    Trial,
    why_one_computer,
)
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.alerts import withdraw
from det_jupyter.master.machine.rules.continuing import check_forkable
from det_jupyter.master.machine.rules.labels import change_labels
from det_jupyter.master.machine.rules.placing import (
    pause_experiment,
    queue_trial,
    stop_run,
    trials_not_stopping,
)
from det_jupyter.master.machine.rules.queue_checks import find_pool_problem, unknown_pool_message
from det_jupyter.master.machine.rules.retention import usable_checkpoint
from det_jupyter.master.machine.rules.searching import end_if_drained, end_trial, start_search
from det_jupyter.searcher import ExitReason
from det_jupyter.searcher.methods import Searcher


def on_submitted(turn: Turn, event: ExperimentSubmitted) -> None:
    """Create an experiment; its trials queue at once, unless it is submitted paused."""
    config = event.settings
    if event.parent_id is not None:
        check_forkable(turn.state.experiment(event.parent_id))
    pool = config.resources.resource_pool or DEFAULT_POOL
    one_computer = why_one_computer(config.entrypoint)
    check_pool(
        turn.state,
        pool,
        config.resources,
        why_one_computer=one_computer,
        queue_anyway=event.queue_anyway,
    )
    warm_start = _find_warm_start(turn, config.searcher)
    if event.continues is not None:
        _latest_checkpoint(turn, event.continues, "continue")
    turn.state.last_experiment_id += 1
    experiment = Experiment.built_from(
        event,
        id=turn.state.last_experiment_id,
        state=State.PAUSED if event.is_paused else State.ACTIVE,
        warm_start=warm_start,
        pool=pool,
        priority=config.resources.priority
        or turn.state.pool_configs[pool].scheduler.default_priority,
        weight=float(config.resources.weight),
        max_slots=config.resources.max_slots,
        position=float(turn.state.last_experiment_id),
        created_at=turn.now,
    )
    turn.state.experiments[experiment.id] = experiment.with_settings(config)
    turn.touch(experiment)
    start_search(turn, experiment)


def check_pool(
    state: MachineState,
    name: str,
    resources: Resources,
    *,
    why_one_computer: str,
    queue_anyway: bool = False,
) -> None:
    """Check that a pool exists and can run an experiment's trials.

    Args:
        state: The machine's state.
        name: The pool.
        resources: The experiment's section `resources`.
        why_one_computer: Why a trial's ranks cannot be on several computers; "" if they can.
        queue_anyway: Only check that the pool exists.

    Raises:
        ConfigError: The pool does not exist, or can never run such trials.
    """
    if name not in state.pool_configs:
        raise ConfigError([Problem("resources.resource_pool", unknown_pool_message(name, state))])
    if queue_anyway:
        return
    problem = find_pool_problem(
        state,
        name,
        resources.least_slots,
        is_single_agent=resources.is_single_node,
        why_one_computer=why_one_computer,
    )
    if problem:
        raise ConfigError([problem])


def _find_warm_start(turn: Turn, searcher: Searcher) -> CheckpointRef | None:
    """Return the checkpoint whose weights the configuration makes the trials load, if any."""
    if searcher.source_trial_id is not None:
        return _latest_checkpoint(turn, searcher.source_trial_id, "searcher.source_trial_id")
    if searcher.source_checkpoint_uuid is None:
        return None
    found = turn.state.checkpoints.get(searcher.source_checkpoint_uuid)
    ref = None if found is None else usable_checkpoint(turn.state, CheckpointRef.built_from(found))
    if ref is None:
        given = searcher.source_checkpoint_uuid
        raise ConfigError(
            [Problem("searcher.source_checkpoint_uuid", f"there is no checkpoint {given!r}")]
        )
    return ref


def _latest_checkpoint(turn: Turn, trial_id: int, path: str) -> CheckpointRef:
    """Return a trial's latest checkpoint; `path` is the configuration key for errors."""
    trial = turn.state.trials.get(trial_id)
    if trial is None:
        raise ConfigError([Problem(path, f"there is no trial {trial_id}")])
    latest = usable_checkpoint(turn.state, trial.latest_checkpoint)
    if latest is None:
        raise ConfigError([Problem(path, f"trial {trial.id} has no checkpoint to begin with")])
    return latest


def on_pause(turn: Turn, event: Pause) -> None:
    """Pause an experiment: running trials save their state and leave, others leave the queue.

    With `at_once`, ranks that have not left are killed, also those of an earlier pause.
    """
    experiment = turn.state.experiment(event.experiment_id)
    if experiment.state not in PAUSES:
        _check_state(experiment, "paused", State.ACTIVE)
        pause_experiment(turn, experiment)
    if event.at_once:
        for trial in turn.indexes.unfinished_trials(experiment.id):
            stop_run(turn, trial, at_once=True)


def on_activate(turn: Turn, event: Activate) -> None:
    """Activate an experiment: its trials queue again, each once its former ranks have exited."""
    experiment = turn.state.experiment(event.experiment_id)
    if experiment.state is State.ACTIVE:
        return
    _check_state(experiment, "activated", *PAUSES)
    move(experiment, State.ACTIVE)
    experiment.message = ""
    withdraw(experiment, AlertKind.DISK)
    turn.touch(experiment)
    for trial in trials_not_stopping(turn, experiment):
        move(trial, State.ACTIVE)
        turn.touch(trial, "activated")
        if not (trial.holds_slots or trial.is_resting):
            queue_trial(turn, trial)


def on_end(turn: Turn, event: Cancel | Kill) -> None:
    """Cancel an experiment (its ranks save their state first), or kill it."""
    is_kill = isinstance(event, Kill)
    stopping = State.STOPPING_KILLED if is_kill else State.STOPPING_CANCELED
    experiment = turn.state.experiment(event.experiment_id)
    # The state stays STOPPING_ERROR; the trials are stopped.
    is_failing = experiment.state is State.STOPPING_ERROR
    if not is_failing:
        if stopping not in TRANSITIONS[experiment.state]:
            return  # the experiment is over, canceled or killed
        move(experiment, stopping)
        turn.touch(experiment)
    for trial in turn.indexes.unfinished_trials(experiment.id):
        if stopping not in TRANSITIONS[trial.state]:
            continue  # the trial is being killed, or has failed
        move(trial, stopping)
        turn.touch(trial, str(stopping))
        stop_run(turn, trial, at_once=is_kill)
        if not trial.holds_slots:
            trial.exit_reason = ExitReason.CANCELED
            end_trial(turn, trial)
    end_if_drained(turn, experiment)


def _check_state(experiment: Experiment, verb: str, *states: State) -> None:
    if experiment.state not in states:
        raise Conflict(
            f"experiment {experiment.id} is {in_words(experiment.state)} and cannot be {verb}; "
            f"only one that is {' or '.join(map(in_words, states))} can"
        )


_TITLE: TypeAdapter[str] = TypeAdapter(Title)


def on_change_details(turn: Turn, event: ChangeDetails) -> None:
    """Change an experiment's name, description or labels, in any state."""
    experiment = turn.state.experiment(event.experiment_id)
    if not event.given():
        raise ConfigError(["nothing to change: give a name, a description or labels"])
    before = experiment.labels
    labels, problems = change_labels(before, event.add_labels, event.remove_labels)
    if problems := [*_find_name_problems(event), *problems]:
        raise ConfigError(problems)
    changed = event.model_dump(include={"name", "description"}, exclude_none=True)
    if labels != before:
        changed["labels"] = labels
    turn.reconfigure(experiment, experiment.config | changed, changed)
    turn.touch(experiment)


def _find_name_problems(change: ChangeDetails) -> list[Problem]:
    if change.name is not None:
        try:
            _TITLE.validate_python(change.name)
        except ValidationError as error:
            return [Problem("name", f"got {change.name!r:.60}, {error.errors()[0]['msg']}")]
    return []


def on_clock_stepped(turn: Turn, event: ClockStepped) -> None:
    """Shift the times of all experiments that are not over, with their trials and checkpoints.

    So durations stay right: otherwise, after a step of three hours, a run of one minute would seem
    to have taken three hours, and forecasts of its end would be wrong. Experiments that are over
    keep their times, as nothing is computed from them.
    """
    state, by_s = turn.state, event.by_s
    for agent in state.agents.values():
        agent.freed_at = {slot: at + by_s for slot, at in agent.freed_at.items()}
    for experiment in state.unfinished_experiments():
        _shift(experiment, by_s, "created_at", "held_since")
        turn.touch(experiment)
        for trial in turn.state.trials_of(experiment):
            _shift(trial, by_s, "created_at", "ended_at")
            if trial.allocation is not None:
                times = (
                    "queued_at",
                    "asked_at",
                    "started_at",
                    "first_step_at",
                    "checked_at",
                    "saving_since",
                )
                _shift(trial.allocation, by_s, *times)
                for place in trial.allocation.places.values():
                    _shift(place, by_s, "since")
            turn.touch(trial)
            for checkpoint in map(state.checkpoints.__getitem__, trial.checkpoints):
                _shift(checkpoint, by_s, "created_at")
                turn.changes.checkpoints.add(checkpoint.uuid)
    turn.queue.rebuild()


def _shift(
    subject: Experiment | Trial | Allocation | RankProgress | CheckpointView,
    by_s: float,
    *fields: str,
) -> None:
    for name in fields:
        if (at := getattr(subject, name)) is not None:
            setattr(subject, name, at + by_s)
