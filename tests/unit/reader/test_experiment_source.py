"""The view state of an experiment: what of it is kept, when it is stale, and when it is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.documents.patches import changes
from det_jupyter.contract.messages import Delete, ImportanceView, Pause, Reason
from det_jupyter.errors import NotFound
from det_jupyter.master.machine.model.events import ExperimentDeleted
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.views.wait_reasons import WaitReasons
from det_jupyter.reader.experiment_source import ExperimentSource, FollowedExperiment
from tests.unit.master.machine_world import (
    completed,
    exited,
    failed,
    reached,
    registered,
    running,
    saved,
    submitted,
    validated,
)
from tests.unit.reader.reader_world import World, losses, progress, validation
from tests.unit.reader.reader_world import world as open_world
from tests.unit.reader.test_replica_histories import Tab, state_from_scratch
from tests.waiting import wait_until

SEARCHER = {
    "name": "random", "metric": "error", "max_length": {"batches": 100}, "max_trials": 3,
    "max_concurrent_trials": 1,
}  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as made:
        yield made


@pytest.fixture
def tab(world: World) -> Tab:
    """A page that follows an experiment from its submission on."""
    world.tell(registered(2), submitted())
    opened = Tab(world, 1)
    world.replica.turn()
    return opened


def check(world: World, *tabs: Tab) -> None:
    """Have the replica read; assert that pages show what there is."""
    world.replica.turn()
    for tab in tabs:
        tab.update()
        assert tab.made == state_from_scratch(world, 1)


def points(tab: Tab) -> dict[str, list[int]]:
    assert tab.made is not None
    return {
        chart["title"]: series["steps"]
        for chart in tab.made["charts"]
        for series in chart["series"]
    }


def test_a_page_shows_what_there_is_whatever_happens(world: World, tab: Tab) -> None:
    check(world, tab)
    world.tell(*running())
    check(world, tab)
    world.report(losses(1, 0.9, 0.8, 0.7), progress(3))
    check(world, tab)
    world.report(validation(3, 0.5), losses(4, 0.6, 0.5), progress(5))
    check(world, tab)
    world.tell(saved(3))
    check(world, tab)
    assert points(tab) == {"loss": [1, 2, 3, 4, 5], "error": [3]}
    world.tell(failed(), exited(codes={0: 1, 1: 1}))  # it starts again from the checkpoint
    check(world, tab)
    assert points(tab)["loss"] == [1, 2, 3]
    late = Tab(world, 1)
    world.tell(*running("1.1.2"))
    world.report(losses(4, 0.4), validation(4, 0.4), run="1.1.2")
    check(world, tab, late)
    assert points(tab) == {"loss": [1, 2, 3, 4], "error": [3, 4]}
    world.tell(*completed(allocation_id="1.1.2"), exited("1.1.2"))
    check(world, tab, late)
    assert tab.made is not None
    assert tab.made["status"] == "completed"
    assert tab.source.max_age_s is None, "nothing comes after the end"


def test_reasons_of_a_queue_are_made_once_for_all_who_see_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    make = WaitReasons._make

    def noted(reasons: WaitReasons, trial: Trial) -> Reason:
        asked.append(trial.id)
        return make(reasons, trial)

    monkeypatch.setattr(WaitReasons, "_make", noted)
    world.tell(registered(2), *(submitted() for _ in range(4)))
    replica = world.open_replica(recent_s=1.0)
    replica.advance()
    followed = [FollowedExperiment(replica, number) for number in (2, 3, 4)]
    for num_made in (1, 2):
        assert all(each.state(None)["status"] == "queued" for each in followed)
        assert sorted(asked) == sorted([2, 3, 4] * num_made)
        world.now += 1.0  # estimates are of the time


def test_trials_that_are_over_are_made_anew_only_if_they_have_changed(world: World) -> None:
    world.tell(registered(2), submitted(searcher=SEARCHER))
    tab = Tab(world, 1)
    check(world, tab)
    for number in (1, 2):
        run = f"1.{number}.1"
        world.tell(*running(run))
        world.report(losses(1, 0.5), validation(100, 0.1 * number), run=run)
        world.tell(saved(100, f"of{number}", run), *completed(allocation_id=run), exited(run))
        check(world, tab)
    first, second = tab.followed._trials[1], tab.followed._trials[2]
    assert first.state.is_terminal
    world.tell(*running("1.3.1"))
    check(world, tab)
    assert tab.followed._trials[1] is first
    with world.service._transaction() as transaction:
        transaction.progress.advance(1, 120)
    check(world, tab)
    assert tab.followed._trials[1].steps_completed == 120
    assert tab.followed._trials[2] is second


def test_of_a_search_the_rows_that_have_changed_are_sent(world: World) -> None:
    world.tell(registered(2), submitted(searcher=SEARCHER | {"max_concurrent_trials": 3}))
    tab = Tab(world, 1)
    check(world, tab)
    before = tab.made
    assert before is not None
    world.tell(*running("1.1.1"))
    world.report(progress(50))
    check(world, tab)
    assert tab.made is not None
    paths = {each["path"] for each in changes(before, tab.made)}
    rows = {"/".join(path.split("/")[:4]) for path in paths if path.startswith("/search/rows")}
    assert rows == {"/search/rows/0"}


def test_curves_are_read_once_and_then_continued(
    world: World, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.tell(*running())
    world.report(losses(1, 0.9))
    check(world, tab)
    monkeypatch.setattr(world.replica, "curves", None)
    world.report(losses(2, 0.8))
    check(world, tab)
    tab.source.start(lambda: None)  # another page
    world.report(losses(3, 0.7))
    check(world, tab)
    assert points(tab)["loss"] == [1, 2, 3]


def test_what_came_without_pages_is_made_when_one_is_there_again(world: World, tab: Tab) -> None:
    world.tell(*running(), reached(), *completed(), exited())
    check(world, tab)
    tab.stop()
    world.tell(Delete(experiment_id=1), ExperimentDeleted(experiment_id=1, error="disk"))
    world.report(progress(120))
    world.replica.turn()
    stale: list[int] = []
    stop = tab.source.start(lambda: stale.append(1))
    assert tab.source.make() is None, "the replica has not read what came meanwhile"
    world.replica.turn()
    assert stale == [1]
    check(world, tab)
    stop()


def test_a_page_that_is_opened_at_once_waits_for_the_first_read(world: World) -> None:
    world.tell(submitted())
    source = ExperimentSource(FollowedExperiment(world.replica, 1), None)
    stale: list[int] = []
    source.start(lambda: stale.append(1))
    assert source.make() is None
    world.replica.turn()
    assert stale == [1]
    made = source.make()
    assert made is not None
    assert made["name"] == "digits"


def test_what_was_submitted_just_now_is_found(world: World) -> None:
    source = ExperimentSource(FollowedExperiment(world.replica, 1), None)
    source.start(lambda: None)
    world.replica.turn()
    world.tell(submitted())
    assert source.make() is not None
    assert world.replica.read().experiments == {1}, "others hear of it all the same"


def test_an_experiment_that_was_there_is_deleted_and_another_does_not_exist(
    world: World, tab: Tab
) -> None:
    world.tell(*running(), *completed(), exited())
    check(world, tab)
    world.tell(Delete(experiment_id=1), ExperimentDeleted(experiment_id=1))
    tab.num_stale = 0
    world.replica.turn()
    assert tab.num_stale
    with pytest.raises(NotFound, match="experiment 1 was deleted"):
        tab.update()
    with pytest.raises(NotFound, match="no experiment 7"):
        FollowedExperiment(world.replica, 7).state(None)


def test_a_damaged_row_of_metrics_is_passed_over(world: World, tab: Tab) -> None:
    world.tell(*running())
    check(world, tab)
    world.report(losses(1, 0.5))
    with world.service.store.transaction():
        world.service.store.feed.add_metrics(
            [(1.0, 1, 1, 2, 2, '{"kind":"batch_metrics"}'), (1.0, 1, 1, 2, 2, '{"kind":"other"}')]
        )
    world.report(losses(2, 0.25))
    check(world, tab)
    assert points(tab)["loss"] == [1, 2]


def test_news_of_others_make_no_version(world: World, tab: Tab) -> None:
    world.tell(*running(), submitted("other"))
    check(world, tab)
    tab.num_stale = 0
    world.report(progress(5), run="2.2.1")
    world.replica.turn()
    assert tab.num_stale == 0
    world.tell(Pause(experiment_id=2))  # the queue is shown, too
    world.replica.turn()
    assert tab.num_stale == 1


def test_after_a_view_that_could_not_be_made_nothing_is_missing(
    world: World, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.tell(*running(), *completed(), exited())
    check(world, tab)
    with world.service._transaction() as transaction:
        transaction.progress.advance(1, 120)
    world.replica.turn()
    with monkeypatch.context() as patch:
        patch.setattr(world.replica.views, "experiment", failing)
        with pytest.raises(ZeroDivisionError):
            tab.update()
    check(world, tab)
    assert tab.followed._trials[1].steps_completed == 120


def failing(*given: Any, **how: Any) -> Any:
    raise ZeroDivisionError


def test_a_new_importance_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    importance = ImportanceView(metric="error", num_trials=2, shares={"lr": 1.0})
    monkeypatch.setattr(world.replica, "importance", lambda number: importance)
    world.tell(registered(2), submitted(searcher=SEARCHER | {"max_concurrent_trials": 2}))
    for number in (1, 2):
        run = f"1.{number}.1"
        world.tell(*running(run), validated(100, 0.5, run), *completed(allocation_id=run))
        world.tell(exited(run))
    source = ExperimentSource(FollowedExperiment(world.replica, 1), None)
    stale: list[int] = []
    source.start(lambda: stale.append(1))
    world.replica.turn()
    num_stale = len(stale)
    source.make()
    wait_until(lambda: len(stale) > num_stale, "it is found")
    made = source.make()
    assert made is not None
    assert made["search"]["importance"] is not None
