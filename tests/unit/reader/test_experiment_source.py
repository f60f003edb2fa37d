"""The copy of an experiment that tabs share: when it is fetched anew, and when it is deleted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.errors import DetError, MasterUnreachable, NotFound
from det_jupyter.reader import experiment_source as module
from det_jupyter.reader.experiment_source import SharedFollower
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.overview import Overview

NUMBER = 7


class World:
    """An overview that has the experiment, and the followers that were started."""

    def __init__(self) -> None:
        self.rows: dict[int, Any] = {NUMBER: None}
        self.listeners: Listeners[Any] = Listeners(lambda: lambda: None)
        self.followers: list[FakeFollower] = []

    def drop(self) -> None:
        self.rows = {}
        self.listeners.notify([], [NUMBER])

    def change(self, number: int = NUMBER) -> None:
        self.rows = {**self.rows, number: None}
        self.listeners.notify([number], [])


class FakeFollower:
    """Follows until a test ends it."""

    world: World

    def __init__(self, client: Any, number: int, on_change: Callable[[Any], None], _: Any) -> None:
        assert number == NUMBER
        self.on_change = on_change
        self.error: DetError | None = None
        self.is_stopped = self.is_over = False
        self.thread = SimpleNamespace(is_alive=lambda: not self.is_over)

    def start(self) -> FakeFollower:
        self.world.followers.append(self)
        return self

    def stop(self) -> None:
        self.is_stopped = True

    def end(self, error: DetError | None = None) -> None:
        self.is_over, self.error = True, error


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(FakeFollower, "world", found, raising=False)
    monkeypatch.setattr(module, "Follower", FakeFollower)
    return found


def following(world: World) -> SharedFollower:
    connection = cast(MasterConnection, SimpleNamespace(client=lambda: None))
    return SharedFollower(connection, cast(Overview, world), NUMBER)


def test_all_tabs_share_a_copy_that_is_followed_until_the_last_has_left(world: World) -> None:
    followed = following(world)
    leave = [followed.listeners.add(lambda: None), followed.listeners.add(lambda: None)]
    assert followed.follower() is followed.follower()
    importance = followed.importance
    assert importance is not None
    leave[0]()
    assert not world.followers[0].is_stopped
    assert not world.listeners.is_idle
    leave[1]()
    assert world.followers[0].is_stopped
    assert world.listeners.is_idle, "nothing is told of it any more"
    followed.listeners.add(lambda: None)
    followed.follower()
    assert len(world.followers) == 2
    assert followed.importance is importance, "what is known stays known"


def test_an_experiment_that_was_there_is_deleted_and_another_does_not_exist(world: World) -> None:
    calls: list[int] = []
    followed = following(world)
    followed.listeners.add(lambda: calls.append(1))
    followed.follower()
    world.followers[0].end(NotFound("no experiment 7"))
    with pytest.raises(NotFound, match="no experiment 7"):
        followed.follower()
    world.followers[0].on_change(None)
    assert calls == [1]
    with pytest.raises(NotFound, match="experiment 7 was deleted"):
        followed.follower()


def test_an_experiment_that_returns_is_followed_again(world: World) -> None:
    calls: list[int] = []
    followed = following(world)
    leave = followed.listeners.add(lambda: calls.append(1))
    followed.follower()
    world.drop()
    assert calls == [1]
    with pytest.raises(NotFound, match="experiment 7 was deleted"):
        followed.follower()
    leave()  # as the document does that has ended with the error
    followed.listeners.add(lambda: None)
    with pytest.raises(NotFound, match="experiment 7 was deleted"):
        followed.follower()
    world.change()
    followed.follower()


def test_what_has_changed_after_its_end_is_fetched_anew(world: World) -> None:
    followed = following(world)
    followed.listeners.add(lambda: None)
    followed.follower()
    world.change()
    assert len(world.followers) == 1  # its follower applies it
    world.followers[0].end()
    world.change(number=NUMBER + 1)
    assert len(world.followers) == 1
    world.change()
    assert len(world.followers) == 2


def test_without_a_master_it_is_tried_again_and_another_error_is_raised(world: World) -> None:
    followed = following(world)
    followed.listeners.add(lambda: None)
    followed.follower()
    world.followers[0].end(MasterUnreachable("stopped"))
    followed.follower()
    assert len(world.followers) == 2
    world.followers[1].end(DetError("of another version"))
    world.change()
    with pytest.raises(DetError, match="of another version"):
        followed.follower()
    assert len(world.followers) == 2
