"""The record of the error that ends a rank.

A worker that a launcher has started writes the record of its uncaught error itself, since the
launcher only gets an exit code.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, TracebackType

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.disk_space import folder_without_room, is_no_room
from det_jupyter.contract.messages import GangPlan
from det_jupyter.contract.run.journal import RankFailure, Record, RunEnded
from det_jupyter.core.device_errors import device_shortage, more_about
from det_jupyter.core.info import TrialInfo
from det_jupyter.core.journal import Journal
from det_jupyter.core.managed import StepCounter
from det_jupyter.core.peer_errors import PeerFailed, is_lost_peer, is_lost_worker, lost_worker_pid
from det_jupyter.core.tracebacks import CodeNames, Explanation
from det_jupyter.errors import (
    ConfigError,
    DetError,
    InvalidHP,
    PeerRefused,
    ProtocolMismatch,
    WaitTimeout,
)

_MAKE_ROOM = "make room there, or write to a folder on another disk"
_SHORTAGES = (errno.ENOMEM, errno.EAGAIN, errno.ENFILE)  # of the whole computer
_ECHO_DELAY_S = 0.5  # meanwhile the agent or launcher ends this process, after the first failure


def explain(names: CodeNames, error: BaseException, code: CodeType | None = None) -> Explanation:
    """Return the error for its record; only its type if its own methods raise.

    Args:
        names: Labels of captured code.
        error: The error.
        code: The code at fault, if the stack has no frame of it.
    """
    try:
        return names.explain(error, code)
    except BaseException as other:  # the failure must be reported in any case
        line = f"{type(error).__name__} (formatting its message failed: {type(other).__name__})"
        return Explanation(error=line, traceback=f"{line}\n", where="")


def failure_of(
    error: BaseException,
    explanation: Explanation,
    *,
    rank: int,
    is_echo: bool,
    is_early: bool,
    batch_size: int | None = None,
) -> RankFailure:
    """Return the record of a failure. Waits 0.5 s if another rank has caused it.

    Args:
        error: The error.
        explanation: The text of the error.
        rank: The rank that has failed.
        is_echo: Whether another rank has caused it.
        is_early: Whether the trial has not trained a batch yet, in any run. Such a failure would
            repeat, unless another process has caused it; see `_is_by_others`.
        batch_size: Records of a batch on this rank; None: unknown.
    """
    message = explanation.error
    if isinstance(error, ModuleNotFoundError) and error.name == "determined":
        message += "; code for Determined needs `pip install det-jupyter-determined`"
    shortage = device_shortage(error, batch_size=batch_size)
    if more := more_about(error):
        message += f"; {more}"
    if is_echo:
        message = f"another rank is gone: {message}"
        time.sleep(_ECHO_DELAY_S)
    no_room, folder = is_no_room(error), ""
    if no_room:
        folder = folder_without_room(error, _folders_written_to())
        message = (
            f"no room on the disk{f' of {folder}' if folder else ''}: {message}; {_MAKE_ROOM}"
        )
    # That rank was killed before it reported the full disk.
    elif isinstance(error, PeerFailed) and error.no_room:
        no_room, message = True, f"{message}; {_MAKE_ROOM}"
    lost_pid = lost_worker_pid(error) if is_lost_worker(error) else None
    by_others = _is_by_others(error)
    is_others = no_room or is_echo or by_others
    return RankFailure(
        at=time.time(),
        rank=rank,
        error=message,
        traceback=explanation.traceback,
        where=explanation.where,
        final=isinstance(error, ConfigError | ProtocolMismatch) or (is_early and not is_others),
        no_room=no_room,
        full_folder=folder,
        is_echo=is_echo,
        lost_pid=lost_pid,
        by_others=by_others,
        device_memory=shortage,
    )


def batch_size_of(plan: GangPlan, rank: int) -> int | None:
    """Return the records of a batch on a rank; None if its hyperparameters lack it."""
    total, num_ranks = plan.hparams.get("global_batch_size"), len(plan.slots)
    if not isinstance(total, int) or not num_ranks:
        return None
    return total // num_ranks + (rank < total % num_ranks)


def _is_by_others(error: BaseException) -> bool:
    """Return whether another process may have caused the error, so that a restart may help.

    A data-loader worker may have been killed, another rank may have been stopped for longer than
    this one waits, another program may have taken its place, or others may have used up the
    system's memory, processes or open files.
    """
    if isinstance(error, OSError) and error.errno in _SHORTAGES:
        return True
    return is_lost_worker(error) or isinstance(error, PeerRefused | WaitTimeout)


def _folders_written_to() -> Iterator[str]:
    """Yield the folders that a rank writes to, if they exist."""
    with suppress(OSError, DetError):
        yield str(paths.data_dir())
    with suppress(OSError):
        yield str(Path.cwd())
    with suppress(OSError):
        yield tempfile.gettempdir()


def report_uncaught(info: TrialInfo, rank: int, journal: Journal, counter: StepCounter) -> None:
    """Set `sys.excepthook` to write a record of the uncaught error, and to print it as before."""
    former_hook, process = sys.excepthook, os.getpid()

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        workplace = info.plan.workplace(info.folder)
        context = workplace if info.plan.has_context else None
        explanation = explain(CodeNames({}, [workplace], context), error)
        if former_hook is sys.__excepthook__ and not isinstance(error, KeyboardInterrupt):
            sys.stderr.write(explanation.printed)  # without our frames
        else:
            former_hook(kind, error, traceback)
        # A launcher interrupts its workers to end them; a forked process is not a worker.
        if isinstance(error, KeyboardInterrupt) or os.getpid() != process:
            return
        with suppress(OSError):  # the disk is full, or the run's folder is gone
            journal.write(_record(info.plan, rank, error, explanation, counter))

    sys.excepthook = hook


def record_of(
    plan: GangPlan,
    rank: int,
    error: BaseException,
    counter: StepCounter,
    labels: Mapping[str, str],
) -> Record:
    """Return the record of the error that ends a run; `labels` are names of cells by file."""
    explanation = explain(CodeNames(labels, [Path(plan.cwd)]), error)
    return _record(plan, rank, error, explanation, counter)


def _record(
    plan: GangPlan, rank: int, error: BaseException, explanation: Explanation, counter: StepCounter
) -> Record:
    if isinstance(error, InvalidHP):
        return RunEnded(
            at=time.time(),
            reason="invalid_hp",
            steps_completed=counter.steps_completed,
            message=explanation.error,
        )
    # Only the chief has to report: another rank may have trained without a report.
    has_trained = rank != 0 or counter.steps_completed > counter.first
    return failure_of(
        error,
        explanation,
        rank=min(rank, len(plan.slots) - 1),
        is_echo=is_lost_peer(error),
        is_early=not has_trained and plan.checkpoint is None,
        batch_size=batch_size_of(plan, rank),
    )
