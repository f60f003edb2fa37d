"""What the sources of topics keep, and what a tab lacks."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.messages import ClusterView, State
from det_jupyter.front.pages import overview_sources, usage_source
from det_jupyter.front.pages.listeners import Listeners
from det_jupyter.front.pages.overview import Overview
from det_jupyter.front.pages.overview_sources import ExperimentsSource
from det_jupyter.front.pages.usage_source import AgentSamples
from det_jupyter.view.model.sidebar import Usage
from tests.unit.front.verbs.finding_samples import row
from tests.unit.view.view_cluster_samples import cluster, entry, pool


class World:
    """An overview, whose rows a test sets."""

    def __init__(self, *numbers: int) -> None:
        self.rows = {number: row(number) for number in numbers}
        self.cluster: ClusterView | None = None
        self.is_ready = True
        self.listeners: Listeners[Any] = Listeners(lambda: lambda: None)

    def change(self, number: int, **changes: Any) -> None:
        self.rows = {**self.rows, number: row(number, **changes)}
        self.listeners.notify([number], [])

    def drop(self, number: int) -> None:
        self.rows = {n: each for n, each in self.rows.items() if n != number}
        self.listeners.notify([], [number])


def following(world: World) -> ExperimentsSource:
    source = ExperimentsSource(cast(Overview, world))
    source.start(lambda: None)
    return source


def ids(news: dict[str, Any]) -> list[int]:
    return [line.id for line in news["rows"]]


def test_the_first_news_have_all_and_the_next_what_has_changed() -> None:
    world = World(1, 2, 3)
    source = following(world)
    assert source.update(10)
    assert source.news(0)["is_whole"]
    assert ids(source.news(0)) == [1, 2, 3]
    world.change(2, progress=0.75)
    world.change(4)
    assert source.update(11)
    news = source.news(10)
    assert (news["is_whole"], sorted(ids(news))) == (False, [2, 4])
    world.change(2, progress=0.75)
    assert not source.update(12)


def test_what_happened_while_a_tab_was_slow_is_merged() -> None:
    world = World(1, 2, 3)
    source = following(world)
    source.update(10)
    for version in range(11, 60):
        world.change(1, progress=version / 100)
        assert source.update(version)
    (line,) = source.news(10)["rows"]
    assert line.progress == 0.59


def test_an_experiment_that_is_gone_is_said_to_be() -> None:
    world = World(1, 2)
    source = following(world)
    source.update(10)
    world.drop(1)
    assert source.update(11)
    assert source.news(10) == {"is_whole": False, "rows": [], "gone": [1]}
    assert ids(source.news(0)) == [2]


def test_an_experiment_that_returns_is_no_longer_gone() -> None:
    world = World(1, 2)
    source = following(world)
    source.update(10)
    world.drop(1)
    source.update(11)
    world.change(1)
    assert source.update(12)
    for since in (10, 11):
        news = source.news(since)
        assert (ids(news), news["gone"]) == ([1], [])
    assert source.news(12)["rows"] == source.news(12)["gone"] == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["change", "drop", "make"]),
            st.integers(1, 4),
            st.sampled_from([0.0, 0.5, 1.0]),
        ),
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_a_tab_that_applies_its_news_has_what_there_is(
    steps: list[tuple[str, int, float]], pause: int
) -> None:
    world = World(1, 2)
    source = following(world)
    source.update(10)
    tab: dict[int, Any] = {}
    version = since = 0
    for number, (what, which, progress) in enumerate([*steps, ("make", 0, 0.0)], start=11):
        if what == "change":
            world.change(which, progress=progress)
        elif what == "drop":
            world.drop(which)
        elif source.update(number):
            version = number
        if what == "make" and (pause == 0 or number % (pause + 1) == 0):
            since = updated(tab, source, since, max(version, 10))
    updated(tab, source, since, max(version, 10))
    assert tab.keys() == world.rows.keys()
    assert all(tab[i].progress == row.progress for i, row in world.rows.items())


def updated(tab: dict[int, Any], source: ExperimentsSource, since: int, version: int) -> int:
    """Apply what a tab lacks, as lab/line/experiments.ts does; return the tab's version."""
    news = source.news(since)
    if news["is_whole"]:
        tab.clear()
    tab.update({line.id: line for line in news["rows"]})
    for number in news["gone"]:
        tab.pop(number, None)
    return version


def test_a_tab_that_lacks_more_than_is_remembered_is_sent_all(monkeypatch: Any) -> None:
    monkeypatch.setattr(overview_sources, "MAX_GONE", 2)
    world = World(1, 2, 3, 4)
    source = following(world)
    source.update(10)
    for version, number in enumerate((1, 2, 3), start=11):
        world.drop(number)
        source.update(version)
    assert source.news(10)["is_whole"]
    assert not source.news(11)["is_whole"]
    assert source.news(11)["gone"] == [2, 3]


def test_an_empty_list_is_news_too() -> None:
    source = following(World())
    assert source.update(10)
    assert source.news(0) == {"is_whole": True, "rows": [], "gone": []}


def test_why_an_experiment_waits_follows_the_queue() -> None:
    world = World()
    world.rows = {5: row(5, state=State.ACTIVE)}
    source = following(world)
    source.update(10)
    assert source.news(0)["rows"][0].wait == "waits for its turn"
    world.cluster = cluster(pool(), queue=[entry(4, 5)])
    world.listeners.notify((), ())
    assert source.update(11)
    assert source.news(10)["rows"][0].wait.startswith("needs 4 slots")


def usage(*at: float, missing: str = "", slots: int = 2) -> Usage:
    return Usage(
        agent_id="a",
        at=list(at),
        slot_ids=list(range(slots)),
        utilization=[list(at)] * slots,
        memory_used=[[None] * len(at)] * slots,
        memory_total=[None] * slots,
        cpu=[50.0] * len(at),
        missing=[missing] * slots,
        dropped=0,
    )


def test_samples_are_sent_once_and_in_order() -> None:
    kept = AgentSamples()
    assert kept.add(usage(1.0, 2.0), 5)
    assert kept.add(usage(3.0), 7)
    assert not kept.add(usage(), 8)
    first, rest = kept.between(0, 5), kept.between(5, 7)
    assert first is not None
    assert rest is not None
    assert (first["at"], rest["at"]) == ([1.0, 2.0], [3.0])
    assert rest["utilization"] == [[3.0], [3.0]]
    assert kept.between(7, 8) is None


def test_a_slow_tab_is_told_how_many_samples_it_missed(monkeypatch: Any) -> None:
    kept = AgentSamples()
    for second in range(usage_source.MAX_SAMPLES + 40):
        kept.add(usage(float(second)), second + 1)
    late = kept.between(10, 10_000)
    assert late is not None
    assert (len(late["at"]), late["dropped"]) == (usage_source.MAX_SAMPLES, 30)
    new = kept.between(0, 10_000)
    assert new is not None
    assert new["dropped"] == 0


def test_why_there_are_no_samples_is_news_and_other_slots_begin_anew() -> None:
    kept = AgentSamples()
    kept.add(usage(1.0), 1)
    assert kept.add(usage(missing="the driver hangs"), 2)
    news = kept.between(1, 2)
    assert news is not None
    assert (news["at"], news["missing"]) == ([], ["the driver hangs"] * 2)
    kept.add(usage(2.0, slots=3), 3)
    assert len(kept.samples) == 1
