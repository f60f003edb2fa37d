"""What a launcher reports of a worker that failed: once, and only if it has not done so itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.journal import RankFailure, RankStarted, parse_line, to_line
from det_jupyter.launch.computers import RunLayout
from det_jupyter.launch.workers import describe, journal_failure


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "failed with exit code 0"),
        (3, "failed with exit code 3"),
        (-9, "was killed by SIGKILL"),
        (-15, "was killed by SIGTERM"),
    ],
)
def test_how_a_process_ended(code: int, text: str) -> None:
    assert describe(code) == text


def run_in(folder: Path) -> RunLayout:
    return cast(RunLayout, SimpleNamespace(folder=RunDir(folder)))


def failures(folder: Path, rank: int = 1) -> list[Any]:
    lines = RunDir(folder).journal(rank).read_text().splitlines()
    return [each for each in map(parse_line, lines) if isinstance(each, RankFailure)]


def test_a_rank_that_wrote_nothing_gets_a_record_with_what_it_printed(tmp_path: Path) -> None:
    RunDir(tmp_path).output(1).write_text("loading\nout of memory\n")
    journal_failure(run_in(tmp_path), 1, "was killed by SIGKILL")
    [found] = failures(tmp_path)
    assert (found.rank, found.error) == (1, "was killed by SIGKILL")
    assert found.traceback == "It printed at last:\nloading\nout of memory\n"


@pytest.mark.parametrize("printed", [None, "", " \n\n"])
def test_a_rank_that_printed_nothing_has_no_traceback(tmp_path: Path, printed: str | None) -> None:
    if printed is not None:
        RunDir(tmp_path).output(1).write_text(printed)
    journal_failure(run_in(tmp_path), 1, "no")
    assert [each.traceback for each in failures(tmp_path)] == [""]


def test_the_rank_s_own_record_is_the_one_that_counts(tmp_path: Path) -> None:
    own = RankFailure(at=1.0, rank=1, error="ValueError: no", traceback="")
    RunDir(tmp_path).journal(1).write_text(to_line(own))
    journal_failure(run_in(tmp_path), 1, "failed with exit code 1")
    journal_failure(run_in(tmp_path), 2, "failed with exit code 1")
    assert failures(tmp_path) == [own]
    assert len(failures(tmp_path, rank=2)) == 1


def test_a_failure_is_found_behind_a_long_journal(tmp_path: Path) -> None:
    started = to_line(RankStarted(at=1.0, pid=1, backend="gloo", device="cpu"))
    own = RankFailure(at=1.0, rank=1, error="ValueError: no", traceback="")
    lines = started * (300_000 // len(started)) + to_line(own)
    RunDir(tmp_path).journal(1).write_text(lines)
    journal_failure(run_in(tmp_path), 1, "failed with exit code 1")
    assert failures(tmp_path) == [own]
