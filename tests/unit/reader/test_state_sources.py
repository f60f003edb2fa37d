"""Sources of a page's documents: what makes them stale, and when they end."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.documents.patches import changes
from det_jupyter.contract.messages import State
from det_jupyter.errors import NotFound
from det_jupyter.reader.experiment_source import ExperimentSource, SharedFollower
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.overview import Overview
from det_jupyter.reader.overview_sources import (
    cluster_source,
    comparison_source,
)
from det_jupyter.view.live import LiveExperiment
from tests.unit.client.test_compare import Master as Compared
from tests.unit.client.test_compare import ended
from tests.unit.reader.test_overview_sources import World
from tests.unit.view.view_cluster_samples import cluster, pool
from tests.unit.view.view_samples import experiment, search_experiment, trial


def marked(source: Any) -> list[int]:
    """Start a source, and return a list that grows when it becomes stale."""
    stale: list[int] = []
    source.start(lambda: stale.append(1))
    return stale


def test_slots_are_told_once_rows_and_slots_are_there() -> None:
    world = World(1)
    source = cluster_source(cast(Overview, world))
    stale = marked(source)
    assert source.make() is None
    world.cluster, world.is_ready = cluster(pool()), False
    assert source.make() is None
    world.is_ready = True
    assert source.make() is not None
    world.change(1)
    assert stale == [1]


def test_a_comparison_follows_its_own_experiments_until_one_is_deleted() -> None:
    world = World(3, 7, 9)
    master: Any = Compared(ended(3), ended(7))
    connection = cast(MasterConnection, SimpleNamespace(client=lambda: master))
    source = comparison_source(cast(Overview, world), connection, [3, 7])
    stale = marked(source)
    document = source.make()
    assert document is not None
    assert document["title"] == "Experiments 3 and 7"
    world.change(9)
    world.drop(9)
    assert stale == []
    world.change(7)
    assert stale == [1]
    assert source.period_s == 2.0
    world.drop(7)
    assert stale == [1, 1]
    with pytest.raises(NotFound, match="experiment 7 was deleted"):
        source.make()


class Followed:
    """The copy that tabs share, as a test sets it."""

    def __init__(self, live: LiveExperiment | None) -> None:
        self.listeners: Listeners[[]] = Listeners(lambda: lambda: None)
        self.importance: Any = None
        self.refreshed: list[Any] = []
        self._follower = SimpleNamespace(live=live, lock=threading.Lock())

    def follower(self) -> Any:
        return self._follower

    def refresh_importance(self, live: Any) -> None:
        self.refreshed.append(live)


def source_of(live: LiveExperiment | None, chosen: int | None = None) -> tuple[Any, Followed]:
    followed = Followed(live)
    return ExperimentSource(cast(SharedFollower, followed), chosen), followed


def test_an_experiment_is_told_when_its_copy_is_there() -> None:
    source, _ = source_of(None)
    assert source.make() is None
    live = LiveExperiment(experiment(trial()), [], [], 1)
    source, followed = source_of(live)
    stale = marked(source)
    assert source.make() is not None
    assert followed.refreshed == [live]
    followed.listeners.notify()
    assert stale == [1]
    assert source.max_age_s is not None
    live.experiment = experiment(trial(state=State.COMPLETED), state=State.COMPLETED, ended_at=2e9)
    assert source.make() is not None
    assert source.max_age_s is None, "nothing comes after the end"


def test_of_a_search_the_rows_that_have_changed_are_sent() -> None:
    view, curves, checkpoints, _ = search_experiment(64, 70)
    live = LiveExperiment(view, curves, checkpoints, 1)
    source, _ = source_of(live)
    before = source.make()
    live.experiment.trials[3].state = State.ERROR
    live.experiment.trials[3].allocation = None
    paths = {operation["path"].rpartition("/")[0] for operation in changes(before, source.make())}
    assert {path for path in paths if path.startswith("/search/rows")} == {"/search/rows/3"}


def test_an_importance_that_is_new_is_told_and_fetched_by_one_thread() -> None:
    world = World(7)
    connection = cast(MasterConnection, SimpleNamespace(client=lambda: None))
    shared = SharedFollower(connection, cast(Overview, world), 7)
    told: list[int] = []
    shared.listeners.add(lambda: told.append(1))
    live = LiveExperiment(experiment(trial()), [], [], 1)
    shared.refresh_importance(live)  # there is none to be refreshed
    begun, may_end = threading.Event(), threading.Event()

    class Importance:
        latest: Any = None
        calls = 0

        def refresh(self, given: LiveExperiment) -> None:
            assert given is live
            self.calls += 1
            begun.set()
            may_end.wait()
            self.latest = "new"

    importance: Any = Importance()
    shared.importance = importance
    shared.refresh_importance(live)
    begun.wait()
    shared.refresh_importance(live)
    assert importance.calls == 1
    may_end.set()
    assert shared._fetching is not None
    shared._fetching.join()
    assert told == [1]
    shared.refresh_importance(live)
    shared._fetching.join()
    assert (importance.calls, told) == (2, [1]), "it is the same"
