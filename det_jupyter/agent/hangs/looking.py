"""Looks at ranks that seem to stand still: their stacks, and the flight recorders of torch.

a thread of the rank writes both, if its interpreter runs
else a handler in C writes the stacks on a signal, which is sent only to processes that have the
    handler, and once while they stand still, since a signal may end a wait of a C library
in any case the function of the kernel that the main thread waits in is read
"""

from __future__ import annotations

import linecache
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from det_jupyter.agent.hangs.process_facts import catches, is_traced, kernel_wait
from det_jupyter.agent.hangs.recorder import Recorded, pending, read_recorder
from det_jupyter.agent.hangs.stacks import (
    Frame,
    Place,
    collective_of,
    find_place,
    is_backward,
    is_debugged,
    is_users,
    main_thread,
    stack_text,
)
from det_jupyter.agent.hangs.stall_watch import Look
from det_jupyter.agent.runs.run import Run
from det_jupyter.contract.run.evidence_page import EvidencePage, RankEvidence

_STACKS_S = 1.0  # for the stacks of a process
_SETTLED_S = 0.03  # a file of stacks is complete if it has not grown for so long
_RECORDER_S = 1.6  # a little longer than from one beat of a rank to the next
_POLL_S = 0.01
_MOST_CHILDREN = 8
_NATIVE_S = 5.0
_OF_LOADERS = "/torch/utils/data/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A rank as a look has found it."""

    pid: int
    frames: list[Frame] = field(default_factory=list)  # of its main thread, innermost first
    recorded: list[Recorded] = field(default_factory=list)
    kernel: str = ""  # the function of the kernel that it waits in
    is_traced: bool = False

    def look(self, *, spins: bool) -> Look:
        """Return what stall_watch.py needs of it."""
        open_one = pending(self.recorded) if spins else None
        # On CUDA the main thread is in the backward pass while another compiles or computes it.
        is_of_stack = bool(collective_of(self.frames)) and not (spins and is_backward(self.frames))
        frames = tuple(self.frames)
        return Look(
            position=frames or self.kernel,
            waits=is_of_stack or open_one is not None,
            entered=open_one,
            is_debugged=self.is_traced or is_debugged(self.frames),
        )


class Looker:
    """Looks at the ranks of a run here. Blocks; used by one thread at a time."""

    def __init__(self, run: Run, page: EvidencePage) -> None:
        self._run = run
        self._page = page
        # By rank: process and beats at the last signal, and the stack that it wrote.
        self._signalled: dict[int, tuple[tuple[int, int], list[Frame]]] = {}

    def look(self, pids: Mapping[int, int]) -> dict[int, Seen]:
        """Return each rank as it is now.

        Args:
            pids: Of each rank that is not stopped.
        """
        for rank in pids:
            self._page.set(rank, "wanted", self._page.get(rank, "answered") + 1)
        deadline = time.monotonic() + _RECORDER_S
        while any(map(self._is_open, pids)) and time.monotonic() < deadline:
            time.sleep(5 * _POLL_S)
        seen = {}
        for rank, pid in pids.items():
            data, frames = b"", list[Frame]()
            beats, signalled = self._page.get(rank, "beats"), self._signalled.get(rank)
            if beats and not self._is_open(rank):
                with suppress(OSError):
                    data = self._run.dir.recorder(rank).read_bytes()
                frames = main_thread(self._read_stacks(rank))
            elif signalled is not None and signalled[0] == (pid, beats):
                frames = signalled[1]
            else:
                frames = main_thread(self._signal(rank, pid))
                self._signalled[rank] = ((pid, beats), frames)
            seen[rank] = Seen(
                pid=pid,
                frames=frames,
                recorded=read_recorder(data) if data else [],
                kernel=kernel_wait(pid),
                is_traced=is_traced(pid),
            )
        return seen

    def _is_open(self, rank: int) -> bool:
        """Return whether a rank, which answers requests, has not answered the last one."""
        if not self._page.get(rank, "beats"):
            return False
        return self._page.get(rank, "wanted") != self._page.get(rank, "answered")

    def _signal(self, rank: int, pid: int) -> str:
        """Return the stacks that a process writes on the signal; "" if it has no handler.

        Args:
            rank: Into whose file it writes.
            pid: Of the rank, or of a process that it has forked.
        """
        number, path = self._page.get(rank, "signal"), self._run.dir.stacks(rank)
        try:
            if not (0 < number < 65 and catches(pid, number)):
                return ""
            os.truncate(path, 0)
            os.kill(pid, number)
        except OSError:
            return ""
        deadline = time.monotonic() + _STACKS_S
        size, settled_at = 0, deadline
        while time.monotonic() < min(deadline, settled_at):
            time.sleep(_POLL_S)
            with suppress(OSError):
                if (now := path.stat().st_size) != size:
                    size, settled_at = now, time.monotonic() + _SETTLED_S
        return self._read_stacks(rank)

    def _read_stacks(self, rank: int) -> str:
        try:
            return self._run.dir.stacks(rank).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def child_in(self, rank: int, children: Iterable[int], code: Code) -> str:
        """Return in which call of the user's a process of the rank's data loader is; or ""."""
        for pid in list(children)[:_MOST_CHILDREN]:
            frames = main_thread(self._signal(rank, pid))
            if any(is_users(frame, code.labels, code.folders) for frame in frames):
                place = code.place(frames)
                return f"(process {pid}) is in `{place.call}` ({place.place})"
        return ""


