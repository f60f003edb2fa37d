"""How the run of programs ended: from their exit codes, and what their ranks have journaled.

Of a program only the exit code shows that it is done: its last statement may be `os._exit`, and a
launcher's workers are no children of ours. So the agent writes the end into the chief's journal:

    every process has exited with 0, and         is added to the chief's journal
    a rank's journal ends with a failure         nothing: the launcher hides that a worker failed
    a rank has reported how the run ended        nothing
    a rank left because it was asked to          RunEnded preempted
    else                                         TargetReached, and RunEnded completed

A worker that a launcher starts again after a failure journals more, so its failure is not its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal

from det_jupyter.agent.runs.streams import MAX_RECORD_BYTES
from det_jupyter.contract.host.rundir import RunDir, append
from det_jupyter.contract.messages import GangExited, GangPlan
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.journal import RunEnded, TargetReached, to_line
from det_jupyter.contract.values.lengths import Length


def write_end(plan: GangPlan, folder: RunDir, exited: GangExited) -> None:
    """Add the end of the run to the chief's journal, if the processes have ended well.

    Raises:
        OSError: It cannot be written.
    """
    is_cut = exited.killed or exited.lost or exited.error
    if is_cut or any(code != 0 for code in exited.exit_codes.values()):
        return
    ranks = range(len(plan.slots))
    steps = plan.checkpoint.steps_completed if plan.checkpoint is not None else 0
    for rank in ranks:
        kind = None
        for record in _records(folder.journal(rank)):
            if (kind := record.get("kind")) == "run_ended":
                return
            if isinstance(reported := record.get("steps_completed"), int):
                steps = max(steps, reported)
        if kind == "failure":
            return
    with closing(ControlPage(folder.control)) as page:
        steps = max([steps, *(page.batch_of(rank) or 0 for rank in ranks)])
        lines = [] if page.is_acknowledged() else [_reached(plan, page, steps, exited.at)]
    reason: Literal["completed", "preempted"] = "completed" if lines else "preempted"
    lines.append(to_line(RunEnded(at=exited.at, reason=reason, steps_completed=steps)))
    append(folder.journal(0), "".join(lines))


def _reached(plan: GangPlan, page: ControlPage, steps: int, at: float) -> str:
    found = page.target()
    amount = max(plan.target.amount, found[0]) if found else plan.target.amount
    target = Length(plan.target.unit, amount)
    return to_line(TargetReached(at=at, steps_completed=steps, target=target))


def _records(journal: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a journal, as JSON has them."""
    with suppress(OSError), journal.open("rb") as file:  # no worker of this rank has journaled
        while line := file.readline(MAX_RECORD_BYTES):  # what is longer is no record
            with suppress(ValueError, RecursionError):  # it was cut off, or is nested too deeply
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record
