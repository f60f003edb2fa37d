"""Notes the error that ends a worker of a script, which its launcher sees only as an exit code."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from det_jupyter.core.journal import Journal
from det_jupyter.core.lost import is_lost_peer, is_lost_worker
from det_jupyter.core.managed import Run
from det_jupyter.core.steps import StepCounter
from det_jupyter.core.tracebacks import CodeNames, Explanation
from det_jupyter.errors import ConfigError, InvalidHP, PeerRefused, ProtocolMismatch
from det_jupyter.records import RankFailure, Record, RunEnded

_SECONDARY_DELAY_S = 0.5  # meanwhile the launcher or the agent ends this process, too


def report_uncaught(run: Run, rank: int, journal: Journal, counter: StepCounter) -> None:
    """Have the uncaught error of this process journaled, and printed as before."""
    printed, process = sys.excepthook, os.getpid()

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        explanation = _explain(run, error)
        if printed is sys.__excepthook__ and not isinstance(error, KeyboardInterrupt):
            sys.stderr.write(explanation.printed)  # without our frames
        else:
            printed(kind, error, traceback)
        # A launcher ends its workers by interrupts, and a fork of this process is no worker.
        if isinstance(error, KeyboardInterrupt) or os.getpid() != process:
            return
        if is_lost_peer(error):
            time.sleep(_SECONDARY_DELAY_S)
        with suppress(OSError):  # the disk is full, or the run's folder is gone
            journal.write(_record(run, rank, error, explanation, counter))

    sys.excepthook = hook


def _explain(run: Run, error: BaseException) -> Explanation:
    has_context = run.plan.capsule.context is not None
    workplace = Path(run.folder.workplace(run.plan.cwd, has_context=has_context))
    names = CodeNames({}, [workplace], workplace if has_context else None)
    return names.explain(error)


def _record(
    run: Run, rank: int, error: BaseException, explanation: Explanation, counter: StepCounter
) -> Record:
    message = explanation.error
    if isinstance(error, InvalidHP):
        return RunEnded(
            at=time.time(),
            reason="invalid_hp",
            steps_completed=counter.steps_completed,
            message=message,
        )
    is_secondary = is_lost_peer(error)
    is_others = is_secondary or is_lost_worker(error) or isinstance(error, PeerRefused)
    # Only the chief has to report, so another rank may have trained without a report. A failure
    # before the first step repeats, unless an earlier run came further.
    has_trained = rank != 0 or counter.steps_completed > counter.first
    is_hopeless = not has_trained and run.plan.checkpoint is None and not is_others
    return RankFailure(
        at=time.time(),
        rank=min(rank, len(run.plan.slots) - 1),
        error=f"another rank is gone: {message}" if is_secondary else message,
        traceback=explanation.traceback,
        where=explanation.where,
        final=isinstance(error, ConfigError | ProtocolMismatch) or is_hopeless,
    )
