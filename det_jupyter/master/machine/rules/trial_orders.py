"""Orders to the ranks of a trial: changes of its training, and profiles.

change     stored permanently. All ranks make it after the same batch, whose number is stored too.
           A later run that starts before that batch repeats the change there; a run that
           starts after it has the change in its checkpoint
profile    of the current run; when the run ends, missing traces are recorded as failed
"""

from __future__ import annotations

from det_jupyter.contract.messages import (
    AllocationState,
    Change,
    ChangeOrder,
    Order,
    PassOrders,
    ProfileOrder,
    ProfileView,
    TraceView,
    TrialChangeView,
)
from det_jupyter.contract.run.journal import ChangeMade, TraceSaved
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn

MAX_CHANGES = 100  # most changes per trial: all of them are needed to repeat its training
MAX_PROFILES = 20  # most profiles kept per trial; the oldest are dropped


def changes_of(trial: Trial) -> list[ChangeOrder]:
    """Return orders for a trial's changes, both those already made and those still to be made."""
    return [
        ChangeOrder(id=view.id, change=change, steps_completed=view.steps_completed)
        for view in trial.changes
        if not view.error and (change := _repeated_part(view)) is not None
    ]


def _repeated_part(view: TrialChangeView) -> Change | None:
    """Return the part of a change that later runs repeat; None if there is none."""
    change = view.change
    if change is None or view.keeps_period or change.min_validation_period is None:
        return change
    if change.lr is None and change.lr_factor is None:
        return None
    return change.model_copy(update={"min_validation_period": None})


def settle_changes(trial: Trial, *, keep_period: bool) -> None:
    """Update the changes of an ended trial that is continued.

    Changes that were not made are marked as failed.

    Args:
        trial: The trial.
        keep_period: Whether its new configuration has the same min_validation_period; else
            changes of the period are not repeated.
    """
    trial.changes = [
        change.model_copy(
            update={
                "keeps_period": change.keeps_period and keep_period,
                "error": change.error
                or ("the trial ended before it" if change.steps_completed is None else ""),
            }
        )
        for change in trial.changes
    ]


def send_orders(turn: Turn, trial: Trial) -> None:
    """Send a running trial's ranks the orders that they have not answered. Idempotent."""
    allocation, has_ranks = trial.allocation, (AllocationState.STARTING, AllocationState.RUNNING)
    if allocation is None or allocation.state not in has_ranks:
        return
    orders: list[Order] = [
        *(order for order in changes_of(trial) if order.steps_completed is None),
        *(ProfileOrder(id=p.id, profile=p.profile) for p in trial.profiles if not p.is_over),
    ]
    if orders:
        turn.send_to_chief(allocation, PassOrders(allocation_id=allocation.id, orders=orders))


def record_change(trial: Trial, made: ChangeMade) -> None:
    """Store after which batch a change was made, or why it failed, as the chief reports."""
    steps = None if made.error else made.steps_completed
    update = {"steps_completed": steps, "text": made.text, "error": made.error}
    trial.changes = [
        change.model_copy(update=update) if change.id == made.order_id else change
        for change in trial.changes
    ]


def record_trace(trial: Trial, rank: int, saved: TraceSaved) -> None:
    """Store that a rank has written its trace of a profile, or why it could not."""
    trace = TraceView.built_from(saved, rank=rank)
    trial.profiles = [
        _with_traces(profile, [trace]) if profile.id == saved.order_id else profile
        for profile in trial.profiles
    ]


def close_profiles(trial: Trial) -> None:
    """Mark the missing traces of a trial's profiles as failed: its run has ended."""
    error = "the run ended before the trace was written"
    trial.profiles = [
        _with_traces(
            profile, [TraceView(rank=rank, error=error) for rank in profile.profile.ranks]
        )
        for profile in trial.profiles
    ]


def _with_traces(profile: ProfileView, traces: list[TraceView]) -> ProfileView:
    """Add traces to a profile, if it includes their ranks and these have no trace yet."""
    present = {trace.rank for trace in profile.traces}
    new = [t for t in traces if t.rank in profile.profile.ranks and t.rank not in present]
    by_rank = sorted([*profile.traces, *new], key=lambda trace: trace.rank)
    return profile.model_copy(update={"traces": by_rank})