def waits_for_loader(frames: Sequence[Frame]) -> bool:
    """Return whether a thread is in torch's data loader."""
    return any(_OF_LOADERS in frame.file for frame in frames)


class Code:
    """The user's code of a run, for places in it."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """What to call the files of the captured code."""
        return self._run.labels() if self._run.plan.capsule.sources else {}

    @cached_property
    def folders(self) -> Sequence[str]:
        """The folders of the user's modules."""
        run = self._run
        return [str(run.plan.workplace(run.dir)), str(run.dir.path.parents[1] / "code")]

    @cached_property
    def _lines(self) -> Mapping[str, Sequence[str]]:
        return {name: text.splitlines() for name, text in self._run.cells().items()}

    def source(self, file: str, line: int) -> str:
        """Return a line of a file; "" if it is unknown."""
        if (lines := self._lines.get(file)) is not None:
            return lines[line - 1] if 0 < line <= len(lines) else ""
        linecache.checkcache(file)
        return linecache.getline(file, line)

    def place(self, frames: Sequence[Frame]) -> Place:
        """Return where a thread with these frames is."""
        return find_place(frames, self.labels, self.folders, self.source)

    def stack(self, frames: Sequence[Frame]) -> str:
        """Return a stack for a person."""
        return stack_text(frames, self.labels, self.source)


def native_stacks(pid: int) -> str:
    """Return the stacks of a process with its native frames, if py-spy is here and may read it."""
    beside = os.path.dirname(sys.executable)  # the environment may not be activated
    program = shutil.which("py-spy", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        return ""
    for options in (["--native"], []):
        with suppress(OSError, subprocess.SubprocessError):
            ended = subprocess.run(
                [program, "dump", "--pid", str(pid), *options],
                capture_output=True,
                text=True,
                timeout=_NATIVE_S,
                stdin=subprocess.DEVNULL,
            )
            if ended.returncode == 0:
                return ended.stdout[:20_000]
    return ""


def evidence_lines(evidence: RankEvidence, seen: Seen | None, kernel: str) -> list[str]:
    """Return in sentences what a look has found."""
    lines = []
    if seen is not None and seen.recorded:
        lines.append(f"flight recorder: {seen.recorded[-1]}")
    if evidence.entered:
        lines.append(f"collective {evidence.entered} of its Python code: {evidence.collective}")
    if evidence.sequence:
        lines.append(f"collectives of torch's default group: {evidence.sequence}")
    if evidence.exchanges:
        lines.append(f"collectives of the Core API: {evidence.exchanges}")
    if kernel:
        lines.append(f"its main thread waits in the kernel's {kernel}")
    return lines
