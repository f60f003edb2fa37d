"""What the replica says has changed, how it recovers, and when it reads."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from det_jupyter.config.tracker_section import Tracker
from det_jupyter.contract.messages import Archive, Delete, DiskStatus, Kill
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.commands import Command
from det_jupyter.master.machine.model.events import Event, ExperimentDeleted
from det_jupyter.master.machine.model.turn import HandlerFailed
from det_jupyter.master.service.committing import transaction as transactions
from det_jupyter.master.service.storing.facts import HostFacts
from det_jupyter.master.service.storing.store import Store
from det_jupyter.reader import replica as module
from det_jupyter.reader.replica import News, Replica
from tests.unit.master.machine_world import (
    completed,
    exited,
    registered,
    running,
    saved,
    submitted,
    validated,
)
from tests.unit.reader.reader_world import World, losses, progress
from tests.unit.reader.reader_world import world as open_world
from tests.waiting import wait_until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PERIOD_S", "_RETRY_S"):
        monkeypatch.setattr(module, name, 0.001)
    monkeypatch.setattr(module, "_SHARE", 0)


def damage(world: World, change: str) -> None:
    """Change the database behind the master's back."""
    with closing(sqlite3.connect(world.path)) as db, db:
        db.execute(change)


def test_what_has_changed_is_named(world: World) -> None:
    world.tell(registered(4), submitted(), submitted("other"))
    assert world.replica.read() == News(experiments={1, 2}, trials={1, 2}, is_cluster=True)
    assert world.replica.read() == News()
    world.tell(*running())
    assert world.replica.read() == News(experiments={1}, trials={1})
    world.report(losses(1, 0.5))
    news = world.replica.read()
    assert (news.with_metrics, news.experiments, news.trials) == ({1}, {1}, {1})
    world.report(progress(7))
    assert world.replica.read() == News(experiments={1}, trials={1})
    world.tell(Archive(experiment_id=2))
    assert world.replica.read() == News()
    world.tell(saved(8))
    assert world.replica.read() == News(experiments={1}, trials={1})


def test_facts_that_have_changed_are_new_slots(world: World) -> None:
    world.replica.read()
    disk = DiskStatus(folder="/", free_bytes=1, total_bytes=9, state="low")
    world.service.disks.warnings = lambda now: [disk]  # type: ignore[method-assign]
    world.service.store_facts()
    assert world.replica.read() == News(is_cluster=True)
    with world.replica.viewing() as views:
        assert views.cluster(limit=1, experiment_id=None).disks == [disk]
    world.service.store_facts()
    assert world.replica.read() == News(), "nothing has changed"


def test_an_experiment_that_was_deleted_is_gone(world: World) -> None:
    world.tell(registered(4), submitted(), *running(), *completed(), exited())
    assert world.replica.read().gone == set()
    world.tell(Delete(experiment_id=1))
    assert world.replica.read().experiments == {1}
    world.tell(ExperimentDeleted(experiment_id=1))
    news = world.replica.read()
    assert (news.experiments, news.gone) == (set(), {1})
    with pytest.raises(NotFound, match="no experiment 1"):
        world.replica.experiment(1)


def test_what_was_read_in_between_is_in_the_next_news(world: World) -> None:
    replica = world.replica
    with pytest.raises(MasterUnreachable, match="still reads the master's state"):
        replica.experiment(1)
    replica.advance()
    with pytest.raises(NotFound, match="no experiment 1"):
        replica.experiment(1)
    world.tell(registered(4), submitted(), *running(), *completed(), exited())
    replica.advance()
    assert replica.experiment(1).name == "digits"
    world.tell(submitted("other"), Delete(experiment_id=1), ExperimentDeleted(experiment_id=1))
    replica.advance()
    assert replica.read() == News(experiments={2}, trials={1, 2}, gone={1}, is_cluster=True)
    assert replica.read() == News()


def test_an_experiment_whose_item_is_read_before_its_event_is_not_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = world.replica
    replica.read()
    handle = Replica._handle_events

    def handle_and_submit(self: Replica, store: Store, news: News) -> None:
        handle(self, store, news)
        monkeypatch.undo()
        world.tell(submitted())

    monkeypatch.setattr(Replica, "_handle_events", handle_and_submit)
    news = replica.read()
    assert 1 not in replica._machine.state.experiments
    assert (news.experiments, news.gone) == (set(), set())
    news = replica.read()
    assert (news.experiments, news.gone) == ({1}, set())


