"""How long an agent waits for the ranks that save the last step of their gang."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.agent.runs import survivors
from det_jupyter.agent.runs.active_run import ActiveRun
from det_jupyter.agent.starting.rank_processes import RankExit
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run import control_page
from det_jupyter.contract.run.step_page import Phase, StepPage

KILLED = RankExit(1, -9)


@pytest.fixture
def active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ActiveRun:
    """Return a run whose rank 1 has ended, and whose rank 0 is this process."""
    monkeypatch.setattr(survivors, "_NOTICE_S", 0.15)
    return cast(
        ActiveRun,
        SimpleNamespace(
            run=SimpleNamespace(id="1.1.1", dir=RunDir(tmp_path)),
            gang=SimpleNamespace(pids={0: os.getpid(), 1: 2**30}),
            end_ordered=asyncio.Event(),
        ),
    )


def wait(active: ActiveRun, failed: RankExit = KILLED, *, end_after_s: float = 5.0) -> float:
    """Return for how long the agent waits; the end of the gang is ordered after some time."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(end_after_s, active.end_ordered.set)
        began = loop.time()
        await survivors.saved_by_survivors(active, failed)
        return loop.time() - began

    return asyncio.run(run())


def test_a_gang_without_pages_is_not_waited_for(active: ActiveRun) -> None:
    assert wait(active) < 0.1


@pytest.mark.parametrize("code", [None, 0, 1])
def test_only_a_signal_is_survived(active: ActiveRun, code: int | None) -> None:
    StepPage.create(active.run.dir.step(0), os.getpid()).close()
    assert wait(active, RankExit(1, code)) < 0.1


def test_a_rank_that_does_not_notice_is_waited_for_shortly_and_can_read_it(
    active: ActiveRun,
) -> None:
    StepPage.create(active.run.dir.step(0), os.getpid()).close()
    control_page.create_page(active.run.dir.control)
    assert 0.15 <= wait(active) < 5
    with closing(control_page.ControlPage(active.run.dir.control)) as page:
        assert page.is_killed()
        assert not page.is_parted()


@pytest.mark.parametrize(
    ("phase", "waits"),
    [
        (Phase.READY, True),
        (Phase.SAVING, True),
        (Phase.FAILED, False),
        (Phase.DONE, False),
    ],
)
def test_a_rank_that_saves_is_waited_for_until_the_end_is_ordered(
    active: ActiveRun, phase: Phase, *, waits: bool
) -> None:
    with closing(StepPage.create(active.run.dir.step(0), os.getpid())) as page:
        page.set_phase(phase, 3)
    waited_s = wait(active, end_after_s=0.4)
    assert waited_s >= 0.4 if waits else waited_s < 0.4


def test_once_one_has_saved_ranks_that_have_not_noticed_are_not_waited_for(
    active: ActiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survivors, "_NOTICE_S", 5.0)
    active.gang.pids[2] = os.getpid()
    StepPage.create(active.run.dir.step(0), os.getpid()).close()
    with closing(StepPage.create(active.run.dir.step(2), 2**30)) as page:
        page.set_phase(Phase.SAVED, 3)
    assert wait(active) < 0.4


def test_a_rank_that_has_ended_is_not_waited_for(active: ActiveRun) -> None:
    with closing(StepPage.create(active.run.dir.step(0), 2**30)) as page:
        page.set_phase(Phase.READY, 3)
    assert wait(active) < 0.1


@pytest.mark.parametrize(
    ("phase", "waits"), [(Phase.DONE, True), (Phase.SAVED, True), (Phase.FAILED, False)]
)
def test_a_rank_that_has_failed_because_of_others_is_survived(
    active: ActiveRun, phase: Phase, *, waits: bool
) -> None:
    for rank, of_rank in ((0, Phase.READY), (1, phase)):
        with closing(StepPage.create(active.run.dir.step(rank), os.getpid())) as page:
            page.set_phase(of_rank, 3)
    waited_s = wait(active, RankExit(1, 1), end_after_s=0.4)
    assert waited_s >= 0.4 if waits else waited_s < 0.4


