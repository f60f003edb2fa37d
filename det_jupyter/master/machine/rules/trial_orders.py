"""Orders to the ranks of a trial: changes of its training, and profiles.

change     noted for good. Ranks make it after the same batch, which is noted too; a run that
           starts before that batch makes it there again, and one that starts later has it in
           its checkpoint
profile    of the present run; what is not answered when the run ends never will be
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

MAX_CHANGES = 100  # of a trial: all of them are needed to repeat its training
MAX_PROFILES = 20  # of a trial; the oldest are forgotten


def changes_of(trial: Trial) -> list[ChangeOrder]:
    """Return the orders of a trial's changes that its ranks have not refused."""
    return [
        ChangeOrder(id=noted.id, change=change, steps_completed=noted.steps_completed)
        for noted in trial.changes
        if not noted.error and (change := _lasting(noted)) is not None
    ]


def _lasting(noted: TrialChangeView) -> Change | None:
    """Return what of a change later runs repeat."""
    change = noted.change
    if noted.keeps_period or change.min_validation_period is None:
        return change
    if change.lr is None and change.lr_factor is None:
        return None
    return change.model_copy(update={"min_validation_period": None})


def settle_changes(trial: Trial, *, keep_period: bool) -> None:
    """Bring the changes of a trial that goes on after its end up to date.

    `keep_period`: its configuration has the same min_validation_period as before.
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


def pass_orders(turn: Turn, trial: Trial) -> None:
    """Send the trial's ranks what they have not answered, if it has ranks; safe to repeat."""
    allocation, has_ranks = trial.allocation, (AllocationState.STARTING, AllocationState.RUNNING)
    if allocation is None or allocation.state not in has_ranks:
        return
    orders: list[Order] = [
        *(order for order in changes_of(trial) if order.steps_completed is None),
        *(ProfileOrder(id=p.id, profile=p.profile) for p in trial.profiles if not p.is_over),
    ]
    if orders:
        turn.order(allocation, PassOrders(allocation_id=allocation.id, orders=orders))


def note_change(trial: Trial, made: ChangeMade) -> None:
    """Note where a change took effect, or why it was refused; the chief reports it."""
    steps = None if made.error else made.steps_completed
    update = {"steps_completed": steps, "text": made.text, "error": made.error}
    trial.changes = [
        change.model_copy(update=update) if change.id == made.order_id else change
        for change in trial.changes
    ]


def note_trace(trial: Trial, rank: int, saved: TraceSaved) -> None:
    """Note the trace of a rank."""
    trace = TraceView.built_from(saved, rank=rank)
    trial.profiles = [
        _with(profile, [trace]) if profile.id == saved.order_id else profile
        for profile in trial.profiles
    ]


def end_profiles(trial: Trial) -> None:
    """Note of profiles that the run which has ended did not answer that there are none."""
    error = "the run ended before the trace was written"
    trial.profiles = [
        _with(profile, [TraceView(rank=rank, error=error) for rank in profile.profile.ranks])
        for profile in trial.profiles
    ]


def _with(profile: ProfileView, traces: list[TraceView]) -> ProfileView:
    """Return the profile with these traces too, of ranks that have none yet."""
    known = {trace.rank for trace in profile.traces}
    new = [t for t in traces if t.rank in profile.profile.ranks and t.rank not in known]
    by_rank = sorted([*profile.traces, *new], key=lambda trace: trace.rank)
    return profile.model_copy(update={"traces": by_rank})
