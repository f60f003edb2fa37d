"""What the end of a gang means for its trial. Pure: facts in, a outcome out.

The facts, looked at in this order; the first that applies decides:

    it was canceled, and its code      FAILED            it raised before its state was saved
      failed on the way out
    the trial was stopping             ENDED_AS_ASKED    whatever else happened on its way out
    a rank said completed, stopped     COMPLETED
    a rank said invalid_hp             INVALID
    the trial left to rest, or saved   PREEMPTED         whatever happened on the way out: what it
      after it was asked to leave                        reached was saved before
    a rank said preempted,             PREEMPTED         goes on if the experiment is active
      or it was killed at the deadline
    its agent or fork server died      LOST              not its fault: tried again, not counted,
                                                         but for the MAX_LOSSES-th time in a row
                                                         before the first step it is a failure
    anything else                      FAILED            tried again max_restarts times, unless the
                                                         failure is final or a log policy forbids;
                                                         if a disk was full, once more, not
                                                         counted, and then its experiment is paused
"""

from __future__ import annotations

import re
from enum import StrEnum
from signal import Signals

from det_jupyter.contract.messages import CrashOutput, FailureView, GangExited, State
from det_jupyter.contract.values.text import signal_name
from det_jupyter.master.machine.model.lifecycle import is_stopping
from det_jupyter.master.machine.model.state import Allocation, Trial

_MAX_REPEATS = 2  # in the same way: the next one would be no other
_SENT_BY_OTHERS = (
    Signals.SIGKILL,
    Signals.SIGTERM,
    Signals.SIGHUP,
    Signals.SIGINT,
    Signals.SIGQUIT,
)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?")
MAX_LOSSES = 5  # whatever ends the fork server so often is likely to do it again


class Outcome(StrEnum):
    """See the table above."""

    ENDED_AS_ASKED = "ended as asked"
    COMPLETED = "completed"
    INVALID = "invalid hyperparameters"
    PREEMPTED = "preempted"
    LOST = "lost"
    FAILED = "failed"


def judge(trial: Trial, allocation: Allocation, exited: GangExited) -> Outcome:
    """Return what the exit of the trial's gang means."""
    said = allocation.run_end.reason if allocation.run_end is not None else None
    if is_stopping(trial.state):
        failed = _failed_before_saving(trial, allocation, exited)
        return Outcome.FAILED if failed else Outcome.ENDED_AS_ASKED
    if said in ("completed", "stopped"):
        return Outcome.COMPLETED
    if said == "invalid_hp":
        return Outcome.INVALID
    rests = trial.is_resting or allocation.is_for_rest
    if rests or said == "preempted" or exited.killed:
        return Outcome.PREEMPTED
    return Outcome.LOST if exited.lost else Outcome.FAILED


def _failed_before_saving(trial: Trial, allocation: Allocation, exited: GangExited) -> bool:
    """Whether a canceled trial's own code failed before the gang had said that it leaves."""
    if trial.state is not State.STOPPING_CANCELED or not allocation.failures:
        return False
    has_saved = allocation.run_end is not None or allocation.is_for_rest
    return not (has_saved or exited.killed or exited.lost)


def find_failure(allocation: Allocation, exited: GangExited) -> tuple[FailureView, bool]:
    """Return the first cause of a failed run, and whether trying again cannot help.

    Ranks that lose a peer fail too, a moment later and with errors that explain nothing; so a rank
    that ended first without a record comes first, then the earliest failure that was journaled.
    """
    rank = exited.first_failed if exited.first_ended is None else exited.first_ended
    code = exited.exit_codes.get(rank) if rank is not None else None
    own = [f for f in allocation.failures if f.rank == rank]
    if exited.error:
        failure = _failure_of_no_rank(exited.error, exited.at)
        return failure.model_copy(update={"no_room": exited.no_room}), exited.error_is_final
    if rank is not None and code is not None and not own:
        return _failure_of_rank(rank, code, exited), False
    if allocation.failures:
        first = min(allocation.failures, key=lambda f: f.at)
        code = exited.exit_codes.get(first.rank)
        # The batch is that of the rank which ended first: the others were in it too.
        return FailureView.built_from(first, exit_code=code, batch=exited.batch), first.final
    return _failure_of_no_rank("the ranks ended without saying why", exited.at), False


def _failure_of_rank(rank: int, code: int, exited: GangExited) -> FailureView:
    """Return the failure of a rank that ended without a record: its output may have more."""
    words = exited.last_words or CrashOutput()
    where = f" in batch {exited.batch}" if exited.batch is not None else ""
    if code < 0:
        error = f"rank {rank} was killed by {_signal(code)}{where}"
    elif code == 0:
        error = (
            f"rank {rank} ended with exit code 0{where}, before the trial was over: its code, or "
            "a library, called os._exit or became another program (exec)"
        )
    else:
        error = f"rank {rank} ended with exit status {code}{where}; its output may tell why"
    if words.error:
        error += f": {words.error}"
    return FailureView(
        rank=rank,
        exit_code=code,
        error=error,
        where=words.where,
        traceback=words.traceback,
        at=exited.at,
        batch=exited.batch,
    )


def count_repeats(
    now: FailureView, previous: FailureView | None, *, since_checkpoint: bool
) -> FailureView:
    """Return the failure with how often it came in a row.

    It came so before if the error and its place are the same, and training came no further: it is
    in the same batch, or no checkpoint was saved in between. In the same batch, numbers in the
    error may differ: addresses, process ids, free memory.

    Args:
        now: It.
        previous: The one before it.
        since_checkpoint: Whether a checkpoint was saved in between.
    """
    if previous is None or previous.where != now.where:
        return now
    if now.batch is not None and now.batch == previous.batch:
        is_same = _without_numbers(previous.error) == _without_numbers(now.error)
    else:
        is_same = previous.error == now.error and not since_checkpoint
    return now.model_copy(update={"times": previous.times + 1}) if is_same else now


def _without_numbers(error: str) -> str:
    return _NUMBER.sub("#", error)


def will_repeat(failure: FailureView) -> bool:
    """Return whether it came in the same way so often that it will again.

    An error of the user's code is known by its message and line, or batch, and a crash by its
    batch and stack.
    A rank may be killed by hand, so a signal from outside has to come once more to count.
    """
    if failure.exit_code is not None and -failure.exit_code in _SENT_BY_OTHERS:
        return failure.batch is not None and failure.times > _MAX_REPEATS
    has_crashed = failure.exit_code not in (None, 1)
    is_placed = bool(failure.where) or failure.batch is not None
    return (has_crashed or is_placed) and failure.times >= _MAX_REPEATS


def failure_after_losses(at: float) -> FailureView:
    """Return the failure of a trial whose runs are lost before they have begun to train."""
    error = (
        f"the fork server or agent died {MAX_LOSSES} times in a row before the first step; the "
        "machine may be out of memory; see agent.log"
    )
    return _failure_of_no_rank(error, at)


def _failure_of_no_rank(error: str, at: float) -> FailureView:
    """Return a failure of no rank."""
    return FailureView(rank=None, exit_code=None, error=error, at=at)


def _signal(code: int) -> str:
    name = signal_name(-code)
    return f"{name} (by hand, or out of memory)" if name == "SIGKILL" else name