def end_without_others(active: Any) -> list[str]:
    """End the part of a gang whose ranks elsewhere are gone; return what has happened in order."""
    happened = list[str]()
    control_page.create_page(active.run.dir.control)
    active.kill = lambda: happened.append("killed")
    active.ending = None

    async def run() -> None:
        survivors.end_part(active)
        survivors.end_part(active)
        await asyncio.sleep(0.05)
        with closing(control_page.ControlPage(active.run.dir.control)) as page:
            assert not page.is_killed()
            happened.append(f"parted: {page.is_parted()}")
        with closing(StepPage(active.run.dir.step(0))) as own:
            own.set_phase(Phase.SAVED, 3)
            happened.append("saved")
        await active.ending

    asyncio.run(run())
    return happened


def test_ranks_save_before_their_part_is_ended_because_of_others(active: Any) -> None:
    with closing(StepPage.create(active.run.dir.step(0), os.getpid())) as page:
        page.set_phase(Phase.READY, 3)
    assert end_without_others(active) == ["parted: True", "saved", "killed"]


def begin_checkpoint(
    active: ActiveRun, *, pid: int = os.getpid(), is_written: bool = False
) -> None:
    """Let a process of the gang write a checkpoint."""
    control_page.create_page(active.run.dir.control)
    with closing(control_page.ControlPage(active.run.dir.control)) as page:
        page.note_draft(control_page.OpenDraft(pid, is_written))


@pytest.mark.parametrize("code", [-9, 1])
@pytest.mark.parametrize("phase", [None, Phase.TRAINING, Phase.DONE, Phase.FAILED])
def test_a_checkpoint_that_is_written_is_waited_for_in_any_gang(
    active: ActiveRun, code: int, phase: Phase | None
) -> None:
    begin_checkpoint(active)
    if phase is not None:
        with closing(StepPage.create(active.run.dir.step(0), os.getpid())) as page:
            page.set_phase(phase)
    assert wait(active, RankExit(1, code), end_after_s=0.4) >= 0.4


def test_ranks_have_a_moment_to_finish_a_checkpoint_whose_files_are_written(
    active: ActiveRun,
) -> None:
    begin_checkpoint(active, is_written=True)
    assert 0.15 <= wait(active) < 5


def test_a_checkpoint_of_a_rank_that_has_ended_is_not_waited_for(active: ActiveRun) -> None:
    begin_checkpoint(active, pid=2**30)
    assert wait(active) < 0.1


@pytest.mark.parametrize("moves", [True, False])
def test_a_slow_checkpoint_has_no_limit_while_bytes_are_read_or_written(
    active: ActiveRun, monkeypatch: pytest.MonkeyPatch, *, moves: bool
) -> None:
    monkeypatch.setattr(survivors, "SAVE_S", 0.2)
    grown = count(0, 1 << 21 if moves else 1)
    monkeypatch.setattr(survivors, "_io_bytes", lambda pid: next(grown))
    begin_checkpoint(active)
    waited_s = wait(active, end_after_s=1.0 if moves else 5.0)
    assert waited_s >= 1.0 if moves else 0.2 <= waited_s < 5.0


def test_the_files_of_an_older_checkpoint_do_not_end_the_wait_for_the_last_step(
    active: ActiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survivors, "SAVE_S", 0.2)
    grown = count(0, 1 << 21)
    monkeypatch.setattr(survivors, "_io_bytes", lambda pid: next(grown))
    begin_checkpoint(active, is_written=True)
    with closing(StepPage.create(active.run.dir.step(0), os.getpid())) as page:
        page.set_phase(Phase.SAVING, 4)
        assert wait(active, end_after_s=1.0) >= 1.0


def test_bytes_of_a_process_are_counted() -> None:
    before = survivors._io_bytes(os.getpid())
    with open(os.devnull, "wb", buffering=0) as file:
        file.write(bytes(1 << 16))
    assert survivors._io_bytes(os.getpid()) >= before + (1 << 16)
    assert survivors._io_bytes(2**30) == 0
