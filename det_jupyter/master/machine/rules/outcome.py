"""The outcome of a gang's end for its trial. Pure: maps facts about the run to an outcome.

The first condition that is met decides:

    it was canceled, and its code      FAILED            the code raised before its state was saved
      raised while it stopped
    the trial was stopping             ENDED_AS_ASKED    whatever else happened while it stopped
    a checkpoint could not be stored   FAILED, or LOST   later reports of its ranks do not
                                         as below        count, as their state is not saved
    a rank reported completed or       COMPLETED
      stopped
    a rank reported invalid_hp         INVALID
    it hung, and was killed for that   FAILED            as its configuration requires
    the trial rests, or saved after    PREEMPTED         whatever happened while it stopped: its
      it was asked to leave                              progress was saved before
    a rank reported preempted, or it   PREEMPTED         goes on if the experiment is active
      was killed at the deadline
    its agent or fork server exited,   LOST              not the trial's fault: restarted, and not
      computers are cut apart, a GPU                     counted as a restart; but MAX_LOSSES of
      of it is lost, or another master                   them in a row before the first step are
      has taken its slots                                a failure, LOST_BY_OTHERS left out
    anything else                      FAILED            restarted up to max_restarts times, unless
                                                         the failure is final or a log policy
                                                         forbids it. If a disk was full: restarted
                                                         when there is room, and not counted
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from signal import Signals
from typing import assert_never

from det_jupyter.contract.messages import (
    CrashOutput,
    DeviceFault,
    FailureView,
    GangExited,
    Loss,
    State,
)
from det_jupyter.contract.values.text import clock, signal_name
from det_jupyter.master.machine.model.allocations import Allocation, LostRun
from det_jupyter.master.machine.model.lifecycle import is_stopping
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.rules.gang_ends import cause_of_part, earliest_failure

_MAX_REPEATS = 2  # times that a failure is repeated before the trial is not restarted any more
_SENT_BY_OTHERS = (
    Signals.SIGKILL,
    Signals.SIGTERM,
    Signals.SIGHUP,
    Signals.SIGINT,
    Signals.SIGQUIT,
)
_LESS_MEMORY = "try smaller batches, fewer loader workers, or fewer ranks on this computer"
_SHELL_ADDS = 128  # a shell's exit code for a signal is the signal's number plus this
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?")
# Runs lost in a row after which a trial is not restarted: it may exhaust the memory.
MAX_LOSSES = 5
# Losses that a trial cannot cause, however much memory it uses.
LOST_BY_OTHERS = (Loss.LEAVING, Loss.MASTER, Loss.CUT, Loss.TAKEN)


class GangOutcome(StrEnum):
    """The outcome of a gang's end for its trial; see the table above."""

    ENDED_AS_ASKED = "ended as asked"
    COMPLETED = "completed"
    INVALID = "invalid hyperparameters"
    PREEMPTED = "preempted"
    LOST = "lost"
    FAILED = "failed"


def judge(trial: Trial, allocation: Allocation, exited: GangExited) -> GangOutcome:
    """Return the outcome of the end of a trial's gang."""
    reported = _reported_end(allocation, exited)
    is_lost = exited.lost or lost_device(exited) is not None
    if is_stopping(trial.state):
        failed = _failed_before_saving(trial, allocation, exited)
        return GangOutcome.FAILED if failed else GangOutcome.ENDED_AS_ASKED
    if exited.not_saved:
        return GangOutcome.LOST if is_lost else GangOutcome.FAILED
    if reported in ("completed", "stopped"):
        return GangOutcome.COMPLETED
    if reported == "invalid_hp":
        return GangOutcome.INVALID
    if allocation.ended_for is not None:
        return GangOutcome.FAILED
    rests = trial.is_resting or allocation.is_for_rest
    if rests or reported == "preempted" or exited.killed:
        return GangOutcome.PREEMPTED
    return GangOutcome.LOST if is_lost else GangOutcome.FAILED


def lost_device(exited: GangExited) -> tuple[int, DeviceFault] | None:
    """Return the rank whose GPU was lost, and the fault, if a gang has ended because of it."""
    lost = [(rank, fault) for rank, fault in exited.faults.items() if fault.is_lost]
    return min(lost, key=lambda one: one[1].at, default=None)


def _reported_end(allocation: Allocation, exited: GangExited) -> str | None:
    """Return the end of the run as reported by the chief, or else by another rank.

    If the chief's agent is lost, records of the chief may be missing, such as its last checkpoint.
    """
    end = allocation.run_end
    if end is None or (exited.lost and allocation.run_end_rank and end.reason != "invalid_hp"):
        return None
    return end.reason


