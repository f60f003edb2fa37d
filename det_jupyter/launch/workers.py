"""Starts workers and waits for them: the first failure ends all of them.

    a worker fails            the others get SIGTERM at once, and SIGKILL after GRACE_S
    a signal comes            it is passed on to the workers
    the launcher is killed    its workers and their process groups are killed (_Guard)
    all have ended            the remaining processes of their groups are killed

Each worker has a process group of its own: a Ctrl-C comes once, and none of its children stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from det_jupyter.contract.host.pdeathsig import kill_with_parent
from det_jupyter.contract.host.rundir import append_to_journal
from det_jupyter.contract.values.text import signal_name
from det_jupyter.launch.computers import RunLayout
from det_jupyter.launch.copies import Copies, Tail

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


def journal_failure(run: RunLayout, rank: int, error: str) -> None:
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
    append_to_journal(journal, to_line(record))


def _has_failure(journal: Path) -> bool:
    try:
        with journal.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOOKED_AT_BYTES))
            return _FAILURE in file.read()
    except FileNotFoundError:
        return False


GRACE_S = 2.0
# For every rank: its lines appear at once, and a crash leaves a stack.
RANK_VARIABLES = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
_PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_GUARD_SCRIPT = """
groups=
while read -r word; do
    [ "$word" = done ] && exit 0
    groups="$groups -$word"
done
[ -n "$groups" ] && kill -s KILL -- $groups
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process to start.

    Args:
        rank: None if it is a launcher that starts ranks itself.
        argv: The command.
        env: Environment variables in addition to the launcher's.
        output: The file that its output is appended to.
        prefix: Put before each line of its output if there is no file; empty: it inherits the
            launcher's stdout and stderr.
        closes_stdin: Whether its stdin is empty. It always is if the launcher's is a terminal.
    """

    rank: int | None
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    output: Path | None = None
    prefix: bytes = b""
    closes_stdin: bool = True


class _Guard:
    """Kills the process groups of workers when this process ends, also by SIGKILL.

    `kill_with_parent` kills a worker with its launcher, on Linux only, and not the worker's
    children. So a shell in a session of its own reads a pipe from the launcher, which closes when
    that ends.
    """

    def __init__(self) -> None:
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD_SCRIPT],
            stdin=subprocess.PIPE,
            stdout=nowhere,
            stderr=nowhere,
            start_new_session=True,
        )

    def send(self, word: str) -> None:
        """Send the number of a process group to kill later, or "done": all have ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process was killed
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()

    def close(self) -> None:
        self.send("done")
        with suppress(BrokenPipeError):
            self._process.communicate()


@dataclass(slots=True)
class _Started:
    worker: Worker
    process: subprocess.Popen[bytes]
    tail: Tail | None

    def signal_group(self, number: int) -> None:
        # macOS returns EPERM if only a zombie is left
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def complain(text: str) -> int:
    """Print what is wrong, and return the exit code of wrong usage."""
    print(text, file=sys.stderr, flush=True)
    return 2