def test_an_experiment_that_was_read_and_deleted_between_two_news_is_gone(world: World) -> None:
    world.tell(registered(4), submitted(), *running(), *completed(), exited())
    world.replica.read()
    world.tell(Delete(experiment_id=1))
    world.replica.advance()
    world.tell(ExperimentDeleted(experiment_id=1))
    world.replica.advance()
    news = world.replica.read()
    assert (news.experiments, news.gone) == (set(), {1})


def test_a_state_that_may_be_half_changed_is_restored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.tell(registered(4), submitted())
    replica = world.replica
    replica.read()
    world.tell(*running())
    handle = Machine.handle

    def handle_half(self: Machine, event: Event, now: float) -> list[Command]:
        handle(self, event, now)
        raise HandlerFailed("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Machine, "handle", handle_half)
        with pytest.raises(MasterUnreachable, match="out of memory"):
            replica.advance()
    with pytest.raises(MasterUnreachable):
        replica.experiment(1)
    assert replica.read().experiments == {1}
    assert replica._machine.dump() == world.service.machine.dump()


def test_curves_that_cannot_be_read_now_are_read_later(world: World) -> None:
    world.tell(submitted())
    moved = world.path.rename(world.path.with_suffix(".moved"))
    with pytest.raises(MasterUnreachable, match="cannot be read now: unable to open"):
        world.replica.curves(1, max_points=10)
    moved.rename(world.path)
    assert world.replica.curves(1, max_points=10) == []


def test_a_long_history_is_read_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 3)
    world.replica.read()
    world.tell(registered(4), *(submitted() for _ in range(7)))
    assert world.replica.read().experiments == {*range(1, 8)}
    assert world.replica._machine.dump() == world.service.machine.dump()


def test_a_replica_begins_with_the_newest_snapshot_that_can_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "_SNAPSHOT_EVERY", 10_000)
    world.tell(registered(4), submitted())
    world.snapshot()
    world.tell(*running())
    world.snapshot()
    world.tell(validated(3, 0.5))
    expected = world.service.machine.dump()
    damage(world, "UPDATE events SET json = '{' WHERE seq <= 2")  # it is in both snapshots
    late = world.open_replica()
    late.read()
    assert late._machine.dump() == expected
    assert caplog.messages == []
    damage(world, "UPDATE snapshots SET json = '{' WHERE seq = (SELECT max(seq) FROM snapshots)")
    later = world.open_replica()
    later.read()
    assert later._machine.dump() == expected
    assert [each[:28] for each in caplog.messages] == ["a snapshot cannot be read; a"]


class Listener:
    """Has a replica read in its thread, and keeps the news; it may raise."""

    def __init__(self, replica: Replica, *errors: Exception) -> None:
        self.news: list[News] = []
        self._errors = [*errors]
        self.leave = replica.listeners.add(self._on_news)

    def _on_news(self, news: News) -> None:
        self.news.append(news)
        if self._errors:
            raise self._errors.pop(0)


@pytest.fixture
def listen(world: World) -> Iterator[Callable[..., tuple[Replica, Listener]]]:
    """Open a replica with a thread of its own, and listen to it."""
    opened: list[tuple[Replica, Listener]] = []

    def open_one(*errors: Exception) -> tuple[Replica, Listener]:
        replica = Replica(world.path, clock=lambda: world.now)
        opened.append((replica, Listener(replica, *errors)))
        return opened[-1]

    yield open_one
    for _, listener in opened:
        listener.leave()
    wait_until(lambda: not threads(), "the threads end")
    for replica, _ in opened:
        replica._forget()


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "det-replica"]


Listen = Callable[..., tuple[Replica, Listener]]


def test_it_reads_when_the_master_has_committed_and_only_for_listeners(
    world: World, listen: Listen
) -> None:
    world.tell(submitted())
    replica, listener = listen()
    wait_until(lambda: replica.is_ready, "it has read")
    wait_until(lambda: listener.news, "it is told")
    world.tell(submitted())
    replica.wake()
    wait_until(lambda: len(listener.news) > 1, "it is told of the commit")
    assert listener.news[1].experiments == {2}
    listener.leave()
    wait_until(lambda: not threads(), "nobody listens")
    world.tell(submitted())
    replica.wake()
    assert threads() == []
    assert 3 not in replica._machine.state.experiments
    again = Listener(replica)
    wait_until(lambda: again.news, "it reads again")
    again.leave()
    assert again.news[0].experiments == {3}
    assert len(listener.news) == 2


