"""What users ask for: submit, pause, activate, cancel, kill.

To ask for what is so already is no error and changes nothing, so a request may be repeated.
"""

from __future__ import annotations

from det_jupyter.config import parse_config
from det_jupyter.config.pools import DEFAULT_POOL
from det_jupyter.config.sections import Resources
from det_jupyter.contract.messages import Activate, Cancel, CheckpointRef, Kill, Pause, State
from det_jupyter.contract.messages.status import in_words
from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.machine.model.events import ExperimentSubmitted
from det_jupyter.master.machine.model.lifecycle import TRANSITIONS, move
from det_jupyter.master.machine.model.state import Experiment, MachineState
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.continuing import check_forkable
from det_jupyter.master.machine.rules.placing import make_leave, pause, queue, trials_that_go_on
from det_jupyter.master.machine.rules.queue_checks import find_pool_problem, unknown_pool
from det_jupyter.master.machine.rules.retention import usable
from det_jupyter.master.machine.rules.searching import conclude_if_drained, end_trial, start_search
from det_jupyter.searcher import ExitReason
from det_jupyter.searcher.methods import Searcher


def on_submitted(turn: Turn, event: ExperimentSubmitted) -> None:
    """Make an experiment; it queues at once, unless it is to be paused."""
    config = parse_config(event.config)
    if event.parent_id is not None:
        check_forkable(turn.state.experiment(event.parent_id))
    pool = config.resources.resource_pool or DEFAULT_POOL
    check_pool(turn.state, pool, config.resources, queue_anyway=event.queue_anyway)
    warm_start = _find_source(turn, config.searcher)
    if event.continues is not None:
        _checkpoint_of(turn, event.continues, "continue")
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
    turn.state.experiments[experiment.id] = experiment
    turn.touch(experiment)
    start_search(turn, experiment)


def check_pool(
    state: MachineState, name: str, resources: Resources, *, queue_anyway: bool = False
) -> None:
    """Refuse a pool that does not exist, or that can never run such trials.

    Raises:
        ConfigError: So it is.
    """
    if name not in state.pool_configs:
        raise ConfigError([Problem("resources.resource_pool", unknown_pool(name, state))])
    slots, is_single_agent = resources.slots_per_trial, resources.is_single_node
    if queue_anyway:
        return
    if problem := find_pool_problem(state, name, slots, is_single_agent=is_single_agent):
        raise ConfigError([problem])


def _find_source(turn: Turn, searcher: Searcher) -> CheckpointRef | None:
    """Return the checkpoint whose weights the trials shall begin with, if they shall."""
    if searcher.source_trial_id is not None:
        return _checkpoint_of(turn, searcher.source_trial_id, "searcher.source_trial_id")
    if searcher.source_checkpoint_uuid is None:
        return None
    found = turn.state.checkpoints.get(searcher.source_checkpoint_uuid)
    ref = None if found is None else usable(turn.state, CheckpointRef.built_from(found))
    if ref is None:
        given = searcher.source_checkpoint_uuid
        raise ConfigError(
            [Problem("searcher.source_checkpoint_uuid", f"there is no checkpoint {given!r}")]
        )
    return ref


def _checkpoint_of(turn: Turn, trial_id: int, where: str) -> CheckpointRef:
    trial = turn.state.trials.get(trial_id)
    if trial is None:
        raise ConfigError([Problem(where, f"there is no trial {trial_id}")])
    latest = usable(turn.state, trial.latest_checkpoint)
    if latest is None:
        raise ConfigError([Problem(where, f"trial {trial.id} has no checkpoint to begin with")])
    return latest


def on_pause(turn: Turn, event: Pause) -> None:
    """Ask running trials to save their state and leave; take waiting ones out of the queue."""
    experiment = turn.state.experiment(event.experiment_id)
    if experiment.state is State.PAUSED:
        return
    _must_be(experiment, State.ACTIVE, "paused")
    pause(turn, experiment)


def on_activate(turn: Turn, event: Activate) -> None:
    """Let the trials queue again, each when the ranks it may still have are gone."""
    experiment = turn.state.experiment(event.experiment_id)
    if experiment.state is State.ACTIVE:
        return
    _must_be(experiment, State.PAUSED, "activated")
    move(experiment, State.ACTIVE)
    experiment.message = ""
    turn.touch(experiment)
    for trial in trials_that_go_on(turn, experiment):
        move(trial, State.ACTIVE)
        turn.touch(trial, "activated")
        if not (trial.holds_slots or trial.is_resting):
            queue(turn, trial)


def on_end(turn: Turn, event: Cancel | Kill) -> None:
    """Cancel (ranks save their state first) or kill."""
    is_kill = isinstance(event, Kill)
    stopping = State.STOPPING_KILLED if is_kill else State.STOPPING_CANCELED
    experiment = turn.state.experiment(event.experiment_id)
    is_failing = experiment.state is State.STOPPING_ERROR  # and ends so; its trials still leave
    if not is_failing:
        if stopping not in TRANSITIONS[experiment.state]:
            return  # it is over, or ending in this way or a sharper one
        move(experiment, stopping)
        turn.touch(experiment)
    for trial in turn.indexes.living(experiment.id):
        if stopping not in TRANSITIONS[trial.state]:
            continue  # it ends in a sharper way already
        move(trial, stopping)
        turn.touch(trial, str(stopping))
        make_leave(turn, trial, at_once=is_kill)
        if not trial.holds_slots:
            trial.exit_reason = ExitReason.CANCELED
            end_trial(turn, trial)
    conclude_if_drained(turn, experiment)


def _must_be(experiment: Experiment, state: State, verb: str) -> None:
    if experiment.state is not state:
        raise Conflict(
            f"experiment {experiment.id} is {in_words(experiment.state)} and cannot be {verb}; "
            f"only one that is {in_words(state)} can"
        )