def run_workers(
    workers: Sequence[Worker], name: str, *, run: RunLayout | None = None, is_quiet: bool = False
) -> int:
    """Run the workers until all have ended. Call it in the main thread.

    Args:
        workers: The processes to start.
        name: Name of the launcher, for messages.
        run: The run of an experiment, in which the first failure is recorded.
        is_quiet: Whether a failure is not reported, only returned.

    Returns:
        0 if all exited with 0, else the exit code of the first that failed, or minus its signal.
    """
    started: list[_Started] = []
    copies, guard = Copies(), _Guard()
    with _collecting_signals(copies) as signals:
        try:
            for worker in workers:
                started.append(_start(worker, copies))
                pid = started[-1].process.pid
                guard.send(str(pid))
                copies.wake_at_end_of(pid)
            first = _watch(started, copies, signals)
        except OSError as error:
            shown = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            complain(f"{name}: cannot start a worker: {shown}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        finally:
            for each in started:
                each.signal_group(signal.SIGKILL)
                each.process.wait()
            guard.close()
            copies.close()
    if first is None:
        return 0
    code = first.process.returncode
    if not is_quiet:
        asked = next((number for number in signals if number in _ENDING), None)
        _report(name, first, len(started), asked, run)
    return code


def exit_code(code: int) -> int:
    """Return the exit code of a shell for that of a process: 128 + N for signal N."""
    return code if code >= 0 else 128 - code


def _start(worker: Worker, copies: Copies) -> _Started:
    stdin = subprocess.DEVNULL if worker.closes_stdin or sys.__stdin__ is None else None
    if stdin is None and os.isatty(0):  # reading it would stop a process of another group
        stdin = subprocess.DEVNULL
    tail = None
    if worker.output is not None:
        target = os.open(worker.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = _popen(worker, stdin, target)
        finally:
            os.close(target)
    elif worker.prefix:
        process = _popen(worker, stdin, subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        tail = Tail()
        copies.add(process.stdout, 1, worker.prefix, tail)
        copies.add(process.stderr, 2, worker.prefix, tail)
    else:
        process = _popen(worker, stdin, None)
    return _Started(worker, process, tail)


def _popen(worker: Worker, stdin: int | None, output: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        worker.argv,
        env=os.environ | worker.env,
        stdin=stdin,
        stdout=output,
        stderr=output,
        process_group=0,
        preexec_fn=partial(kill_with_parent, os.getpid()),
    )


def _watch(started: list[_Started], copies: Copies, signals: list[int]) -> _Started | None:
    """Wait until all have ended, and return the first that failed."""
    living = list(started)
    first: _Started | None = None
    deadline = float("inf")
    num_passed_on = 0
    while living:
        copies.copy()
        for number in signals[num_passed_on:]:
            num_passed_on += 1
            for each in living:
                # A terminal would send a Ctrl-C to all processes, so all of the worker's get it.
                if number == signal.SIGINT:
                    each.signal_group(number)
                else:
                    each.process.send_signal(number)
        for each in [each for each in living if each.process.poll() is not None]:
            living.remove(each)
            if each.process.returncode != 0 and first is None:
                first = each
                deadline = time.monotonic() + GRACE_S
                for other in living:
                    other.signal_group(signal.SIGTERM)
        if time.monotonic() > deadline:
            for each in living:
                each.signal_group(signal.SIGKILL)
    return first


@contextmanager
def _collecting_signals(copies: Copies) -> Iterator[list[int]]:
    """Within the block, collect signals and wake the loop, instead of ending this process."""
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)
        copies.wake()

    mine = [number for number in _PASSED_ON if _is_handled(number)]
    before = {number: signal.signal(number, on_signal) for number in mine}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_handled(number: int) -> bool:
    """Return whether to handle a signal: one that is ignored (nohup) stays so, for workers too.

    In an experiment this may be a rank's process, in which SIGINT only interrupts its kernel.
    """
    handler = signal.getsignal(number)
    if number == signal.SIGINT:
        return handler in (signal.SIG_DFL, signal.default_int_handler)
    return handler is not signal.SIG_IGN


def _report(
    name: str, first: _Started, num: int, asked: int | None, run: RunLayout | None
) -> None:
    """Report the first failure, once all have ended."""
    rank, code = first.worker.rank, first.process.returncode
    if asked is not None:
        complain(f"{name}: ended after {signal.Signals(asked).name}")
        return
    if rank is None:
        complain(f"{name}: {Path(first.worker.argv[0]).name} {describe(code)}")
        return
    others = {1: "", 2: "; the other was ended"}.get(num, f"; the other {num - 1} were ended")
    which = "the first failure: " if num > 1 else ""
    complain(f"{name}: {which}rank {rank} {describe(code)}{others}")
    if run is not None and first.worker.output is not None:
        journal_failure(run, rank, f"rank {rank} {describe(code)}")
    elif first.tail is not None and num > 1:  # the lines of the others may follow its own
        for line in first.tail.lines():
            complain(f"  [rank={rank}] {line}")
