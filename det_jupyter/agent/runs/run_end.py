"""How a run ended: the output of a crashed rank, and the end of a run of programs.

A rank that ended without a record in its journal is reported with the end of its output: the stack
of its crash, or the last lines that it printed. After the message of an uncaught C++ exception,
Python's faulthandler writes the stacks of all threads, innermost frame first:

    terminate called after throwing an instance of 'gloo::EnforceNotMet'
      what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 1000 vs 4
    Fatal Python error: Aborted

    Thread 0x00007f99ed7d5b80 (most recent call first):
      File "<cell 5>", line 12 in train_batch

It is shown as any other traceback: cells by name, innermost frame last, without frames of this
package.

Only the exit code of a program shows that it is done: its last statement may be `os._exit`, and a
launcher's workers are no children of this process. So the agent writes the end into the chief's
journal:

    every process has exited with 0, and         is added to the chief's journal
    a rank's journal ends with a failure         nothing: the launcher hides that a worker failed
    a rank has reported how the run ended        nothing
    a rank left because it was asked to          RunEnded preempted
    else                                         TargetReached, and RunEnded completed

A worker that a launcher restarts after a failure adds records, so its journal does not end with
the failure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from det_jupyter.agent.runs.file_chunks import MAX_RECORD_BYTES
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.runs.user_code import OURS, is_user_file
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import RunDir, append_to_journal
from det_jupyter.contract.messages import CrashOutput, GangExited, GangPlan
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.evidence_page import EvidencePage
from det_jupyter.contract.run.journal import RunEnded, TargetReached, to_line
from det_jupyter.contract.run.output_lines import last_lines, read_end
from det_jupyter.contract.values.lengths import Length

_LINES = 20  # lines of output shown if there is no stack
_MOST_TEXT = 1000  # of them, in characters
_LINES_BEFORE = 5  # a fatal error: they may contain its cause
_FATAL = re.compile(r"^Fatal Python error: .*$", re.MULTILINE)
_THREAD = re.compile(
    r"^(Current thread|Thread) 0x.*:\n(?: +Garbage-collecting\n)?((?: +File .*\n)+)", re.MULTILINE
)
_FRAME = re.compile(r'^ +File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.+)$', re.MULTILINE)
_WHAT = re.compile(r"^ *what\(\): +(.+)$", re.MULTILINE)
_SIZES_DIFFER = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_COLLECTIVES_DIFFER = (
    "the ranks were in different collectives, or in one with tensors of different sizes"
)
# The function in pytorch/parallel in which the ranks compare which parameters they train.
_AGREEMENT_FRAME = "in _agree_on_trained\n"
_TRAINED_BY_SOME = (
    "requires_grad has changed on this rank and not on all the others; set it to the same on all"
)


class _Frame(NamedTuple):
    file: str
    line: str
    name: str


def with_details(run: AgentRun, exited: GangExited) -> GangExited:
    """Return the report with the last batch, and the output, of the rank that ended first.

    If the run's folder was removed or the disk is full, that is reported as the error instead.
    """
    if exited.killed or exited.lost:
        return exited
    rank = exited.first_ended
    if rank is not None and not run.dir.path.is_dir():  # no rank could journal its end
        error = (
            f"the run's folder was removed while it trained: {run.dir.path}; leave "
            f"{run.dir.path.parent} alone while something runs"
        )
        return exited.model_copy(update={"error": error, "error_is_final": False})
    has_failed = exited.first_failed is not None or bool(exited.error)
    # With a full disk, the rank could not write its failure into the journal.
    if has_failed and (full := paths.find_full_folder()):
        where = f"on agent {run.remote_agent}: " if run.remote_agent else ""
        return exited.model_copy(
            update={
                "error": where + full,
                "error_is_final": False,
                "no_room": True,
                "full_folder": str(paths.data_dir()),
            }
        )
    if rank is None:
        return exited
    try:
        with run.open_page() as page:
            batch = page.batch_of(rank)
    except (OSError, ValueError):  # user code may have removed the folder
        batch = None
    output = read_end(run.dir.output(rank))
    cwd = str(run.plan.workplace(run.dir))
    crash = crash_output(output, run.labels(), cwd, _entered(run))
    if crash is not None and run.plan.has_context:  # paths relative to the context directory
        traceback = crash.traceback.replace(f'File "{run.dir.work}/', 'File "')
        crash = crash.model_copy(update={"traceback": traceback})
    return exited.model_copy(update={"batch": batch, "last_words": crash})


def _entered(run: AgentRun) -> dict[int, tuple[int, str]]:
    """Return how many collectives each rank here has begun from Python, and the last one."""
    try:
        with closing(EvidencePage(run.dir.evidence)) as page:
            found = {rank: page.read(rank) for rank in run.ranks}
    except (OSError, ValueError):  # user code may have removed the folder
        return {}
    return {rank: (one.entered, one.collective) for rank, one in found.items()}


def crash_output(
    text: str,
    labels: Mapping[str, str],
    cwd: str,
    entered: Mapping[int, tuple[int, str]] = MappingProxyType({}),
) -> CrashOutput | None:
    """Return the crash, or else the last lines, in a rank's output; None if it is empty.

    Args:
        text: The end of the rank's stdout and stderr.
        labels: Names that are shown for the files of the captured code, by file name.
        cwd: Folder of the user's own modules.
        entered: By rank: how many collectives Python code has begun, and the last one.
    """
    fatal = next(reversed(list(_FATAL.finditer(text))), None)
    if fatal is None:
        tail = last_lines(text, _LINES, most=_MOST_TEXT)
        return CrashOutput(traceback=f"It printed at last:\n{tail}\n") if tail else None
    before = "\n".join(text[: fatal.start()].rstrip("\n").split("\n")[-_LINES_BEFORE:])
    stack = _user_stack(text[fatal.end() :], labels, cwd)
    theirs = [frame for frame in stack if is_user_file(frame.file, labels, [cwd])]
    parts = [before, fatal[0], "Stack of the crash (most recent call last):"]
    parts += [f"  {_frame_text(frame, labels)}" for frame in stack]
    return CrashOutput(
        error=_error_text(before, text[fatal.end() :], entered),
        where=_frame_text(theirs[-1], labels, short=True) if theirs else "",
        traceback="\n".join(filter(None, parts)) + "\n",
    )


def _user_stack(text: str, labels: Mapping[str, str], cwd: str) -> list[_Frame]:
    """Return the stack of the thread that crashed, or else of one that ran user code.

    The innermost frame is last; frames of this package are left out.
    """
    stacks, crashed = [], []
    for kind, thread in _THREAD.findall(text):
        frames = [_Frame(m["file"], m["line"], m["name"]) for m in _FRAME.finditer(thread)]
        end = next((i for i, f in enumerate(frames) if f.file == "<frozen runpy>"), None)
        stacks.append([f for f in reversed(frames[:end]) if not f.file.startswith(OURS)])
        crashed += [stacks[-1]] if kind == "Current thread" else []
    # The main thread is the last. A thread of a C++ library has no stack.
    theirs = [s for s in stacks if any(is_user_file(frame.file, labels, [cwd]) for frame in s)]
    return [*[[]], *stacks, *theirs, *(s for s in crashed if s in theirs)][-1]


def _frame_text(frame: _Frame, labels: Mapping[str, str], *, short: bool = False) -> str:
    file = Path(frame.file).name if short else f'File "{frame.file}"'
    return f"{labels.get(frame.file, file)}, line {frame.line}, in {frame.name}"


def _error_text(before: str, stacks: str, entered: Mapping[int, tuple[int, str]]) -> str:
    what = _WHAT.search(before)
    if what is None:
        return ""
    sizes = _SIZES_DIFFER.search(what[1])
    if sizes is not None:
        if _AGREEMENT_FRAME in stacks:
            return _TRAINED_BY_SOME
        if named := describe_entered(entered):
            return named
        return f"{_COLLECTIVES_DIFFER} (gloo got {sizes[1]} bytes, expected {sizes[2]})"
    return what[1][:300]


def describe_entered(entered: Mapping[int, tuple[int, str]]) -> str:
    """Return the collective that each rank was in, if the ranks were in different ones.

    Those that torch begins itself, as DDP does, are not counted.

    >>> describe_entered({0: (7, "all_reduce [4] float32"), 1: (7, "all_reduce [3] float32")})
    'rank 1 entered all_reduce [3] float32 where rank 0 entered all_reduce [4] float32'
    >>> describe_entered({0: (7, "barrier"), 1: (8, "all_reduce [3] float32")})
    'rank 1 entered all_reduce [3] float32 where rank 0 entered another collective'
    """
    most = max((number for number, _ in entered.values()), default=0)
    ahead = {rank: text for rank, (number, text) in entered.items() if number == most}
    behind = sorted(entered.keys() - ahead.keys())
    if not most:
        return ""
    first = min(ahead)
    if behind:
        return (
            f"rank {first} entered {ahead[first]} where rank {behind[0]} entered another "
            "collective"
        )
    other = next((rank for rank in sorted(ahead) if ahead[rank] != ahead[first]), None)
    if other is None:
        return ""
    return f"rank {other} entered {ahead[other]} where rank {first} entered {ahead[first]}"


def write_end(plan: GangPlan, folder: RunDir, exited: GangExited) -> None:
    """Append the end of the run to the chief's journal if all processes have exited with 0.

    Raises:
        OSError: The journal cannot be read or written.
    """
    is_cut = exited.killed or exited.lost or exited.error
    if is_cut or any(code != 0 for code in exited.exit_codes.values()):
        return
    ranks = range(len(plan.slots))
    steps = plan.checkpoint.steps_completed if plan.checkpoint is not None else 0
    for rank in ranks:
        kind = None
        for record in journal_records(folder.journal(rank)):
            if (kind := record.get("kind")) == "run_ended":
                return
            if isinstance(reported := record.get("steps_completed"), int):
                steps = max(steps, reported)
        if kind == "failure":
            return
    with closing(ControlPage(folder.control)) as page:
        steps = max([steps, *(page.batch_of(rank) or 0 for rank in ranks)])
        is_preempted, extended_to = page.is_acknowledged(), page.target()
    lines = ""
    if not is_preempted:
        amount = max(plan.target.amount, extended_to[0] if extended_to else 0)
        target = Length(plan.target.unit, amount)
        lines = to_line(TargetReached(at=exited.at, steps_completed=steps, target=target))
    reason: Literal["completed", "preempted"] = "preempted" if is_preempted else "completed"
    lines += to_line(RunEnded(at=exited.at, reason=reason, steps_completed=steps))
    append_to_journal(folder.journal(0), lines)


def journal_records(journal: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a journal, parsed from JSON; lines that are no records are skipped."""
    # The file may be missing: only some workers have a journal.
    with suppress(OSError), journal.open("rb") as file:
        while line := file.readline(MAX_RECORD_BYTES):  # a longer line is no record
            with suppress(
                ValueError, RecursionError
            ):  # the line is incomplete or nests too deeply
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record
