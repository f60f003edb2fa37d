"""What a launcher reports of a worker that failed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from det_jupyter.contract.host.rundir import append
from det_jupyter.contract.values.text import signal_name
from det_jupyter.launch.place import Run

_FAILURE = b'"kind":"failure"'
_LOOKED_AT_BYTES = 256 * 1024


def describe(code: int) -> str:
    """Return how a process ended.

    >>> describe(3), describe(-9)
    ('failed with exit code 3', 'was killed by SIGKILL')
    """
    if code >= 0:
        return f"failed with exit code {code}"
    return f"was killed by {signal_name(-code)}"


def journal_failure(run: Run, rank: int, error: str) -> None:
    """Write the record of a rank's failure, unless the rank has written one itself.

    Call it when the rank has ended, or cannot be started.
    """
    journal = run.folder.journal(rank)
    if _has_failure(journal):
        return
    from det_jupyter.contract.run.journal import RankFailure, to_line
    from det_jupyter.contract.run.output_lines import (  # only now: they take 0.3 s
        last_lines,
        read_end,
    )

    printed = last_lines(read_end(run.folder.output(rank)), 20, most=1000)
    record = RankFailure(
        at=time.time(),
        rank=rank,
        error=error,
        traceback=f"It printed at last:\n{printed}\n" if printed.strip() else "",
    )
    append(journal, to_line(record))


def _has_failure(journal: Path) -> bool:
    try:
        with journal.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOOKED_AT_BYTES))
            return _FAILURE in file.read()
    except FileNotFoundError:
        return False
