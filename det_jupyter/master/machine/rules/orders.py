"""Orders to the ranks of a trial: changes of its training, and profiles.

change     noted for good. Ranks make it after the same batch, which is noted too; a run that
           starts before that batch makes it there again, and one that starts later has it in
           its checkpoint
profile    of the present run; what is not answered when the run ends never will be
"""

from __future__ import annotations

from det_jupyter.master.machine.core.state import Allocation, Trial
from det_jupyter.master.machine.core.turn import Turn
from det_jupyter.records import ChangeMade, TraceSaved
from det_jupyter.wire import (
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

MAX_CHANGES = 100  # of a trial: all of them are needed to repeat its training
MAX_PROFILES = 20  # of a trial; the oldest are forgotten


def changes_of(trial: Trial) -> list[Order]:
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

    Args:
        trial: It.
        keep_period: Its configuration has the same min_validation_period as before.
    """
    trial.changes = [
        change.model_copy(
            update={
                "keeps_period": change.keeps_period and keep_period,
                "error": change.error or ("" if _is_made(change) else "the trial ended before it"),
            }
        )
        for change in trial.changes
    ]


def _is_made(change: TrialChangeView) -> bool:
    return change.steps_completed is not None


def pass_orders(turn: Turn, trial: Trial) -> None:
    """Send the trial's ranks what they have not answered, if it has ranks; safe to repeat."""
    allocation = trial.allocation
    if allocation is None or not _has_ranks(allocation):
        return
    assert allocation.agent_id is not None
    orders = [
        *(order for order in changes_of(trial) if _is_open(order)),
        *(ProfileOrder(id=p.id, profile=p.profile) for p in trial.profiles if not p.is_over),
    ]
    if orders:
        turn.tell(allocation.agent_id, PassOrders(allocation_id=allocation.id, orders=orders))


def _is_open(order: Order) -> bool:
    return isinstance(order, ChangeOrder) and order.steps_completed is None


def _has_ranks(allocation: Allocation) -> bool:
    return allocation.state in (AllocationState.STARTING, AllocationState.RUNNING)


def note_change(trial: Trial, made: ChangeMade) -> None:
    """Note where a change took effect, or why it was refused; the chief reports it."""
    trial.changes = [
        _made(change, made) if change.id == made.order_id else change for change in trial.changes
    ]


def _made(change: TrialChangeView, made: ChangeMade) -> TrialChangeView:
    steps = None if made.error else made.steps_completed
    update = {"steps_completed": steps, "text": made.text, "error": made.error}
    return change.model_copy(update=update)


def note_trace(trial: Trial, rank: int, saved: TraceSaved) -> None:
    """Note the trace of a rank."""
    trace = TraceView(
        rank=rank,
        path=saved.path,
        size_bytes=saved.size_bytes,
        first=saved.first,
        steps=saved.steps,
        error=saved.error,
        note=saved.note,
    )
    trial.profiles = [
        _with(profile, [trace]) if profile.id == saved.order_id else profile
        for profile in trial.profiles
    ]


def end_profiles(trial: Trial) -> None:
    """Note of profiles that the run which has ended did not answer that there are none."""
    trial.profiles = [
        profile
        if profile.is_over
        else _with(
            profile,
            [
                TraceView(rank=rank, error="the run ended before the trace was written")
                for rank in profile.profile.ranks
            ],
        )
        for profile in trial.profiles
    ]


def _with(profile: ProfileView, traces: list[TraceView]) -> ProfileView:
    """Return the profile with these traces too, of ranks that have none yet."""
    known = {trace.rank for trace in profile.traces}
    new = [t for t in traces if t.rank in profile.profile.ranks and t.rank not in known]
    by_rank = sorted([*profile.traces, *new], key=lambda trace: trace.rank)
    return profile.model_copy(update={"traces": by_rank})
