"""Samples of all agents' devices: when they are fetched, and what tabs get of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import ClusterView, Series, SeriesPage, SeriesQuery
from det_jupyter.errors import ConfigError, MasterUnreachable, NotFound
from det_jupyter.reader import usage_source
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.overview import Overview
from det_jupyter.reader.usage_source import DeviceSamples, UsageSource
from tests.unit.view.view_cluster_samples import agent, cluster, pool, slot_status


def page(*at: float) -> SeriesPage:
    x = [*at]
    one = Series(source="host", name="cpu_util_simple", title="", x=x, low=x, mid=x, high=x)
    return SeriesPage(series=[one], began_at=None)


class World:
    """A master with agents, and the pauses that the fetching thread makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[Any]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, SeriesQuery]] = []
        self.pauses: list[float] = []
        self.told: list[int] = []
        self.cluster: ClusterView | None = cluster(
            pool(*(agent(name, [slot_status(0)]) for name in answers))
        )
        self.listeners: Listeners[Any] = Listeners(lambda: lambda: None)
        self.num_rounds = 1
        names = {"Event": lambda: self, "Thread": self._thread}
        monkeypatch.setattr(usage_source, "threading", SimpleNamespace(**names))
        connection = cast(MasterConnection, SimpleNamespace(client=lambda: self))
        self.samples = DeviceSamples(connection, cast(Overview, self))

    def _thread(self, target: Callable[..., None], args: Any, name: str, daemon: bool) -> Any:
        assert daemon, "else it would keep the process from ending"
        self.run: Callable[[], None] = lambda: target(*args)
        return SimpleNamespace(start=lambda: None)

    def is_set(self) -> bool:
        return self.num_rounds == 0

    def set(self) -> None:
        self.num_rounds = 0

    def wait(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 1))
        if seconds != usage_source._RETRY_S:
            self.num_rounds -= 1

    def agent_series(self, name: str, query: SeriesQuery) -> SeriesPage:
        self.asked.append((name, query))
        answer = self.answers[name].pop(0) if self.answers[name] else page()
        if isinstance(answer, Exception):
            raise answer
        return cast(SeriesPage, answer)

    def rounds(self, number: int) -> None:
        """Have samples fetched so many times."""
        self.num_rounds = number
        self.run()


def cpus(samples: DeviceSamples) -> dict[str, float | None]:
    assert samples.usage is not None
    return {name: each["cpu"] for name, each in samples.usage["agents"].items()}


def test_the_first_samples_cover_the_past_and_later_ones_what_came_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, {"a": [page(10.0, 11.0), page(12.0), page()]})
    samples = world.samples
    end = samples.listen(lambda: world.told.append(1), 2.0)
    assert not world.listeners.is_idle, "the overview lists agents while it has a listener"
    world.rounds(1)
    assert cpus(samples) == {"a": 11.0}
    (_, query) = world.asked[0]
    assert query.since == pytest.approx(time.time() - 120, abs=30)
    assert (query.of, query.columns) == ("system", 2400)
    world.rounds(2)
    assert [each.since for _, each in world.asked[1:]] == [11.0, 12.0], "by the agent's clock"
    assert cpus(samples) == {"a": 12.0}, "what it did last stays"
    assert world.told == [1, 1], "the third answer had nothing new"
    assert world.pauses == [2.0, 2.0, 2.0]
    end()
    assert world.listeners.is_idle
    assert world.is_set()


def test_samples_are_fetched_at_the_shortest_period_that_a_tab_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, {})
    ends = [world.samples.listen(lambda: None, period_s) for period_s in (0.1, 2.0, 2.0, 3.0)]
    for expected in (0.2, 2.0, 2.0, 3.0):
        world.rounds(1)
        assert world.pauses[-1] == expected
        ends.pop(0)()


def test_an_agent_that_cannot_be_asked_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: dict[str, list[Any]] = {
        "left": [NotFound("gone")],
        "odd": [ConfigError(["what?"])],
        "well": [page(5.0)],
    }
    world = World(monkeypatch, answers)
    world.samples.listen(lambda: None, 1.0)
    with caplog.at_level(logging.WARNING):
        world.rounds(1)
    assert cpus(world.samples) == {"well": 5.0}
    assert caplog.messages == ["no samples of agent odd"]


def test_samples_of_an_agent_that_left_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {"a": [page(5.0)], "b": [page(6.0), page(6.0)]})
    world.samples.listen(lambda: None, 1.0)
    world.rounds(1)
    assert cpus(world.samples) == {"a": 5.0, "b": 6.0}
    world.cluster = cluster(pool(agent("b", [slot_status(0)])))
    world.rounds(1)
    assert cpus(world.samples) == {"b": 6.0}


@pytest.mark.parametrize(
    ("error", "logged"),
    [(MasterUnreachable("no master"), []), (ValueError("a fault"), ["fetching samples"])],
)
def test_samples_are_fetched_again_after_an_error(
    error: Exception, logged: list[str], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    world = World(monkeypatch, {"a": [error, page(5.0)]})
    world.samples.listen(lambda: None, 1.0)
    with caplog.at_level(logging.WARNING):
        world.rounds(2)
    assert cpus(world.samples) == {"a": 5.0}
    assert world.pauses == [0.5, 1.0, 1.0]
    assert caplog.messages == logged


def test_a_document_is_known_once_agents_are(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {"a": [page(5.0)]})
    agents, world.cluster = world.cluster, None
    source = UsageSource(world.samples, 2.5)
    assert (source.period_s, source.max_age_s) == (2.5, None)
    stop = source.start(lambda: world.told.append(1))
    world.rounds(1)
    assert (world.asked, world.told, source.make()) == ([], [], None)
    world.cluster = agents
    world.rounds(1)
    assert world.told == [1]
    document = source.make()
    assert document is not None
    assert document["agents"]["a"]["cpu"] == 5.0
    stop()
    assert world.listeners.is_idle
