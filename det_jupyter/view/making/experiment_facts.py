"""Facts of experiments, trials and slots that several builders need. Pure."""

from __future__ import annotations

import math

from det_jupyter.contract.messages import (
    AllocationState,
    ExperimentView,
    SlotView,
    State,
    TrialView,
)
from det_jupyter.contract.messages.status import (
    ENDED,
    UNUSUAL,
    experiment_status,
    state_status,
    with_alarm,
)
from det_jupyter.view.model.status_looks import STATUS_WORDS, Status


def status_of(experiment: ExperimentView) -> Status:
    """Return the status of an experiment, from its state and the states of its gangs."""
    gangs = [t.allocation.state for t in experiment.trials if t.allocation is not None]
    return experiment_status(experiment.state, gangs, len(experiment.trials))


def trial_status(trial: TrialView, experiment_state: State) -> Status:
    """Return the status of a trial; an active trial of a paused experiment is paused."""
    if trial.state is State.COMPLETED and trial.was_stopped:
        return "stopped"
    is_active = trial.state is State.ACTIVE and not experiment_state.is_terminal
    gangs = [] if trial.allocation is None else [trial.allocation.state]
    status = state_status(experiment_state if is_active else trial.state, gangs)
    return "resting" if trial.is_resting and status in ("queued", "paused") else status


def makes_room_for(trial: TrialView) -> int | None:
    """Return the id of the experiment for which a trial is being preempted; None if it is not.

    None also if the trial was paused, canceled or killed meanwhile: then it does not queue again.
    """
    run = trial.allocation
    if run is None or run.state is not AllocationState.STOPPING or trial.state is not State.ACTIVE:
        return None
    return run.preempted_by


def status_word(trial: TrialView, status: Status) -> str:
    is_making_room = status == "pausing" and makes_room_for(trial) is not None
    word = "Making room" if is_making_room else STATUS_WORDS[status]
    if status == "pausing" and trial.leaving is not None and trial.leaving.then == "resizes":
        word = "Resizing"
    is_over = trial.state.is_terminal or status in ENDED
    return with_alarm(word, "" if is_over else trial.alarm.kind)


def experiment_word(experiment: ExperimentView) -> str:
    """Return the word for an experiment's status: `Running`, `Being killed`."""
    if experiment.state in UNUSUAL:
        return UNUSUAL[experiment.state].capitalize()
    status = status_of(experiment)
    is_alone = len(experiment.trials) == 1
    return status_word(experiment.trials[0], status) if is_alone else STATUS_WORDS[status]


def steps_of(trial: TrialView) -> int:
    """Return the number of batches that a trial has trained.

    Ranks report this number at intervals. For a trial that hangs, it is the batch in which it
    hangs.
    """
    ranks = [] if trial.hang is None else trial.hang.ranks
    begun = min((rank.batch for rank in ranks if rank.batch is not None), default=0)
    return max(trial.steps_completed, begun)


def finite(metric: float | None) -> float | None:
    """Return the metric; None if it is missing or not finite."""
    return metric if metric is not None and math.isfinite(metric) else None


def fraction(progress: float) -> float:
    """Return the progress, limited to 0 to 1 and rounded to 4 digits; NaN becomes 0."""
    return round(min(1.0, max(0.0, progress)), 4)


def slot_label(slot: SlotView) -> str:
    """Return a slot's label: `cpu 0`, `GPU 1 · NVIDIA H100`."""
    if slot.kind == "cpu":
        return f"cpu {slot.index}"
    return f"GPU {slot.index} · {slot.name}" if slot.name else f"GPU {slot.index}"


def steps_per_epoch(experiment: ExperimentView) -> dict[int, float]:
    """Return the batches per epoch of each trial for which the configuration defines an epoch."""
    records = experiment.config.get("records_per_epoch")
    if not isinstance(records, int) or records < 1:
        return {}
    sizes = {trial.id: trial.hparams.get("global_batch_size") for trial in experiment.trials}
    return {
        trial_id: records / size
        for trial_id, size in sizes.items()
        if isinstance(size, int) and size >= 1
    }
