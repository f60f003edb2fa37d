"""What is read of a process in /proc, and what is said where the kernel tells less."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.agent.sampler import rank_tree
from det_jupyter.agent.sampler.rank_tree import (
    NO_CHILDREN,
    NO_PERMISSION,
    NO_WAITS,
    NOT_COUNTED,
    ProcessUsage,
    ProcFiles,
    children_of_threads,
)

PID = 7
STAT = (
    "7 (a b) c) {state} 1 7 7 0 -1 0 10 11 12 13 {user} {system} 16 17 20 0 {threads} 0 99 999 "
    "{pages} 5"
)
CONTENT = {
    "stat": STAT.format(state="S", user=250, system=125, threads=3, pages=1000),
    "io": "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 500\nwrite_bytes: 600\n",
    "schedstat": "1 2500000000 3\n",
    f"task/{PID}/children": "12 13 \n",
}


class Proc:
    """The folder of one process; a file may have an error instead of content."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.errors: dict[str, OSError] = {}
        self.opened: set[int] = set()
        self._folder, self._close = folder, os.close
        for name, text in CONTENT.items():
            self.write(name, text)
        monkeypatch.setattr(rank_tree, "_open", self._open)
        monkeypatch.setattr(os, "close", self._note_closed)
        monkeypatch.setattr(rank_tree, "_TICKS_PER_S", 100)
        monkeypatch.setattr(rank_tree, "_PAGE_BYTES", 4096)

    def write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _open(self, pid: int, name: str) -> int:
        assert pid == PID
        if name in self.errors:
            raise self.errors[name]
        found = os.open(self._folder / name, os.O_RDONLY)
        self.opened.add(found)
        return found

    def _note_closed(self, descriptor: int) -> None:
        self.opened.discard(descriptor)
        self._close(descriptor)


@pytest.fixture
def proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Proc]:
    made = Proc(monkeypatch, tmp_path)
    yield made
    assert not made.opened


def test_a_process_is_read_as_the_kernel_shows_it_now(proc: Proc) -> None:
    files = ProcFiles(PID)
    assert files.usage() == ProcessUsage(cpu_s=3.75, rss_bytes=4096000, num_threads=3)
    assert (files.disk_bytes(), files.core_wait_s()) == ((500, 600), 2.5)
    assert files.children() == [12, 13]
    proc.write("schedstat", "1 3000000000 3\n")
    proc.write(f"task/{PID}/children", "")
    assert (files.core_wait_s(), files.children()) == (3.0, [])
    for state in "ZX":
        text = STAT.format(state=state, user=1, system=1, threads=1, pages=0)
        proc.write("stat", text)
        assert files.usage() is None
    assert (files.io_problem, files.wait_problem, files.children_problem) == ("", "", "")
    files.close()


@pytest.mark.parametrize(
    ("name", "error", "problems"),
    [
        ("io", PermissionError(), (NO_PERMISSION, "", "")),
        ("io", FileNotFoundError(), (NOT_COUNTED, "", "")),
        ("schedstat", FileNotFoundError(), ("", NO_WAITS, "")),
        (f"task/{PID}/children", FileNotFoundError(), ("", "", NO_CHILDREN)),
    ],
)
def test_what_the_kernel_does_not_tell_has_a_reason(
    proc: Proc, name: str, error: OSError, problems: tuple[str, str, str]
) -> None:
    proc.errors[name] = error
    files = ProcFiles(PID)
    for _ in range(2):
        assert files.disk_bytes() == (None if problems[0] else (500, 600))
        assert files.core_wait_s() == (None if problems[1] else 2.5)
        assert files.children() == ([] if problems[2] else [12, 13])
    assert (files.io_problem, files.wait_problem, files.children_problem) == problems
    files.close()


def test_disk_use_that_may_be_read_no_more_has_a_reason(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ProcFiles(PID)

    def refuse(*_: object) -> bytes:
        raise PermissionError

    monkeypatch.setattr(os, "pread", refuse)
    assert [files.disk_bytes(), files.disk_bytes()] == [None, None]
    assert files.io_problem == NO_PERMISSION
    files.close()


def test_a_process_that_is_gone_has_no_files_and_no_children(proc: Proc) -> None:
    proc.errors["stat"] = FileNotFoundError()
    with pytest.raises(FileNotFoundError):
        ProcFiles(PID)
    assert children_of_threads(2**22 + 1) == []
