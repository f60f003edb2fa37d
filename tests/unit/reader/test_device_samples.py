"""Samples of all agents' devices: when they are read, and what tabs get of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import ClusterView, Series, SeriesPage, SeriesQuery
from det_jupyter.errors import MasterUnreachable
from det_jupyter.master.service.storing import series_reading
from det_jupyter.reader import usage_source
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.overview import Overview
from det_jupyter.reader.usage_source import DeviceSamples, UsageSource
from tests.unit.view.view_cluster_samples import agent, cluster, pool, slot_status

PATH = Path("/folder/det.sqlite3")


def page(*at: float) -> SeriesPage:
    x = [*at]
    one = Series(source="host", name="cpu_util_simple", title="", x=x, low=x, mid=x, high=x)
    return SeriesPage(series=[one], began_at=None)


class World:
    """Agents and their samples, and the pauses that the reading thread makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[Any]]) -> None:
        self.answers = answers
        self.now = 1000.0  # on the monotonic clock
        self.wanted: list[str] = []
        self.problem: Exception | None = None
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
        clocks = SimpleNamespace(monotonic=lambda: self.now, time=time.time)
        monkeypatch.setattr(usage_source, "time", clocks)
        monkeypatch.setattr(series_reading, "read_agent", self.agent_series)
        self.samples = DeviceSamples(PATH, cast(Overview, self), self.want)

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

    def want(self, name: str) -> None:
        self.wanted.append(name)
        if self.problem is not None:
            raise self.problem

    def agent_series(self, path: Path, name: str, query: SeriesQuery) -> SeriesPage:
        assert path == PATH
        self.asked.append((name, query))
        answer = self.answers[name].pop(0) if self.answers[name] else page()
        if isinstance(answer, Exception):
            raise answer
        return cast(SeriesPage, answer)

    def rounds(self, number: int) -> None:
        """Have samples read so many times."""
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


def test_samples_are_read_at_the_shortest_period_that_a_tab_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, {})
    ends = [world.samples.listen(lambda: None, period_s) for period_s in (0.1, 2.0, 2.0, 3.0)]
    for expected in (0.2, 2.0, 2.0, 3.0):
        world.rounds(1)
        assert world.pauses[-1] == expected
        ends.pop(0)()


def test_agents_are_asked_for_samples_a_few_times_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(monkeypatch, {"a": [], "b": []})
    world.problem = MasterUnreachable("no master")  # samples are read all the same
    world.samples.listen(lambda: None, 1.0)
    for seconds, num_asked in ((0.0, 1), (9.0, 1), (2.0, 2), (11.0, 3)):
        world.now += seconds
        world.rounds(1)
        assert world.wanted == ["a", "b"] * num_asked
    assert len(world.asked) == 8
    assert caplog.messages == []


def test_samples_of_an_agent_that_left_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {"a": [page(5.0)], "b": [page(6.0), page(6.0)]})
    world.samples.listen(lambda: None, 1.0)
    world.rounds(1)
    assert cpus(world.samples) == {"a": 5.0, "b": 6.0}
    world.cluster = cluster(pool(agent("b", [slot_status(0)])))
    world.rounds(1)
    assert cpus(world.samples) == {"b": 6.0}


def test_samples_are_read_again_after_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(monkeypatch, {"a": [OSError(5, "no folder"), page(5.0)]})
    world.samples.listen(lambda: None, 1.0)
    with caplog.at_level(logging.WARNING):
        world.rounds(2)
    assert cpus(world.samples) == {"a": 5.0}
    assert world.pauses == [0.5, 1.0, 1.0]
    assert caplog.messages == ["samples could not be read"]


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