def _failed_before_saving(trial: Trial, allocation: Allocation, exited: GangExited) -> bool:
    """Return whether a canceled trial's code raised before the gang had saved its state."""
    raised = [f for f in allocation.failures if not _was_ended(exited.exit_codes.get(f.rank))]
    if trial.state is not State.STOPPING_CANCELED or not raised:
        return False
    has_saved = allocation.run_end is not None or allocation.is_for_rest
    return not (has_saved or exited.killed or exited.lost)


def _was_ended(exit_code: int | None) -> bool:
    """Return whether a rank, or the command that it ran, was ended by another process's signal."""
    if exit_code is None:
        return False
    return (-exit_code if exit_code < 0 else exit_code - _SHELL_ADDS) in _SENT_BY_OTHERS


def find_failure(allocation: Allocation, exited: GangExited) -> tuple[FailureView, bool]:
    """Return the first cause of a failed run, and whether it is final: a restart cannot help.

    If the GPU of that rank has had an error, the failure says so; see `_first_failure`.
    """
    view, is_final = _first_failure(allocation, exited)
    if view.device_memory is not None:
        update = {"error": f"{view.error}; {view.device_memory}", "no_memory": True}
        view = view.model_copy(update=update)
    fault = exited.faults.get(view.rank) if view.rank is not None else None
    if fault is not None:
        view = view.model_copy(update={"error": f"{view.error}; {fault}"})
    return view, is_final


def _first_failure(allocation: Allocation, exited: GangExited) -> tuple[FailureView, bool]:
    """Return the first cause of a failed run, and whether it is final.

    Ranks that lose a peer fail a moment later too, with errors that do not explain the cause. So
    the cause is the rank that exited first, if it journaled no failure; else the earliest
    journaled failure that does not follow from another.
    """
    rank = cause_of_part(exited)
    code = exited.exit_codes.get(rank) if rank is not None else None
    own = [f for f in allocation.failures if f.rank == rank]
    if exited.error:
        failure = _failure_of_no_rank(exited.error, exited.at)
        full = {"no_room": exited.no_room, "full_folder": exited.full_folder}
        return failure.model_copy(update=full), exited.error_is_final
    if rank is not None and code is not None and not own:
        return _failure_of_rank(rank, code, exited), False
    if allocation.failures:
        first = earliest_failure(allocation.failures)
        code = exited.exit_codes.get(first.rank)
        # `exited.batch` is the batch of the rank that exited first; the others were in it too.
        view = FailureView.built_from(first, exit_code=code, batch=exited.batch)
        if first.lost_pid is not None:
            view = _with_end_of_worker(view, first.lost_pid, exited)
        return view, first.final
    return _failure_of_no_rank("the ranks ended, and none has reported an error", exited.at), False


def _failure_of_rank(rank: int, code: int, exited: GangExited) -> FailureView:
    """Return the failure of a rank that exited without a record, with the end of its output."""
    crash = exited.last_words or CrashOutput()
    where = f" in batch {exited.batch}" if exited.batch is not None else ""
    if code < 0:
        error = f"rank {rank} was killed by {signal_name(-code)}{_killer(code, exited)}{where}"
        if exited.memory is not None:
            error = f"rank {rank} was killed by the kernel{where}: {exited.memory}; {_LESS_MEMORY}"
    elif code == 0:
        error = (
            f"rank {rank} ended with exit code 0{where}, before the trial was over: its code, or "
            "a library, called os._exit or became another program (exec)"
        )
    else:
        error = f"rank {rank} ended with exit status {code}{where}; its output may have the reason"
    if crash.error:
        error += f": {crash.error}"
    return FailureView(
        rank=rank,
        exit_code=code,
        error=error,
        where=crash.where,
        traceback=crash.traceback,
        at=exited.at,
        batch=exited.batch,
        no_memory=code < 0 and exited.memory is not None,
    )


def _killer(code: int, exited: GangExited) -> str:
    """Return a note on what may have sent a SIGKILL; "" for other signals."""
    if -code != Signals.SIGKILL:
        return ""
    if exited.had_memory:
        return " (by hand or another program; the kernel has killed nothing for want of memory)"
    return " (by hand, or out of memory)"


