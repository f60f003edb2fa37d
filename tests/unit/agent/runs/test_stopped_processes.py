"""Processes of ranks that are stopped: whose they are, and when that is told."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from det_jupyter.agent.runs import stopped_processes as module
from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.runs.stopped_processes import report_stopped
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.journal import Notice, parse_line
from tests.integration.agent_support import make_plan


class Over(Exception):
    """There is nothing more to look at."""


def told(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    looks: list[set[int]],
    *,
    environ: Any = None,
    group: int = 0,
) -> list[Notice]:
    """Return what is told of a gang with the ranks 1 and 2 after looks that find these stopped."""
    run = AgentRun(
        plan=make_plan("1.1.1", [], slots=3), dir=RunDir(folder), sockets=None, ranks=[1, 2]
    )
    remaining = list(looks)
    stopped = set[int]()

    def living() -> list[LivingGang]:
        if not remaining:
            raise Over
        stopped.clear()
        stopped.update(remaining.pop(0))
        return [LivingGang(run, {1: 101, 2: 102})]

    def find(run_dir: RunDir, pids: list[int]) -> list[Any]:
        assert run_dir == run.dir
        return [SimpleNamespace(pid=pid, environ=environ or dict) for pid in pids]

    monkeypatch.setattr(module, "_CHECK_S", 0.0)
    monkeypatch.setattr(psutil, "pids", lambda: [7, 8, 9])
    monkeypatch.setattr(module, "is_frozen", lambda pid: pid in stopped)
    monkeypatch.setattr(module, "processes_of", find)
    monkeypatch.setattr(os, "getpgid", lambda pid: group)
    with pytest.raises(Over):
        asyncio.run(report_stopped(living))
    notices = []
    for rank in range(3):
        if (journal := run.dir.journal(rank)).exists():
            lines = map(parse_line, journal.read_text().splitlines())
            notices += [line for line in lines if isinstance(line, Notice)]
            assert {line.rank for line in notices[-1:]} == {rank}
    return notices


@pytest.mark.parametrize(
    ("looks", "pids"),
    [
        ([{7}, set(), {7}], []),  # traced, for an instant
        ([{7}, {7}, {7}, {7}], [7]),
        ([{7}, {7}, set(), {7}, {7}], [7, 7]),  # it was stopped again
        ([{7}, {7, 8}, {8, 9}], [7, 8]),
    ],
)
def test_a_process_that_two_looks_find_stopped_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, looks: list[set[int]], pids: list[int]
) -> None:
    texts = [notice.text.split()[1] for notice in told(monkeypatch, tmp_path, looks)]
    assert texts == list(map(str, pids))


def gone() -> dict[str, str]:
    raise psutil.NoSuchProcess(7)


@pytest.mark.parametrize(
    ("environ", "group", "rank"),
    [
        (dict, 102, 2),
        (dict, 999, 1),
        (lambda: {"RANK": "2"}, 101, 2),
        (lambda: {"RANK": "0"}, 101, 0),
        (lambda: {"RANK": "12"}, 101, 2),  # which no rank here is
        (lambda: {"RANK": "x"}, 102, 2),
        (gone, 102, 1),
    ],
)
def test_a_stopped_process_is_told_in_the_journal_of_its_rank(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environ: Any, group: int, rank: int
) -> None:
    (notice,) = told(monkeypatch, tmp_path, [{7}, {7}], environ=environ, group=group)
    assert notice.rank == rank
    assert notice.text.startswith(f"process 7 of rank {rank} is stopped, ")
    assert "`kill -CONT 7`" in notice.text


def test_a_notice_that_cannot_be_written_is_logged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "removed"
    assert told(monkeypatch, folder, [{7}, {7}]) == []
    assert "allocation=1.1.1: the notice cannot be written: " in caplog.text
