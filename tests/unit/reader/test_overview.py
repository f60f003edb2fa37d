"""Rows of all experiments, and slots: made once, and then those that have changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import Delete, ExperimentQuery, ExperimentRow, Pause
from det_jupyter.errors import MasterUnreachable
from det_jupyter.master.machine.model.events import ExperimentDeleted
from det_jupyter.reader import overview as module
from det_jupyter.reader import replica as replicas
from det_jupyter.reader.overview import Overview
from det_jupyter.reader.replica import Replica
from tests.unit.master.machine_world import completed, exited, registered, running, submitted
from tests.unit.reader.reader_world import World, progress
from tests.unit.reader.reader_world import world as open_world
from tests.waiting import wait_until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLUSTER_PERIOD_S", 0.0)
    monkeypatch.setattr(module, "_SHARE", 0)
    monkeypatch.setattr(module, "_ESTIMATES_S", 600.0)


class Page:
    """A listener of an overview, what it was told, and which rows were made."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.overview = Overview(world.replica)
        self.told: list[tuple[set[int], set[int]]] = []
        self.made: list[list[int] | None] = []
        rows = self.overview._rows

        def counted(ids: list[int] | None) -> dict[int, ExperimentRow]:
            self.made.append(ids)
            return rows(ids)

        self.overview._rows = counted  # type: ignore[method-assign]
        self.listen()

    def listen(self) -> None:
        self.leave = self.overview.listeners.add(
            lambda changed, gone: self.told.append((set(changed), set(gone)))
        )

    def turn(self) -> list[tuple[set[int], set[int]]]:
        """Have the replica read; return what the page was told."""
        self.told.clear()
        self.world.replica.turn()
        return list(self.told)

    def check(self) -> None:
        """Assert that the overview has what the master has."""
        views = self.world.service.views
        found = views.find(ExperimentQuery(archived=True, sort="oldest"))
        assert [*self.overview.rows.values()] == found.rows
        cluster = views.cluster(limit=module.QUEUE_FRONT, experiment_id=None)
        assert self.overview.cluster is not None
        assert self.overview.cluster.model_copy(update={"at": cluster.at}) == cluster


SLOTS: tuple[set[int], set[int]] = (set(), set())


def test_rows_are_made_at_once_if_the_replica_runs_already(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_ESTIMATES_S", 600.0)
    world.tell(submitted())
    replica = Replica(world.path)
    was_told = threading.Event()
    leave_replica = replica.listeners.add(lambda news: was_told.set())
    wait_until(was_told.is_set, "the replica has read, and nothing is committed after that")
    overview = Overview(replica)
    leave = overview.listeners.add(lambda changed, gone: None)
    wait_until(lambda: overview.is_ready, "rows are made")
    leave()
    leave_replica()
    replica._forget()


def test_all_rows_are_made_once_and_then_those_that_change(world: World) -> None:
    world.tell(registered(4), submitted(), submitted("other"), submitted("third"))
    page = Page(world)
    assert not page.overview.is_ready
    assert page.turn() == [({1, 2, 3}, set()), SLOTS]
    page.check()
    world.tell(*running())
    world.report(progress(7))
    assert page.turn() == [({1}, set())]
    page.check()
    world.tell(submitted("fourth"))
    assert page.turn() == [({4}, set()), SLOTS]
    page.check()
    assert page.made == [None, [1], [4]]
    assert page.turn() == []


def test_an_experiment_that_is_gone_is_told(world: World) -> None:
    world.tell(registered(4), submitted(), submitted("other"), *running(), *completed(), exited())
    page = Page(world)
    page.turn()
    world.tell(Delete(experiment_id=1))
    assert page.turn() == [({1}, set())]
    world.tell(ExperimentDeleted(experiment_id=1))
    assert page.turn() == [(set(), {1})]
    assert [*page.overview.rows] == [2]
    page.check()


def test_what_came_without_listeners_is_told_when_there_is_one(world: World) -> None:
    world.tell(registered(4), submitted(), submitted("other"), *running(), *completed(), exited())
    world.tell(submitted("third"))
    page = Page(world)
    page.turn()
    page.leave()
    world.tell(Delete(experiment_id=1), ExperimentDeleted(experiment_id=1), Pause(experiment_id=3))
    assert page.turn() == []
    page.listen()
    assert not page.overview.is_ready
    assert page.overview.cluster is None, "it is old"
    assert page.turn() == [({3}, {1}), SLOTS]
    page.check()


def test_slots_are_read_some_time_after_they_were_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLUSTER_PERIOD_S", 600.0)
    world.tell(registered(4))
    page = Page(world)
    page.turn()
    woken = threading.Event()
    monkeypatch.setattr(world.replica, "wake", woken.set)
    world.tell(submitted(), submitted())
    assert page.turn() == [({1, 2}, set())], "slots were read just now"
    assert page.turn() == []
    timer = page.overview._timer
    assert timer is not None
    timer.cancel()
    timer.function()  # as it does after 600 s
    assert woken.is_set()
    page.overview._cluster_not_before = 0.0
    assert page.turn() == [SLOTS]
    page.check()


def test_estimates_are_made_again_while_something_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ESTIMATES_S", -1.0)
    world.tell(registered(2), submitted())
    page = Page(world)
    page.turn()
    assert page.turn() == [], "nothing waits"
    world.tell(submitted("other"))
    page.turn()
    assert page.turn() == [SLOTS]


@pytest.mark.parametrize("error", [MasterUnreachable("locked"), ZeroDivisionError()])
@pytest.mark.parametrize("what", ["find", "cluster"])
def test_after_an_error_all_is_made_again(
    error: Exception, what: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.tell(registered(4), submitted(), submitted("other"))
    page = Page(world)
    page.turn()

    def failing(*given: Any, **how: Any) -> Any:
        raise error

    world.tell(submitted("third"), Pause(experiment_id=1))
    with monkeypatch.context() as patch:
        patch.setattr(world.replica.views, what, failing)
        with pytest.raises(type(error)):
            world.replica.turn()
    assert not page.overview.is_ready
    page.turn()
    assert page.overview.is_ready
    page.check()
