"""The system clock was set: what goes on keeps its length, as if it had begun so much later.

Else a step of three hours would show a run of a minute as one of three hours, or of minus three,
and its end would be expected by that. What is over keeps its times: nothing is reckoned from them.
"""

from __future__ import annotations

from det_jupyter.contract.messages import CheckpointView
from det_jupyter.master.machine.model.events import ClockStepped
from det_jupyter.master.machine.model.state import Allocation, Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn


def on_clock_stepped(turn: Turn, event: ClockStepped) -> None:
    """Move the times of all experiments that are not over, with their trials and checkpoints."""
    state, by_s = turn.state, event.by_s
    for experiment in state.living_experiments():
        _move(experiment, by_s, "created_at", "held_since")
        turn.touch(experiment)
        for trial in turn.state.trials_of(experiment):
            _move(trial, by_s, "created_at", "ended_at")
            if trial.allocation is not None:
                times = ("queued_at", "asked_at", "started_at", "first_step_at")
                _move(trial.allocation, by_s, *times)
            turn.touch(trial)
            for checkpoint in map(state.checkpoints.__getitem__, trial.checkpoints):
                _move(checkpoint, by_s, "created_at")
                turn.changes.checkpoints.add(checkpoint.uuid)
    turn.queue.note_all()


def _move(
    part: Experiment | Trial | Allocation | CheckpointView, by_s: float, *times: str
) -> None:
    for name in times:
        if (at := getattr(part, name)) is not None:
            setattr(part, name, at + by_s)
