"""Reads the stacks and torch's flight recorders of ranks that make no progress.

No signal is sent: it would interrupt system calls of C libraries (poll, epoll, nanosleep), and not
every library handles that. The stacks of a rank come from, in this order:

    a thread of the rank, if its interpreter runs. It writes the flight recorder, too. Processes
        that the rank has forked by multiprocessing (torch's data loader) have such a thread, too
    py-spy, if it is installed and permitted, which reads the rank's memory without stopping it
    nothing; then no stack is known until the rank can answer

The kernel function in which the main thread waits is always read.
"""

from __future__ import annotations

import json
import linecache
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from det_jupyter.agent.hangs.process_facts import is_traced, kernel_wait, state_of
from det_jupyter.agent.hangs.recorder import Recorded, pending, read_recorder
from det_jupyter.agent.hangs.stacks import (
    Frame,
    Place,
    collective_of,
    find_place,
    is_backward,
    is_debugged,
    is_user_frame,
    main_thread,
    stack_text,
)
from det_jupyter.agent.hangs.stall_watch import Look
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.messages.hangs import stopped_text
from det_jupyter.contract.run.evidence_page import EvidencePage, RankEvidence

_ANSWER_S = 1.6  # a little longer than the interval between a rank's beats
_POLL_S = 0.05
_MOST_CHILDREN = 8
_PY_SPY_S = 5.0
_OF_LOADERS = "/torch/utils/data/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The state of a rank that a look has found."""

    pid: int
    frames: list[Frame] = field(default_factory=list)  # of its main thread, innermost first
    recorded: list[Recorded] = field(default_factory=list)
    kernel: str = ""  # the function of the kernel that it waits in
    is_traced: bool = False
    is_answered: bool = True  # whether its stack is known, as far as that is possible

    def look(self, is_user_frame: Callable[[Frame], bool], *, spins: bool) -> Look:
        """Return the part of it that stall_watch.py needs."""
        open_one = pending(self.recorded) if spins else None
        # On CUDA the main thread is in the backward pass while another compiles or computes it.
        is_of_stack = bool(collective_of(self.frames)) and not (spins and is_backward(self.frames))
        # A polling loop is found at varying lines of libraries, below one line of the user's code.
        users = [n for n, frame in enumerate(self.frames) if is_user_frame(frame)]
        frames = tuple(self.frames[users[0] if users else 0 :])
        return Look(
            position=frames or self.kernel,
            waits=is_of_stack or open_one is not None,
            entered=open_one,
            is_debugged=self.is_traced or is_debugged(self.frames),
            is_answered=self.is_answered,
        )


class Looker:
    """Looks at the ranks of a run here. Blocks; used by one thread at a time."""

    def __init__(self, run: AgentRun, page: EvidencePage) -> None:
        self._run = run
        self._page = page
        # By rank: process and beats when it did not answer, and what py-spy has read.
        self._spied: dict[int, tuple[tuple[int, int], list[Frame]]] = {}

    def look(self, pids: Mapping[int, int]) -> dict[int, Seen]:
        """Return the present state of each rank.

        Args:
            pids: The pid of each rank that is not stopped, by rank.
        """
        for rank in pids:
            self._page.set(rank, "wanted", self._page.get(rank, "answered") + 1)
        _wait_while(lambda: any(map(self._is_open, pids)))
        seen = {}
        for rank, pid in pids.items():
            data, frames = b"", list[Frame]()
            beats, is_open = self._page.get(rank, "beats"), self._is_open(rank)
            if beats and not is_open:
                with suppress(OSError):
                    data = self._run.dir.recorder(rank).read_bytes()
                frames = main_thread(_text_of(self._run.dir.stacks(rank)))
            else:
                if self._spied.get(rank, (None,))[0] != (pid, beats):
                    self._spied[rank] = (pid, beats), spied_stack(pid)
                frames = self._spied[rank][1]
            seen[rank] = Seen(
                pid=pid,
                frames=frames,
                recorded=read_recorder(data) if data else [],
                kernel=kernel_wait(pid, pid),
                is_traced=is_traced(pid),
                is_answered=not is_open or bool(frames),
            )
        return seen

    def _is_open(self, rank: int) -> bool:
        """Return whether a rank that can answer requests has not answered the last one yet."""
        if not self._page.get(rank, "beats"):
            return False
        return self._page.get(rank, "wanted") != self._page.get(rank, "answered")

    def child_in(self, rank: int, children: Iterable[int], code: UserCode) -> str:
        """Return where a process of the rank's data loader hangs; "" if none is found."""
        pids = list(children)[:_MOST_CHILDREN]
        for pid in pids:
            with suppress(OSError):  # it has ended
                if state_of(pid) in "Tt":
                    return f"(process {pid}) is {stopped_text(pid)}"
        files = {pid: self._run.dir.stacks(rank, pid) for pid in pids}
        for path in files.values():
            path.unlink(missing_ok=True)
        self._page.set(rank, "children", self._page.get(rank, "children") + 1)
        _wait_while(lambda: not all(path.exists() for path in files.values()))
        for pid, path in files.items():
            frames = main_thread(_text_of(path)) or spied_stack(pid)
            path.unlink(missing_ok=True)
            if any(map(code.contains, frames)):
                place = code.place(frames)
                return f"(process {pid}) is in `{place.call}` ({place.place})"
        return ""


def _wait_while(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _ANSWER_S
    while holds() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def waits_for_loader(frames: Sequence[Frame]) -> bool:
    """Return whether a thread is in torch's data loader."""
    return any(_OF_LOADERS in frame.file for frame in frames)


class UserCode:
    """The user's code of a run: distinguishes its frames from others, and names its places."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Names that are shown for the files of the captured code, by file name."""
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

    def contains(self, frame: Frame) -> bool:
        """Return whether a frame is of the user's code."""
        return is_user_frame(frame, self.labels, self.folders)

    def place(self, frames: Sequence[Frame]) -> Place:
        """Return where a thread with these frames is."""
        return find_place(frames, self.labels, self.folders, self.source)

    def stack(self, frames: Sequence[Frame]) -> str:
        """Return a stack as text for users."""
        return stack_text(frames, self.labels, self.source)


def spied_stack(pid: int) -> list[Frame]:
    """Return the frames of a process's main thread; [] if py-spy is not here or may not read it.

    py-spy reads the memory of the process, which is neither stopped nor woken.
    """
    try:
        threads = json.loads(spy(pid, "--json"))
        main = next((each for each in threads if each["os_thread_id"] == pid), None)
        frames = main["frames"] if main is not None else []
        return [Frame(each["filename"], each["line"], each["name"]) for each in frames]
    except (ValueError, KeyError, TypeError):
        return []


def spy(pid: int, *options: str) -> str:
    """Return py-spy's output for a process; "" if it is not installed, or may not read it."""
    beside = os.path.dirname(sys.executable)  # the environment may not be activated
    program = shutil.which("py-spy", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        ended = subprocess.run(
            [program, "dump", "--nonblocking", "--pid", str(pid), *options],
            capture_output=True,
            text=True,
            timeout=_PY_SPY_S,
            stdin=subprocess.DEVNULL,
        )
        return ended.stdout if ended.returncode == 0 else ""
    return ""


def evidence_lines(evidence: RankEvidence, seen: Seen | None, kernel: str) -> list[str]:
    """Describe what a look has found, in sentences."""
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
