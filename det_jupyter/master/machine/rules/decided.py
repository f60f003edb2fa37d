"""Carries out what the scheduler has decided: starts, other sizes, preemptions, promises.

An elastic trial that is resized saves its state and leaves; its next run starts in the turn in
which the last one has ended, on the slots that were held for it (`go_on_resized`). The checkpoint
of the change before is deleted then, if no policy keeps it, and if it was only saved for that:
code that has just saved by itself may leave without another one.
"""

from __future__ import annotations

from det_jupyter.contract.values.sizes import GROW_AFTER_S
from det_jupyter.contract.values.text import count, shortened
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.queue import next_parts_of
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn, attribute_errors_to
from det_jupyter.master.machine.rules.placing import queue_trial, start_trial, stop_run
from det_jupyter.master.machine.rules.retention import delete_replaced
from det_jupyter.scheduler.board import SlotBoard
from det_jupyter.scheduler.model import Decisions, Placement, Preemption, Resize, size_of

_LONGEST_REASON = 200  # characters


def apply_decisions(turn: Turn, decisions: Decisions) -> None:
    """Start and preempt trials, and store promised slots, as the scheduler has decided."""
    for placement in decisions.starts:
        trial = turn.state.trial_of(placement.request_id)
        with attribute_errors_to(trial.experiment_id):
            start_trial(turn, trial, placement)
    for resize in decisions.resizes:
        trial = turn.state.trial_of(resize.request_id)
        with attribute_errors_to(trial.experiment_id):
            _resize(turn, trial, resize)
    for preemption in decisions.preemptions:
        trial = turn.state.trial_of(preemption.request_id)
        with attribute_errors_to(trial.experiment_id):
            _preempt(turn, trial, preemption)
    for promise in decisions.promises:
        trial = turn.state.trial_of(promise.request_id)
        assert trial.allocation is not None
        trial.allocation.promised = list(promise.agents)
        turn.touch(trial)


def _preempt(turn: Turn, trial: Trial, preemption: Preemption) -> None:
    """Ask a trial to save its state and leave, so that another one can start."""
    assert trial.allocation is not None
    other = turn.state.trial_of(preemption.for_request_id)
    trial.allocation.preempted_by = other.experiment_id
    turn.touch(trial, f"makes room for {preemption.for_request_id}")
    stop_run(turn, trial, at_once=False)


def _resize(turn: Turn, trial: Trial, resize: Resize) -> None:
    """Ask an elastic trial to save its state, and to go on with other slots."""
    allocation = trial.allocation
    assert allocation is not None
    slots = size_of(resize.parts)
    change = slots - (size_of(next_parts_of(allocation)) or len(allocation.slots))
    why = f"grew by {count(change, 'slot')}, free for {GROW_AFTER_S:g} s"
    if resize.for_request_id:
        other = turn.state.trial_of(resize.for_request_id)
        is_own = other.experiment_id == trial.experiment_id
        whom = f"trial {other.id}" if is_own else f"experiment {other.experiment_id}"
        why = f"gave {count(-change, 'slot')} to {whom}"
    reasons = [*filter(None, [allocation.resized_because]), why]
    if not allocation.becomes:
        stop_run(turn, trial, at_once=False)
    allocation.becomes = {part.agent_id: [*part.slot_ids] for part in resize.parts}
    allocation.resized_because = shortened(", ".join(reasons), _LONGEST_REASON)
    turn.touch(trial, f"goes on with {count(slots, 'slot')}: {why}")


def go_on_resized(turn: Turn, trial: Trial, ended: Allocation) -> bool:
    """Start the next run of a trial that was resized; return whether it may use its slots.

    Args:
        turn: The event being handled.
        trial: The trial.
        ended: Its last run, which has given its slots back.
    """
    parts, experiment = next_parts_of(ended), turn.state.experiment(trial.experiment_id)
    if not parts:
        return False
    board = SlotBoard(turn.queue.snapshot(turn.state.pool_of(experiment)))
    seats = {part: board.seats.get(part.agent_id) for part in parts}
    is_free = all(at and {*at.free}.issuperset(part.slot_ids) for part, at in seats.items())
    others = board.held(experiment.id)
    is_allowed = experiment.max_slots is None or others + size_of(parts) <= experiment.max_slots
    is_avoided = not {part.agent_id for part in parts}.isdisjoint(trial.avoids)
    if not is_free or not is_allowed or is_avoided:
        return False
    queue_trial(turn, trial)
    assert trial.allocation is not None
    placement = Placement(trial.allocation.id, parts, ended.is_backfill)
    start_trial(turn, trial, placement, ended.resized_because)
    saved = trial.latest_checkpoint
    if saved is not None and saved != ended.starts_from and ended.is_for_rest:
        delete_replaced(turn, experiment, ended.resized_with)
        is_of_change = saved.uuid == ended.saved_on_request
        trial.allocation.resized_with = saved.uuid if is_of_change else ""
    return True
