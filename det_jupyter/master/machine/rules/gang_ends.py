"""The end of a gang, from the ends of its parts. Pure.

A gang has a part on each agent process. If one fails, is killed or is lost, the others are killed,
or fail because they have lost a peer. The end of the gang is the end of the part that was the
cause, in this order:

    a failure of its own, or a check-     whatever happened to the other parts
      point that could not be uploaded
    lost                                  failures of others may follow from it
    killed after the trial was asked      failures of others may follow from it: a part that has
      to leave                            not left by the deadline is killed
    could not be started
    a failure that may follow from the    no other cause is known
      end of another rank
    killed

Among several of a kind the earliest counts, by the times of the ranks' records and of the ends on
the master's clock. So the result does not depend on the order in which the reports arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from signal import Signals

from det_jupyter.contract.messages import AllocationState, GangExited, Loss
from det_jupyter.contract.run.journal import RankFailure
from det_jupyter.master.machine.model.allocations import Allocation, GangPart


def merge_ends(allocation: Allocation) -> GangExited:
    """Return the end of a gang whose parts have all exited."""
    ends = {part.agent_id: part.exited for part in allocation.parts if part.exited is not None}
    if len(ends) == 1:
        return next(iter(ends.values()))
    part = cause_part(allocation)
    codes = {rank: code for end in ends.values() for rank, code in end.exit_codes.items()}
    merged = {
        "exit_codes": dict(sorted(codes.items())),
        "faults": {rank: fault for end in ends.values() for rank, fault in end.faults.items()},
        "not_saved": any(end.not_saved for end in ends.values()),
    }
    return ends[part.agent_id].model_copy(update=merged)


def cause_part(allocation: Allocation) -> GangPart:
    """Return the part of a gang that was the cause of its end; all have exited."""
    return min(allocation.parts, key=lambda part: _precedence(allocation, part))


def lost_part(allocation: Allocation, part: GangPart, at: float, loss: Loss) -> GangExited:
    """Return the end of a part that was lost together with its agent."""
    codes: dict[int, int | None] = dict.fromkeys(part.ranks)
    return GangExited(allocation_id=allocation.id, at=at, exit_codes=codes, lost=True, loss=loss)


def cause_of_part(end: GangExited) -> int | None:
    """Return the rank that ended first, or whose failure ended its part of the gang."""
    return end.first_failed if end.first_ended is None else end.first_ended


def earliest_failure(failures: Sequence[RankFailure]) -> RankFailure:
    """Return the failure that caused the others: the earliest one that follows from no other."""
    return min(failures, key=lambda failure: (failure.is_echo, failure.at, failure.rank))


def ends_by_others(allocation: Allocation, part: GangPart) -> bool:
    """Return whether a part was killed or lost, or has failed because another part was."""
    end = part.exited
    assert end is not None
    rank = cause_of_part(end)
    code = end.exit_codes.get(rank) if rank is not None else None
    failures = [failure for failure in allocation.failures if failure.rank in part.ranks]
    is_killed = code is not None and code < 0
    return end.lost or is_killed or not _is_own_failure(end, failures)


def _precedence(allocation: Allocation, part: GangPart) -> tuple[int, float, int]:
    """Return a sort key: the part with the smallest key was the cause of the gang's end."""
    end = part.exited
    assert end is not None
    failures = [failure for failure in allocation.failures if failure.rank in part.ranks]
    at = earliest_failure(failures).at if failures else end.at
    return (_kind_of_end(allocation, end, failures), at, part.ranks[0])


def _kind_of_end(allocation: Allocation, end: GangExited, failures: Sequence[RankFailure]) -> int:
    if end.not_saved and not end.lost:
        return 0
    if end.killed:
        return 2 if allocation.state is AllocationState.STOPPING else 5
    if end.lost:
        return 1
    if end.error:
        return 3
    if _is_own_failure(end, failures):
        return 0
    return 4


def _is_own_failure(end: GangExited, failures: Sequence[RankFailure]) -> bool:
    """Return whether a part has failed for a reason other than the end of another part."""
    rank = cause_of_part(end)
    code = end.exit_codes.get(rank) if rank is not None else None
    if code and not any(failure.rank == rank for failure in failures):
        return code != -Signals.SIGABRT  # NCCL and gloo abort a process that has lost a peer
    return any(not failure.is_echo for failure in failures)
