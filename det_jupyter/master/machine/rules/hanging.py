"""Gangs that hang: reports of their agents, and the effect of `hang.action`.

Each part of a gang reports the ranks that its computer carries. The gang hangs while all of its
ranks are reported as stalled: if a rank on another computer makes progress, the others are only
waiting for it.

    tell, dump    the report is shown until the ranks make progress; with dump, agents keep files
    restart       all ranks are killed: a failure, after which the trial is tried again
    kill          all ranks are killed, and the trial has failed
"""

from __future__ import annotations

from det_jupyter.contract.messages import (
    AllocationState,
    FailureView,
    HangReport,
    KillGang,
)
from det_jupyter.contract.run.journal import RanksStalled
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.alerts import raise_alert, withdraw


def record_stall(
    turn: Turn, trial: Trial, allocation: Allocation, rank: int, record: RanksStalled
) -> None:
    """Store the stalled ranks of a part, or that none is; apply `hang.action` to the run.

    Args:
        rank: The rank of that part in whose journal the agent has written the record.
    """
    part = allocation.part_with([rank])
    ranks = part.ranks if part is not None else range(len(allocation.slots))
    others = {n: stall for n, stall in allocation.stalled.items() if n not in ranks}
    stalled = others | {stall.rank: stall for stall in record.ranks if stall.rank in ranks}
    if record.ranks:
        allocation.stalled_since = max(
            record.since, allocation.stalled_since if others else record.since
        )
    former, allocation.hang = allocation.hang, None
    allocation.stalled = stalled
    if stalled and len(stalled) == len(allocation.slots):
        allocation.hang = HangReport(
            since=allocation.stalled_since,
            at=record.at,
            ranks=[stalled[n] for n in sorted(stalled)],
        )
        _act(turn, trial, allocation, allocation.hang)
    elif former is not None:  # a repeated report of one hang raises no second alert
        _withdraw_alert(turn, trial)


def _withdraw_alert(turn: Turn, trial: Trial) -> None:
    experiment = turn.state.experiment(trial.experiment_id)
    withdraw(experiment, AlertKind.HANG)
    turn.touch(experiment)


def forget_hang(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Remove the report of a hang, as the ranks make progress again or have exited."""
    if allocation.hang is not None:
        _withdraw_alert(turn, trial)
    allocation.hang, allocation.stalled = None, {}


def _act(turn: Turn, trial: Trial, allocation: Allocation, hang: HangReport) -> None:
    experiment = turn.state.experiment(trial.experiment_id)
    action = experiment.settings.hang.action
    text = f"trial {trial.id} hangs: {hang.sentence()}"
    raise_alert(turn, AlertKind.HANG, experiment, text, trial)
    is_running = allocation.state in (AllocationState.STARTING, AllocationState.RUNNING)
    turn.touch(trial, f"run {allocation.run} hangs: {hang.sentence(turn.now)}")
    if action in ("restart", "kill") and is_running and allocation.ended_for is None:
        allocation.ended_for = hang
        turn.send_to_parts(allocation.living_parts, KillGang(allocation_id=allocation.id))


def failure_of_hang(hang: HangReport, at: float) -> FailureView:
    """Return the failure of a run that was ended because it hung."""
    first = (hang.culprits or hang.ranks)[0]
    where = f"{first.place}, in {first.call}" if first.place else ""
    return FailureView(
        rank=first.rank,
        exit_code=None,
        error=f"it hung and was ended: {hang.sentence(at)}",
        where=where,
        traceback=first.stack,
        at=at,
        batch=first.batch,
    )
