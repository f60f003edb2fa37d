"""Checkpoints whose files the user's code writes, and those of all ranks, wait for room too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from det_jupyter import core
from det_jupyter.contract.run.control_page import OpenDraft
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.core import sharded
from det_jupyter.core.folders import copy_files
from det_jupyter.core.journal import RecordList
from det_jupyter.pytorch.experimental.outputs import open_workspace
from det_jupyter.storage.directory import DirectoryStorage
from tests.unit.contract.run.small_disk import FULL, Disk, gives, small_disk
from tests.unit.pytorch.thread_ranks import ThreadRank, results


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return small_disk(tmp_path, monkeypatch)


class Saver:
    """The checkpoints of a trial on the disk."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.root = folder / "checkpoints"
        self.sink = RecordList()

    def of(
        self, rank: core.DistributedContext, latest: str | None = None
    ) -> core.CheckpointContext:
        storage = DirectoryStorage(self.root)
        return core.CheckpointContext(storage, self.sink, rank, {}, None, self._disk.gate, latest)

    def saved(self) -> list[CheckpointSaved]:
        return [each for each in self.sink.records if isinstance(each, CheckpointSaved)]

    def needed(self) -> list[int]:
        """Return how much was waited for, at each look."""
        return [seen.needs_bytes for seen in self._disk.seen if seen is not None]


@pytest.fixture
def saver(disk: Disk, tmp_path: Path) -> Saver:
    return Saver(disk, tmp_path)


def store(context: core.CheckpointContext, num_bytes: int, *, shard: bool = False) -> str:
    with context.store_path({"steps_completed": 1}, shard=shard) as (path, uuid):
        (path / f"weights-{context._distributed.rank}").write_bytes(bytes(num_bytes))
    return uuid


def on_ranks(saver: Saver, save: Callable[[core.CheckpointContext], str]) -> list[str]:
    def body(rank: ThreadRank) -> str:
        return save(saver.of(rank))

    return results(2, body)


def test_code_fills_the_folder_only_when_there_is_room_for_as_much_as_the_last_time(
    disk: Disk, saver: Saver
) -> None:
    context = saver.of(core.DummyDistributedContext())
    disk.free, disk.during_wait = 99, gives(disk, 149, 150)
    store(context, 200)
    assert saver.needed() == [0, 0]
    (first,) = saver.saved()
    needed = first.size_bytes  # with its metadata
    assert needed > 200
    disk.seen.clear()
    disk.free, disk.during_wait = 99 + needed, gives(disk, 150 + needed)
    second = store(context, 200)
    assert saver.needed() == [needed]
    disk.seen.clear()
    disk.free, disk.during_wait = 99 + needed, gives(disk, 150 + needed)
    store(saver.of(core.DummyDistributedContext(), latest=second), 200)  # of the next run
    assert saver.needed() == [needed]


def test_run_that_is_to_leave_fills_what_is_left(disk: Disk, saver: Saver) -> None:
    disk.free, disk.during_wait = 50, lambda: disk.page.raise_signal("preempt")
    store(saver.of(core.DummyDistributedContext()), 10)
    assert len(saver.saved()) == 1


def test_error_of_the_users_code_on_a_full_disk_is_raised(disk: Disk, saver: Saver) -> None:
    context = saver.of(core.DummyDistributedContext())
    with pytest.raises(OSError, match="No space left"), context.store_path({"steps_completed": 1}):
        raise FULL
    assert (saver.saved(), disk.seen) == ([], [])
    assert list(saver.root.iterdir()) == []


def test_ranks_wait_before_they_fill_their_folders(disk: Disk, saver: Saver) -> None:
    uuids: list[str] = []

    def save(context: core.CheckpointContext) -> str:
        uuids.append(store(context, 200, shard=True))
        if context._distributed.is_chief:
            disk.free, disk.during_wait = 499, gives(disk, 549, 550)
        context._distributed.allgather(None)
        return store(context, 200, shard=True)

    on_ranks(saver, save)
    assert saver.needed() == [400, 400]  # of both ranks
    assert len(saver.saved()) == 2


def test_copy_of_a_rank_that_fills_the_disk_is_removed_and_made_again(
    disk: Disk, saver: Saver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[list[str]] = []

    def copy(source: Path, target: Path, found: object) -> None:
        if source.name == "of-1":
            attempts.append([path.name for path in target.glob("part-1*")])
        copy_files(source, target, found)  # type: ignore[arg-type]
        if source.name == "of-1" and len(attempts) < 3:
            (target / "part-1b").unlink()
            raise FULL

    monkeypatch.setattr(sharded, "copy_files", copy)

    def save(context: core.CheckpointContext) -> str:
        rank = context._distributed.rank
        folder = tmp_path / f"of-{rank}"
        folder.mkdir()
        for part in "ab":
            (folder / f"part-{rank}{part}").write_bytes(bytes(50))
        return context.upload(folder, {"steps_completed": 1}, shard=True)

    uuid, _ = on_ranks(saver, save)
    assert attempts == [[], [], []]
    assert saver.needed() == [100, 100]
    names = {path.name for path in (saver.root / uuid).iterdir()}
    assert names == {"metadata.json", "part-0a", "part-0b", "part-1a", "part-1b"}


def test_the_control_page_has_the_checkpoint_that_a_process_writes(
    disk: Disk, saver: Saver
) -> None:
    context, own = saver.of(core.DummyDistributedContext()), os.getpid()
    seen: list[OpenDraft | None] = []
    with context.store_path({"steps_completed": 1}):
        seen.append(disk.page.draft())
    seen.append(disk.page.draft())
    draft = context.begin({"steps_completed": 2})
    draft.write(lambda path: seen.append(disk.page.draft()), 0)
    seen.append(disk.page.draft())
    draft.commit()
    with pytest.raises(KeyError), context.store_path({"steps_completed": 3}):
        raise KeyError
    assert [*seen, disk.page.draft()] == [
        OpenDraft(own),
        None,
        OpenDraft(own),
        OpenDraft(own, True),
        None,
    ]


def test_files_of_a_batch_process_are_no_checkpoint_that_is_written(
    disk: Disk, saver: Saver
) -> None:
    ranks = core.DummyDistributedContext()
    with open_workspace(saver.of(ranks), ranks, 0, []) as workspace:
        assert workspace.path.is_dir()
        assert disk.page.draft() is None


def test_a_checkpoint_that_is_begun_to_leave_is_recorded_as_such(disk: Disk, saver: Saver) -> None:
    context = saver.of(core.DummyDistributedContext())
    draft = context.begin({"steps_completed": 1})
    disk.page.note_saving()
    draft.write(lambda path: None, 0)
    draft.commit()
    store(context, 1)
    assert [each.on_request for each in saver.saved()] == [False, True]
