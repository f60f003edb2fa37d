"""Sources of a page's documents: what makes them stale, and when they end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import Archive, Delete
from det_jupyter.errors import NotFound
from det_jupyter.master.machine.model.events import ExperimentDeleted
from det_jupyter.reader import overview as overviews
from det_jupyter.reader.list_sources import (
    ExperimentsSource,
    cluster_source,
    comparison_source,
    trials_source,
)
from det_jupyter.reader.live_document import Source
from det_jupyter.reader.overview import Overview
from det_jupyter.reader.replica import Replica
from tests.unit.client.handles.test_compare import Master as Compared
from tests.unit.client.handles.test_compare import ended
from tests.unit.master.machine_world import completed, exited, registered, running, submitted
from tests.unit.reader.reader_world import World as RealWorld
from tests.unit.reader.reader_world import losses
from tests.unit.reader.reader_world import world as open_world
from tests.unit.reader.test_list_sources import World
from tests.unit.view.view_cluster_samples import cluster, pool


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealWorld]:
    """A master with two experiments that are over and one that runs."""
    monkeypatch.setattr(overviews, "_CLUSTER_PERIOD_S", 0.0)
    monkeypatch.setattr(overviews, "_SHARE", 0)
    with open_world(tmp_path) as made:
        made.tell(registered(2), submitted(), submitted("other"), submitted("third"))
        for run in ("1.1.1", "2.2.1"):
            made.tell(*running(run))
            made.report(losses(1, 0.5, 0.4), run=run)
            made.tell(*completed(allocation_id=run), exited(run))
        made.tell(*running("3.3.1"))
        yield made


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
    master.advance = lambda: None
    source = comparison_source(cast(Overview, world), cast(Replica, master), [3, 7])
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


def test_experiments_of_a_master_are_compared(
    real: RealWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real.replica, "code", lambda number: {"Cell 1": f"n = {number}"})
    source = comparison_source(Overview(real.replica), real.replica, [1, 2])
    marked(source)
    document = source.make()
    assert document is not None
    assert [side["label"] for side in document["sides"]] == ["1 digits", "2 other"]
    late = comparison_source(Overview(real.replica), real.replica, [2, 4])
    with pytest.raises(NotFound, match="no experiment 4"):
        late.make()
    real.tell(submitted())
    late.make()
    assert 4 in real.replica.read().experiments


def test_all_documents_are_made_of_one_read(real: RealWorld) -> None:
    overview = Overview(real.replica)
    sources: list[Source] = [
        ExperimentsSource(overview),
        cluster_source(overview),
        trials_source(overview, real.replica),
    ]
    stale = [marked(source) for source in sources]
    assert [source.make() for source in sources] == [None, None, None]
    real.replica.turn()
    assert all(stale)
    made: list[Any] = [source.make() for source in sources]
    assert [*made[0]["rows"]] == ["1", "2", "3"]
    assert made[1] is not None
    assert [trial["experiment_id"] for trial in made[2]["trials"]] == [3]
    real.tell(*completed(allocation_id="3.3.1"), exited("3.3.1"), Archive(experiment_id=1))
    real.tell(Delete(experiment_id=2), ExperimentDeleted(experiment_id=2))
    real.replica.turn()
    made = [source.make() for source in sources]
    assert [*made[0]["rows"]] == ["1", "3"]
    assert made[2]["trials"] == []
