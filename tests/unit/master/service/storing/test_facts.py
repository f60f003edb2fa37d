"""Facts that views contain are stored for the reader; damaged ones count as none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from det_jupyter.contract.messages import DiskStatus
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.facts import HostFacts
from det_jupyter.master.service.storing.store import Store

FULL = DiskStatus(folder="/", total_bytes=9, free_bytes=0, is_full=True, state="full")
FACTS = HostFacts(cluster_notes={"ray": "its pool is full"}, disks=[FULL])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "det.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store(path)) as opened:
        yield opened


def test_facts_are_read_back_also_by_another_process(store: Store, path: Path) -> None:
    with closing(Store(path, is_read_only=True)) as reader:
        assert reader.facts.get() == store.facts.get() == HostFacts()
        store.facts.set(FACTS)
        assert reader.facts.get() == store.facts.get() == FACTS
        assert reader.facts.get() is reader.facts.get(), "they are parsed once"
        store.facts.set(HostFacts())
        assert reader.facts.get() == HostFacts()


@pytest.mark.parametrize(
    "damaged", ["", "{", "[]", '{"disks": 1}', '{"of_another_version": 1}', b"{\xff}", b"\xff"]
)
def test_a_damaged_row_counts_as_none_and_is_replaced(
    damaged: str | bytes, store: Store, path: Path
) -> None:
    store.facts.set(FACTS)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE facts SET json = CAST(? AS TEXT)", (damaged,))
    assert store.facts.get() == HostFacts()
    store.facts.set(FACTS)
    assert store.facts.get() == FACTS


def test_the_master_stores_them_when_they_change(store: Store) -> None:
    service = Service(store)
    service.store_facts()
    seq = store.feed.last_seq
    service.nodes.notes = {"ray": "its pool is full", "slurm": ""}
    service.disks.warnings = lambda now: [FULL]  # type: ignore[method-assign]
    service.store_facts()
    assert store.facts.get() == FACTS
    (item,) = store.feed.news_after(seq, 10)
    assert item.kind == "cluster"
    service.store_facts()
    assert store.feed.last_seq == item.seq, "they are the same"
    assert service.views.cluster(limit=1, experiment_id=None).disks == [FULL]


def test_a_disk_that_fills_slowly_is_the_same_fact() -> None:
    disk = DiskStatus(
        folder="/",
        free_bytes=123_456_789,
        total_bytes=10**12,
        state="low",
        lost_bytes=456_789,
        over_s=598.7,
        full_in_s=3210.5,
        writes={7: 98_765},
    )
    later = disk.model_copy(
        update={"free_bytes": 123_300_000, "over_s": 599.9, "lost_bytes": 0, "writes": {}}
    )
    assert HostFacts(disks=[disk]).rounded == HostFacts(disks=[later]).rounded
    for changes in ({"free_bytes": 10**9}, {"full_in_s": None}, {"state": "full"}):
        other = disk.model_copy(update=changes)
        assert HostFacts(disks=[disk]).rounded != HostFacts(disks=[other]).rounded