def test_what_was_read_before_is_not_current_when_listeners_return(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.replica.read()
    assert world.replica.is_ready
    world.replica.listeners.add(lambda news: None)
    assert not world.replica.is_ready
    with pytest.raises(MasterUnreachable), world.replica.viewing():
        pass


def test_news_without_a_commit_comes_after_a_while(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ESTIMATES_S", 0.01)
    _, listener = listen()
    wait_until(lambda: len(listener.news) > 3, "it is told")
    assert listener.news[-1] == News()


def test_an_event_that_cannot_be_read_has_all_restored_and_ends_no_thread(
    world: World,
    listen: Listen,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.tell(registered(4), submitted(), submitted(), *running(), *completed(), exited())
    monkeypatch.setattr(module, "_LOG_S", 0.0)
    replica, listener = listen()
    wait_until(lambda: listener.news, "it has read")
    world.tell(Delete(experiment_id=1), ExperimentDeleted(experiment_id=1), Kill(experiment_id=2))
    damage(world, "UPDATE events SET json = '{' WHERE seq = (SELECT max(seq) FROM events)")
    replica.wake()
    wait_until(lambda: len(caplog.messages) > 1, "it has failed twice")
    assert {*caplog.messages} == {"the master's state could not be read; it is restored again"}
    assert not replica.is_ready
    world.snapshot()
    wait_until(lambda: len(listener.news) > 1, "it has read the snapshot")
    assert listener.news[1].gone == {1}
    assert listener.news[1].experiments == {2}
    assert listener.news[1].is_cluster
    assert replica._machine.dump() == world.service.machine.dump()


def test_experiments_that_are_not_in_the_snapshot_any_more_are_gone(world: World) -> None:
    world.tell(registered(4), submitted(), *running(), *completed(), exited())
    world.replica.read()
    world.replica._forget()
    world.tell(Delete(experiment_id=1), ExperimentDeleted(experiment_id=1))
    world.snapshot()
    assert world.replica.read().gone == {1}


def test_a_listener_that_raises_keeps_no_other_from_the_news(
    world: World, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    replica, failing = listen(ValueError("a fault"), ValueError("another"))
    other = Listener(replica)
    for number in (1, 2, 3):
        wait_until(lambda: len(other.news) >= number, "it is told")  # noqa: B023
        world.tell(submitted())
        replica.wake()
    wait_until(lambda: other.news[-1].experiments == {3}, "it is told")
    other.leave()
    assert len(failing.news) >= len(other.news)
    assert {*caplog.messages} == {"what follows the master's state could not be updated"}


def test_a_database_that_cannot_be_read_now_is_read_later(
    world: World, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.tell(submitted())
    world.replica.read()
    locked = pytest.raises(MasterUnreachable, match="cannot be read now: locked")
    with locked, world.replica.viewing():
        raise sqlite3.OperationalError("locked")
    moved = world.path.rename(world.path.with_suffix(".moved"))
    replica, listener = listen()
    assert listener.news == []
    assert not replica.is_ready
    moved.rename(world.path)
    wait_until(lambda: listener.news, "it is read")
    assert listener.news[0].experiments == {1}


def test_facts_are_read_as_they_are_now(world: World) -> None:
    world.replica.read()
    assert world.replica._store is not None
    with world.service.store.transaction():
        world.service.store.facts.set(HostFacts(cluster_notes={"ray": "full"}))
    assert world.replica._store.facts.get() == HostFacts(cluster_notes={"ray": "full"})


def test_a_tracker_that_cannot_be_reached_is_shown(world: World) -> None:
    world.tell(submitted())
    service, tracked = world.service, world.service.store.tracked
    tracker = Tracker(type="mlflow", tracking_uri="http://127.0.0.1:9")
    row = tracked.add(1, tracker, None)

    def problem() -> str:
        news = world.replica.read()
        assert news.is_cluster
        (state,) = world.replica.experiment(1).trackers
        assert [state] == service.views.experiment(1).trackers
        return state.problem

    assert problem() == ""
    for text in ("connection refused", ""):
        tracked.set_attempts([row], len(text), 1000.0, text)
        service.announce("cluster")
        assert problem() == text
