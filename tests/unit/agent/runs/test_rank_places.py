"""What an agent reads of where ranks are, and when it reports it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from det_jupyter.agent.runs import rank_places
from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.rank_places import WatchedGang, watch_places
from det_jupyter.agent.runs.run import AgentRun, new_run
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages.leaving import RankProgress
from det_jupyter.contract.run.control_page import ControlPage, create_page
from tests.integration.agent_support import make_plan


@pytest.fixture
def page(tmp_path: Path) -> Iterator[ControlPage]:
    create_page(tmp_path / "control")
    page = ControlPage(tmp_path / "control")
    yield page
    page.close()


@pytest.fixture
def run(tmp_path: Path) -> AgentRun:
    return new_run(make_plan("1.1.1", []), sockets=tmp_path)


def test_places_are_known_since_they_changed_and_reported_once_it_was_asked_to_leave(
    page: ControlPage, run: AgentRun
) -> None:
    gang = WatchedGang()
    for rank in (0, 1):
        page.batch_writer(rank)(119)
    page.exchange_writer(0)(119)
    assert not gang.read(run, page, now=100.0, monotonic=0.0)
    assert not gang.read(run, page, now=130.0, monotonic=30.0)
    page.raise_signal("preempt")
    assert gang.read(run, page, now=140.0, monotonic=40.0)
    assert run.seen is not None
    assert run.seen.places == {
        0: RankProgress(batch=118, is_exchanging=True, since=100.0),
        1: RankProgress(batch=118, since=100.0),
    }
    assert (run.seen.checked_at, run.seen.saving_since) == (None, None)


def test_the_first_check_of_an_elastic_trial_is_reported(page: ControlPage, run: AgentRun) -> None:
    gang = WatchedGang()
    page.check("preempt")
    assert not gang.read(run, page, now=100.0, monotonic=10.0)
    sizes = {"resources": {"slots_per_trial": {"min": 1, "max": 2}}}
    run.plan = run.plan.model_copy(update={"config": sizes})
    assert gang.read(run, page, now=101.0, monotonic=11.0)
    assert run.seen is not None
    assert run.seen.checked_at is not None
    assert not gang.read(run, page, now=110.0, monotonic=20.0)


def test_only_changes_are_reported_and_not_more_often_than_every_two_seconds(
    page: ControlPage, run: AgentRun
) -> None:
    gang = WatchedGang()
    page.raise_signal("preempt")
    assert gang.read(run, page, now=100.0, monotonic=0.0)
    run.is_seen_sent = True
    assert not gang.read(run, page, now=110.0, monotonic=10.0)
    assert run.is_seen_sent
    page.batch_writer(1)(5)
    assert gang.read(run, page, now=111.0, monotonic=11.0)
    assert not run.is_seen_sent
    page.batch_writer(1)(6)
    assert not gang.read(run, page, now=112.0, monotonic=12.0)
    page.note_saving()
    assert gang.read(run, page, now=115.0, monotonic=15.0)
    assert run.seen is not None
    assert run.seen.places[1] == RankProgress(batch=5, since=112.0)
    assert run.seen.saving_since is not None


def test_the_pages_of_living_gangs_are_read_and_news_of_any_are_told(
    run: AgentRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_places, "_READ_S", 0.0)
    folder = tmp_path / "1.1.1"
    folder.mkdir()
    create_page(folder / "control")
    run = AgentRun(plan=run.plan, dir=RunDir(folder), sockets=tmp_path)
    gone = AgentRun(plan=make_plan("2.1.1", []), dir=RunDir(tmp_path / "gone"), sockets=tmp_path)
    reads = count()

    def living() -> list[LivingGang]:
        next(reads)
        return [LivingGang(gone, {}), LivingGang(run, {})]

    async def act() -> None:
        news = asyncio.Event()
        task = asyncio.create_task(watch_places(living, news))
        while next(reads) < 12:
            await asyncio.sleep(0)
        assert not news.is_set()
        run.raise_signal("preempt")
        await news.wait()
        task.cancel()

    asyncio.run(act())
    assert run.seen is not None
    assert sorted(run.seen.places) == [0, 1]
    assert run.seen.at > run.seen.places[0].since > 0  # it was seen before it was asked to leave


def test_a_gang_that_takes_long_to_leave_is_reported_more_and_more_rarely(
    page: ControlPage, run: AgentRun
) -> None:
    gang, reported = WatchedGang(), list[float]()
    page.raise_signal("preempt")
    for quarter in range(160):
        page.batch_writer(0)(quarter)
        seconds = quarter / 4
        if gang.read(run, page, now=1000.0 + seconds, monotonic=50.0 + seconds):
            reported.append(seconds)
    assert reported == [0.0, 2.0, 5.0, 9.5, 16.25, 26.25, 36.25]
