"""Rows of all experiments are fetched once, and then those that the feed says have changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from queue import SimpleQueue
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import (
    ClusterView,
    ExperimentQuery,
    ExperimentRow,
    ExperimentRows,
    FeedItem,
    State,
)
from det_jupyter.errors import Conflict, MasterUnreachable
from det_jupyter.reader import overview as module
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.overview import Overview
from tests.unit.front.verbs.finding_samples import row
from tests.waiting import wait_until


class Master:
    """Has rows, a cluster and a feed that a test writes; it may fail."""

    def __init__(self, *numbers: int) -> None:
        self.rows: dict[int, ExperimentRow] = {number: row(number) for number in numbers}
        self.feed: SimpleQueue[Any] = SimpleQueue()
        self.failures: list[Exception] = []
        self.queries: list[list[int]] = []
        self.num_lists = self.num_clusters = 0
        self.num_waiting = 0
        self.after: list[int] = []

    def client(self) -> Any:
        if self.failures:
            raise self.failures.pop()
        return self

    def find(self, query: ExperimentQuery) -> ExperimentRows:
        assert query.archived
        if query.ids:
            self.queries.append(query.ids)
            found = [self.rows[number] for number in query.ids if number in self.rows]
            return ExperimentRows(rows=found)
        assert query.sort == "oldest"
        self.num_lists += 1
        return ExperimentRows(rows=list(self.rows.values()), last_seq=40)

    def changes(self, *, after: int) -> Generator[FeedItem | None, None, None]:
        self.after.append(after)
        while True:
            item = self.feed.get()
            if item == "end":
                return
            yield item

    def cluster(self, *, limit: int) -> ClusterView:
        assert limit == module.QUEUE_FRONT
        self.num_clusters += 1
        return ClusterView(
            pools=[], queue=[], num_waiting=self.num_waiting, at=float(self.num_clusters)
        )

    def say(self, kind: Any, number: int = 0) -> None:
        self.feed.put(FeedItem(seq=41, at=1.0, kind=kind, experiment_id=number, data={}))


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PERIOD_S", "_CLUSTER_PERIOD_S", "_RETRY_S"):
        monkeypatch.setattr(module, name, 0.001)
    monkeypatch.setattr(module, "_SHARE", 0)
    monkeypatch.setattr(module, "_ESTIMATES_S", 600.0)


class Page:
    """A listener of an overview, and what it was told."""

    def __init__(self, master: Master) -> None:
        self.overview = Overview(cast(MasterConnection, master))
        self.told: list[tuple[set[int], set[int]]] = []
        self.leave: Callable[[], None] = self.overview.listeners.add(
            lambda changed, gone: self.told.append((set(changed), set(gone)))
        )


@pytest.fixture
def open_page() -> Iterator[Callable[[Master], Page]]:
    pages: list[tuple[Master, Page]] = []

    def open_one(master: Master) -> Page:
        page = Page(master)
        pages.append((master, page))
        wait_until(lambda: page.overview.is_ready, "the rows are there")
        wait_until(lambda: page.overview.cluster is not None, "the slots are there")
        return page

    yield open_one
    for master, page in pages:
        page.leave()
        master.feed.put(None)
    wait_until(
        lambda: (
            not [
                each for each in threading.enumerate() if each.name in ("det-read", "det-refresh")
            ]
        ),
        "the threads end",
    )


def test_all_rows_are_fetched_once_and_then_those_that_change(
    open_page: Callable[[Master], Page],
) -> None:
    master = Master(1, 2, 3)
    page = open_page(master)
    assert page.overview.rows == master.rows
    assert page.told[0] == ({1, 2, 3}, set())
    assert master.after == [40]
    for kind, number in (("experiment", 2), ("trial", 3)):
        master.rows[number] = row(number, progress=0.75)
        master.feed.put(None)
        master.say("metrics", 1)
        master.say(kind, number)
        wait_until(lambda: page.overview.rows == master.rows, "the row is new")
    assert master.num_lists == 1
    assert sorted(number for ids in master.queries for number in ids) == [2, 3]
    assert ({2}, set()) in page.told


def test_an_experiment_that_is_gone_is_told(open_page: Callable[[Master], Page]) -> None:
    master = Master(1, 2)
    page = open_page(master)
    del master.rows[1]
    master.say("experiment", 1)
    wait_until(lambda: 1 not in page.overview.rows, "it is gone")
    wait_until(lambda: (set(), {1}) in page.told, "it is told")


def test_one_that_is_being_deleted_is_looked_at_until_it_is_gone(
    open_page: Callable[[Master], Page],
) -> None:
    master = Master(1)
    master.rows[2] = row(2, state=State.DELETING)
    page = open_page(master)
    wait_until(lambda: len(master.queries) > 3, "it is looked at")
    assert {number for ids in master.queries for number in ids} == {2}
    del master.rows[2]
    wait_until(lambda: list(page.overview.rows) == [1], "it is gone")
    wait_until(lambda: page.told[-1] == (set(), {2}), "it is told")


def test_slots_are_fetched_when_they_have_changed(open_page: Callable[[Master], Page]) -> None:
    master = Master(1)
    page = open_page(master)
    before = master.num_clusters
    master.say("cluster")
    wait_until(lambda: master.num_clusters > before, "they are fetched")
    wait_until(lambda: page.told[-1] == (set(), set()), "it is told")
    assert master.queries == []


def test_estimates_are_fetched_again_while_something_waits(
    open_page: Callable[[Master], Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ESTIMATES_S", 0.001)
    master = Master(1)
    master.num_waiting = 2
    page = open_page(master)
    wait_until(lambda: master.num_clusters > 3, "they are fetched")
    assert page.overview.cluster is not None
    assert page.overview.cluster.num_waiting == 2


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [(MasterUnreachable("it restarts"), False), (Conflict("another version"), True),
     (RuntimeError("a mistake"), True)],
)  # fmt: skip
def test_after_an_error_it_goes_on(
    error: Exception,
    is_logged: bool,
    open_page: Callable[[Master], Page],
    caplog: pytest.LogCaptureFixture,
) -> None:
    master = Master(1, 2)
    master.failures = [error, error, error]
    assert list(open_page(master).overview.rows) == [1, 2]
    warned = [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]
    assert bool(warned) is is_logged


def test_after_the_feed_has_ended_only_what_is_other_is_told(
    open_page: Callable[[Master], Page],
) -> None:
    master = Master(1, 2, 3)
    page = open_page(master)
    del master.rows[1]
    master.rows[2] = row(2, progress=0.75)
    master.feed.put("end")
    wait_until(lambda: ({2}, {1}) in page.told, "it is told")
    assert page.overview.rows == master.rows
    assert master.num_lists == 2


def test_what_could_not_be_fetched_is_fetched_later(
    open_page: Callable[[Master], Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    master = Master(1, 2)
    page = open_page(master)
    failures: list[Exception] = [MasterUnreachable("it restarts")] * 2

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def fail_first(*given: Any, **how: Any) -> Any:
            if failures:
                raise failures.pop()
            return call(*given, **how)

        return fail_first

    monkeypatch.setattr(master, "find", failing(master.find))
    master.rows[2] = row(2, progress=0.75)
    master.say("experiment", 2)
    wait_until(lambda: page.overview.rows == master.rows, "the row is new")
    before, failures[:] = master.num_clusters, [MasterUnreachable("it restarts")] * 2
    monkeypatch.setattr(master, "cluster", failing(master.cluster))
    master.say("cluster")
    wait_until(lambda: master.num_clusters > before, "the slots are new")
    assert failures == []


def test_many_changed_rows_are_fetched_in_several_requests(
    open_page: Callable[[Master], Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_IDS", 2)
    master = Master()
    for number in range(1, 6):
        master.rows[number] = row(number, state=State.DELETING)
    open_page(master)
    wait_until(lambda: len(master.queries) > 3, "they are fetched")
    assert master.queries[:3] == [[1, 2], [3, 4], [5]]