def _with_end_of_worker(view: FailureView, pid: int, exited: GangExited) -> FailureView:
    """Return a failure with the reason why a process of the rank, such as a loader worker, ended.

    Args:
        pid: The process; 0: not known.
    """
    crash, memory = exited.last_words, exited.memory
    if crash is not None and crash.where and view.rank == cause_of_part(exited):
        update = {"where": crash.where, "traceback": f"{crash.traceback}\n{view.error}\n"}
        return view.model_copy(update=update)
    if memory is None or (memory.pids and pid and pid not in memory.pids):
        return view
    error = f"{view.error}: killed by the kernel: {memory}; {_LESS_MEMORY}"
    return view.model_copy(update={"error": error, "no_memory": True})


def count_repeats(
    now: FailureView, previous: FailureView | None, *, since_checkpoint: bool
) -> FailureView:
    """Return a failure with `times` set: how often it has occurred in a row.

    It is the same failure as the previous one if the error message and its location are the same,
    and there was no progress: it is in the same batch, or no checkpoint was saved in between. In
    the same batch, numbers in the message may differ: addresses, process ids, free memory.

    Args:
        now: The failure of the run that has ended.
        previous: The trial's failure before it.
        since_checkpoint: Whether a checkpoint was saved in between.
    """
    if previous is None or previous.where != now.where:
        return now
    if now.batch is not None and now.batch == previous.batch:
        # The process that used the memory may differ.
        no_memory = now.no_memory and previous.no_memory
        is_same = no_memory or _without_numbers(previous.error) == _without_numbers(now.error)
    else:
        is_same = previous.error == now.error and not since_checkpoint
    return now.model_copy(update={"times": previous.times + 1}) if is_same else now


def _without_numbers(error: str) -> str:
    return _NUMBER.sub("#", error)


def will_repeat(failure: FailureView) -> bool:
    """Return whether a failure was repeated so often that a restart is expected to repeat it.

    An exception in the user's code counts if its line or batch is known, and a crash always. A
    signal that may come from outside, such as `kill` by hand, must occur once more than that, and
    in a known batch. The same holds for an error that another process may have caused, such as a
    data-loader worker that was killed, and for any signal if the other ranks saved the last step.
    """
    if failure.is_survived:  # a repetition costs little
        return failure.batch is not None and failure.times > _MAX_REPEATS
    by_others = failure.by_others or _was_ended(failure.exit_code)
    if by_others and not failure.no_memory:
        return failure.batch is not None and failure.times > _MAX_REPEATS
    has_crashed = failure.exit_code not in (None, 1)
    is_placed = bool(failure.where) or failure.batch is not None
    return (has_crashed or is_placed) and failure.times >= _MAX_REPEATS


def loss_text(exited: GangExited, agent: str) -> str:
    """Return how the ranks of an agent were lost, such as "agent box died"."""
    if (found := lost_device(exited)) is not None:
        return f"{found[1]} on agent {agent}"
    match exited.loss:
        case Loss.AGENT:
            return f"agent {agent} died"
        case Loss.FORK_SERVER:
            return f"the fork server of agent {agent} died"
        case Loss.SILENCE:
            return f"agent {agent} has not answered any more"
        case Loss.LEAVING:
            return f"agent {agent} was ended"
        case Loss.MASTER:
            return f"agent {agent} was without the master for too long"
        case Loss.CUT:
            return exited.cut.sentence if exited.cut is not None else "computers were cut apart"
        case Loss.TAKEN:
            return f"another user's master was faster to take a slot of agent {agent}"
        case Loss.UNKNOWN:
            return f"agent {agent} or its fork server died"
        case _:
            assert_never(exited.loss)


def lost_run(run: int, exited: GangExited, what: str) -> LostRun:
    """Return a LostRun: a run that was lost before its first step, with the description `what`."""
    return LostRun(run=run, at=exited.at, what=what, is_device=lost_device(exited) is not None)


def failure_after_losses(losses: Sequence[LostRun]) -> FailureView:
    """Return the failure of a trial whose runs were lost MAX_LOSSES times before training."""
    runs = "; ".join(f"run {lost.run} at {clock(lost.at)}: {lost.what}" for lost in losses)
    error = f"lost {len(losses)} times in a row before the first step: {runs}"
    if not all(lost.is_device for lost in losses):
        error += "; the machine may be out of memory; see agent.log"
    return _failure_of_no_rank(error, losses[-1].at)


def _failure_of_no_rank(error: str, at: float) -> FailureView:
    """Return a failure that was not caused by a rank."""
    return FailureView(rank=None, exit_code=None, error=error, at=at)
