"""The documents that are made from the overview, as they follow it."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.documents.patches import apply_changes, changes
from det_jupyter.contract.messages import ClusterView, ExperimentRow, State
from det_jupyter.reader.list_sources import ExperimentsSource
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.overview import Overview
from det_jupyter.view.model.sidebar import LEFT_OUT
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


def rows_of(source: ExperimentsSource) -> dict[str, Any]:
    document = source.make()
    assert document is not None
    rows: dict[str, Any] = document["rows"]
    return rows


def test_the_list_has_all_and_keeps_the_lines_that_have_not_changed() -> None:
    world = World(1, 2, 3)
    source = following(world)
    before = rows_of(source)
    assert [line["id"] for line in before.values()] == [1, 2, 3]
    world.change(2, progress=0.75)
    world.change(4)
    world.drop(3)
    after = rows_of(source)
    assert [*after] == ["1", "2", "4"]
    assert after["2"].keys() == ExperimentRow.model_fields.keys() - LEFT_OUT
    assert after["1"] is before["1"]
    assert after["2"]["progress"] == 0.75


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["change", "drop", "make"]),
            st.integers(1, 4),
            st.sampled_from([0.0, 0.5, 1.0]),
        ),
        max_size=40,
    )
)
def test_a_tab_that_applies_patches_has_what_there_is(steps: list[tuple[str, int, float]]) -> None:
    world = World(1, 2)
    source = following(world)
    made = source.make()
    assert made is not None
    tab = made
    for what, which, progress in [*steps, ("make", 0, 0.0)]:
        if what == "change":
            world.change(which, progress=progress)
        elif what == "drop":
            world.drop(which)
        else:
            before, made = made, source.make()
            assert made is not None
            tab = apply_changes(tab, changes(before, made))
    assert {int(name): line["progress"] for name, line in tab["rows"].items()} == {
        number: row.progress for number, row in world.rows.items()
    }


def test_a_list_is_made_once_the_overview_knows_it() -> None:
    world = World()
    world.is_ready = False
    source = following(world)
    assert source.make() is None
    world.is_ready = True
    assert source.make() == {"rows": {}}


def test_why_an_experiment_waits_follows_the_queue() -> None:
    world = World()
    world.rows = {5: row(5, state=State.ACTIVE)}
    source = following(world)
    assert rows_of(source)["5"]["wait"] == "waits for its turn"
    world.cluster = cluster(pool(), queue=[entry(4, 5)])
    world.listeners.notify((), ())
    assert rows_of(source)["5"]["wait"].startswith("needs 4 slots")
