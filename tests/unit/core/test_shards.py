"""Checkpoints of all ranks together: the union of what they have, or a clear refusal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Timer
from typing import Any, cast
from unittest.mock import Mock

import pytest

from det_jupyter import core
from det_jupyter.contract.run.journal import CheckpointDeleted, CheckpointSaved, CheckpointShare
from det_jupyter.core import sharded
from det_jupyter.core.folders import copy_files
from det_jupyter.core.journal import RecordList
from det_jupyter.core.peer_errors import PeerFailed
from det_jupyter.errors import CheckpointError
from det_jupyter.storage.directory import DirectoryDraft, DirectoryStorage
from tests.unit.pytorch.thread_ranks import ThreadRank, results, run_ranks

STEPS = {"steps_completed": 3}


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files, and folders where a name ends with "/"."""
    for name, text in files.items():
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(text)
    folder.mkdir(exist_ok=True)
    return folder


def tree(folder: Path) -> dict[str, str]:
    """Return the files of a checkpoint, but its metadata; folders end with "/"."""
    found = {
        path.relative_to(folder).as_posix() + ("/" if path.is_dir() else ""): (
            "" if path.is_dir() else path.read_text()
        )
        for path in folder.rglob("*")
    }
    return {name: text for name, text in sorted(found.items()) if name != "metadata.json"}


class Storage:
    """Where all ranks store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sink = RecordList()

    def of(self, rank: core.DistributedContext) -> core.CheckpointContext:
        return core.CheckpointContext(
            DirectoryStorage(self.root), self.sink, rank, {"trial_id": 7}
        )

    def upload(self, *folders: Path | None, **options: Any) -> list[str | Exception]:
        """Upload a folder on each rank."""

        def body(rank: ThreadRank) -> str:
            return self.of(rank).upload(folders[rank.rank], STEPS, shard=True, **options)

        return run_ranks(len(folders), body)

    def uuid(self, outcomes: list[str | Exception]) -> str:
        """Return the one that all ranks have got, which the master knows."""
        (uuid,) = set(outcomes)
        (record,) = self.sink.records
        assert isinstance(uuid, str)
        assert isinstance(record, CheckpointSaved)
        assert record.uuid == uuid
        return uuid

    def assert_untouched(self) -> None:
        assert self.sink.records == []
        assert not self.root.exists() or list(self.root.iterdir()) == []


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "checkpoints")


def test_a_checkpoint_is_the_union_of_what_ranks_have(storage: Storage, tmp_path: Path) -> None:
    first = write(tmp_path / "0", {"model/a": "0", "same": "x", "empty/": ""})
    third = write(tmp_path / "2", {"model/b": "2", "same": "x"})
    uuid = storage.uuid(storage.upload(first, None, third))
    assert tree(storage.root / uuid) == {
        "empty/": "", "model/": "", "model/a": "0", "model/b": "2", "same": "x"
    }  # fmt: skip


def test_a_rank_without_a_folder_leaves_the_storage_alone(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = []

    def copy_noted(source: Any, *args: Any) -> None:
        sources.append(source)
        copy_files(source, *args)

    monkeypatch.setattr(sharded, "copy_files", copy_noted)
    first = write(tmp_path / "0", {"a.txt": "a"})
    storage.uuid(storage.upload(first, None))
    assert sources == [first]


def test_one_folder_of_several_ranks_is_stored_once(storage: Storage, tmp_path: Path) -> None:
    shared = write(tmp_path / "shared", {"a": "1"})
    assert tree(storage.root / storage.uuid(storage.upload(shared, shared))) == {"a": "1"}


def test_different_files_of_one_name_are_refused_before_anything_is_written(
    storage: Storage, tmp_path: Path
) -> None:
    first = write(tmp_path / "0", {"a": "0", "b": "file", "c/d": ""})
    second = write(tmp_path / "1", {"a": "1", "b/": "", "c": ""})
    for outcome in storage.upload(first, second):
        assert isinstance(outcome, CheckpointError)
        lines = str(outcome).splitlines()
        assert lines[1:] == [
            "  a: different files of ranks 0 and 1",
            "  b: a file of rank 0, and a folder of rank 1",
            "  c: a file of rank 1, and a folder of rank 0",
        ]
    storage.assert_untouched()


def test_a_mistake_of_one_rank_is_raised_on_all(storage: Storage, tmp_path: Path) -> None:
    folder = write(tmp_path / "0", {"a": "0"})
    own, other = storage.upload(tmp_path / "absent", folder)
    assert isinstance(own, CheckpointError)
    assert "absent' does not exist, expected a folder" in str(own)
    assert isinstance(other, PeerFailed)
    assert "rank 0 failed: CheckpointError" in str(other)
    for outcome in storage.upload(None, None):
        assert isinstance(outcome, CheckpointError)
        assert "no folder on any rank" in str(outcome)
    storage.assert_untouched()


def test_only_what_is_selected_is_uploaded(storage: Storage, tmp_path: Path) -> None:
    folder = write(tmp_path / "0", {"a.pt": "0", "b.txt": "", "deep/c.pt": "1", "kept/": ""})
    selector: Callable[[str], bool] = lambda path: path.endswith((".pt", "kept/"))  # noqa: E731
    uuid = storage.uuid(storage.upload(folder, folder, selector=selector))
    chosen = {"a.pt": "0", "deep/": "", "deep/c.pt": "1", "kept/": ""}
    assert tree(storage.root / uuid) == chosen
    alone = storage.of(core.DistributedContext())
    assert tree(storage.root / alone.upload(folder, STEPS, selector=selector)) == chosen


def test_ranks_may_select_different_files_of_one_folder(storage: Storage, tmp_path: Path) -> None:
    folder = write(tmp_path / "0", {"a": "0", "b": "1", "c": "2"})

    def body(rank: ThreadRank) -> str:
        own = ("a", "b")[rank.rank]
        return storage.of(rank).upload(folder, STEPS, shard=True, selector=own.__eq__)

    assert tree(storage.root / storage.uuid(run_ranks(2, body))) == {"a": "0", "b": "1"}


def test_each_rank_fills_a_folder_of_its_own(storage: Storage) -> None:
    def body(rank: ThreadRank) -> str:
        metadata = STEPS if rank.is_chief else {"of": {str(rank.rank): True}}
        with storage.of(rank).store_path(metadata, shard=True) as (path, uuid):
            write(path, {f"part-{rank.rank}": "x", "same": "y"})
        return uuid

    uuid = storage.uuid(run_ranks(3, body))
    assert list(tree(storage.root / uuid)) == ["part-0", "part-1", "part-2", "same"]
    metadata = storage.of(core.DistributedContext()).get_metadata(uuid)
    assert metadata["of"] == {"1": True, "2": True}
    assert (metadata["steps_completed"], metadata["trial_id"]) == (3, 7)


def test_a_rank_that_fails_while_it_writes_leaves_no_checkpoint(storage: Storage) -> None:
    def body(rank: ThreadRank) -> None:
        with storage.of(rank).store_path(STEPS, shard=True) as (path, _):
            write(path, {"a": "1"})
            if rank.rank == 1:
                raise OSError("no space left")

    chief, other = run_ranks(2, body)
    assert str(chief) == "rank 1 failed: OSError: no space left"
    assert isinstance(other, OSError)
    storage.assert_untouched()


def test_metadata_that_ranks_disagree_about_is_refused(storage: Storage) -> None:
    def body(rank: ThreadRank) -> None:
        metadata = {**STEPS, "rank": rank.rank, "deep": {"a": [rank.rank], "b": 1}}
        with storage.of(rank).store_path(metadata, shard=True):
            raise AssertionError("not reached")

    for outcome in run_ranks(2, body):
        assert isinstance(outcome, CheckpointError)
        assert isinstance(outcome, RuntimeError)  # which code for Determined catches
        assert str(outcome).splitlines()[1:] == [
            "  metadata rank: 0 of rank 0, 1 of rank 1",
            "  metadata deep.a: [0] of rank 0, [1] of rank 1",
        ]
    storage.assert_untouched()


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "steps_completed: got None"),
        (None, "steps_completed: got None"),
        ([1], "metadata: got list, expected a dict"),
        ({**STEPS, "model": object()}, r"metadata\['model'\]: got object, expected"),
    ],
)
@pytest.mark.parametrize("shard", [False, True])
def test_metadata_is_checked_before_anything_is_written(
    storage: Storage, tmp_path: Path, metadata: Any, message: str, shard: bool
) -> None:
    alone = storage.of(core.DistributedContext())
    with pytest.raises(ValueError, match=message):
        alone.upload(write(tmp_path / "0", {"a": ""}), metadata, shard=shard)
    with (
        pytest.raises(ValueError, match=message),
        alone.store_path(metadata, shard=shard),
    ):
        raise AssertionError("not reached")
    storage.assert_untouched()


def test_metadata_of_another_checkpoint_does_not_take_its_name(
    storage: Storage, tmp_path: Path
) -> None:
    alone, folder = storage.of(core.DistributedContext()), write(tmp_path / "0", {"a": ""})
    first = alone.upload(folder, {**STEPS, "note": "x"})
    second = alone.upload(folder, alone.get_metadata(first))
    assert second != first
    assert alone.get_metadata(second) == {**alone.get_metadata(first), "uuid": second}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("absent", "'absent' does not exist, expected a folder (the current one is {here})"),
        ("file", "'file' is a file, expected a folder (the current one is {here})"),
        (3, "got 3, expected the path of a folder"),
        (
            None,
            "got None, expected the path of a folder; with shard=True, a rank that has nothing "
            "gives it",
        ),
    ],
)
def test_what_is_no_folder_is_not_uploaded(
    storage: Storage, tmp_path: Path, given: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path / "here", {"file": ""}))
    with pytest.raises(CheckpointError) as refused:
        storage.of(core.DistributedContext()).upload(given, STEPS)
    assert str(refused.value) == f"checkpoint.upload: {problem.format(here=tmp_path / 'here')}"
    storage.assert_untouched()


def test_links_are_followed(storage: Storage, tmp_path: Path) -> None:
    data = write(tmp_path / "data", {"a": "a", "deep/b": "b"})
    folder = write(tmp_path / "0", {"in/c": "c"})
    (folder / "in" / "data").symlink_to(data)
    (folder / "to a").symlink_to(data / "a")
    uuid = storage.of(core.DistributedContext()).upload(folder, STEPS)
    assert tree(storage.root / uuid) == {
        "in/": "", "in/c": "c", "in/data/": "", "in/data/a": "a", "in/data/deep/": "",
        "in/data/deep/b": "b", "to a": "a",
    }  # fmt: skip
    assert not any(path.is_symlink() for path in (storage.root / uuid).rglob("*"))


def test_a_folder_that_cannot_be_read_or_is_in_itself_is_refused(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, alone = write(tmp_path / "0", {"a": "a"}), storage.of(core.DistributedContext())
    (folder / "again").symlink_to(folder)
    with pytest.raises(CheckpointError, match=r"again in .* is a link to a folder that it is in"):
        alone.upload(folder, STEPS)
    (folder / "again").unlink()
    write(folder, {"locked/b": "b"})
    scandir = os.scandir

    def refuse(path: str) -> Any:  # root may read everything
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(CheckpointError, match=r"0/locked cannot be read: Permission denied"):
        alone.upload(folder, STEPS)
    monkeypatch.undo()
    storage.assert_untouched()


def test_ranks_of_a_computer_share_a_download(storage: Storage, tmp_path: Path) -> None:
    alone = storage.of(core.DistributedContext())
    uuid = alone.upload(write(tmp_path / "0", {"a": "a", "b": "b", "c/d": "d"}), STEPS)

    def shared(rank: ThreadRank) -> None:
        wanted = ("a", "c/d")[rank.rank]
        storage.of(rank).download(uuid, tmp_path / "to", selector=lambda path: path == wanted)

    results(2, shared)
    assert tree(tmp_path / "to") == {"a": "a", "c/": "", "c/d": "d"}

    def apart(rank: ThreadRank) -> None:
        target = tmp_path / f"to-{rank.rank}"
        with pytest.raises(ValueError, match=r"different folders .*NoSharedDownload"):
            storage.of(rank).download(uuid, target)
        storage.of(rank).download(uuid, target, core.DownloadMode.NoSharedDownload)
        assert (target / "b").read_text() == "b"
        assert (target / "metadata.json").exists()

    results(2, apart)

    def on_computers_of_their_own(rank: ThreadRank) -> None:
        rank.local_rank, rank.local_size = 0, 1
        rank.allgather_local = lambda value: [value]  # type: ignore[method-assign]  # a fake's
        storage.of(rank).download(uuid, tmp_path / f"alone-{rank.rank}")
        assert (tmp_path / f"alone-{rank.rank}" / "b").read_text() == "b"

    results(2, on_computers_of_their_own)
    with alone.restore_path(uuid, core.DownloadMode.NoSharedDownload) as path:
        assert (path / "c" / "d").read_text() == "d"
    with pytest.raises(ValueError, match=r"download_mode: got 'all', expected one of"):
        alone.download(uuid, tmp_path / "to", "all")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({"selector": lambda path: 1 / 0}, ZeroDivisionError),
        ({"selector": lambda path: sys.exit(3)}, SystemExit),
        ({"selector": "all"}, ValueError),
        ({"storage_id": "unheard-of"}, CheckpointError),
        ({"storage_id": None}, CheckpointError),
        ({"ckpt_dir": None}, TypeError),
    ],
)
def test_a_rank_that_cannot_take_part_in_a_shared_download_fails_it_on_all(
    storage: Storage, tmp_path: Path, call: dict[str, Any], error: type[BaseException]
) -> None:
    uuid = storage.of(core.DistributedContext()).upload(write(tmp_path / "0", {"a": ""}), STEPS)

    def body(rank: ThreadRank) -> None:
        good: dict[str, Any] = {"storage_id": uuid, "ckpt_dir": tmp_path / "to"}
        with pytest.raises(PeerFailed if rank.rank else error) as raised:
            storage.of(rank).download(**(good if rank.rank else good | call))
        if isinstance(raised.value, PeerFailed):
            assert raised.value.rank == 0
            assert error.__name__ in raised.value.error

    results(2, body)
    assert not (tmp_path / "to").exists()


def test_what_a_selector_leaves_out_need_not_be_readable(
    storage: Storage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = write(tmp_path / "0", {"a": "a", "in/b": "b", "locked/c": "c"})
    (folder / "in" / "again").symlink_to(folder)
    (folder / "gone").symlink_to(tmp_path / "nothing")
    scandir = os.scandir

    locked = "locked"

    def refuse(path: str) -> Any:  # root may read everything
        if str(path).endswith(locked):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    alone = storage.of(core.DistributedContext())
    bad = {
        "locked/": "locked cannot be read",
        "in/again/": "a link to a folder",
        "gone": "nothing",
    }
    uuid = alone.upload(folder, STEPS, selector=lambda path: path not in bad)
    assert "locked cannot be read (Permission denied) and is not selected" in caplog.text
    for name, problem in bad.items():
        with pytest.raises(CheckpointError, match=problem):
            alone.upload(folder, STEPS, selector=name.__eq__)
    locked = folder.name
    with pytest.raises(CheckpointError, match=r"0 cannot be read: Permission denied"):
        alone.upload(folder, STEPS, selector=lambda path: False)
    monkeypatch.undo()
    assert tree(storage.root / uuid) == {"a": "a", "in/": "", "in/b": "b"}


def test_a_shards_empty_folders_are_kept(storage: Storage) -> None:
    def body(rank: ThreadRank) -> str:
        with storage.of(rank).store_path(STEPS, shard=True) as (path, uuid):
            write(path, {f"empty/{rank.rank}/": "", f"{rank.rank}/deep/state": "1"})
        return uuid

    path = storage.root / storage.uuid(run_ranks(2, body))
    names = ["0/", "0/deep/", "0/deep/state", "1/", "1/deep/", "1/deep/state"]
    assert [*tree(path)] == [*names, "empty/", "empty/0/", "empty/1/"]


def test_the_first_rank_that_gave_a_value_is_named(storage: Storage) -> None:
    def body(rank: ThreadRank) -> None:
        given = [{}, {"a": 1}, {"a": 2}][rank.rank]
        with storage.of(rank).store_path({**STEPS, **given}, shard=True):
            pass

    for error in run_ranks(3, body):
        assert str(error).endswith("\n  metadata a: 1 of rank 1, 2 of rank 2")


class Computers(Storage):
    """Computers with two ranks each, which do not see each other's folders."""

    is_own = True  # whether checkpoints are in det_jupyter's own folders

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sinks: dict[int, RecordList] = {}  # by rank

    def folder(self, computer: int) -> Path:
        return self.root / str(computer)

    def of(self, rank: core.DistributedContext) -> core.CheckpointContext:
        rank.cross_rank, rank.local_rank, rank.cross_size = rank.rank // 2, rank.rank % 2, 2
        storage = DirectoryStorage(self.folder(rank.cross_rank), is_own=self.is_own)
        sink = self.sinks.setdefault(rank.rank, RecordList())
        return core.CheckpointContext(storage, sink, rank, {"trial_id": 7})

    def shares(self) -> list[CheckpointShare]:
        """Return the shares in their order, after checking where their records are."""
        assert [list(map(type, self.sinks[rank].records)) for rank in range(4)] == [
            [CheckpointShare, CheckpointSaved], [], [CheckpointShare], []
        ]  # fmt: skip
        found = [self.sinks[rank].records[0] for rank in (0, 2)]
        assert all(isinstance(each, CheckpointShare) for each in found)
        return cast(list[CheckpointShare], found)

    def left(self) -> list[str]:
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.glob("*/*"))


@pytest.fixture
def computers(tmp_path: Path) -> Computers:
    return Computers(tmp_path / "computers")


def assert_shares(computers: Computers, uuids: set[str], *expected: Mapping[str, str]) -> None:
    """Check that each computer has a share with these files, and nothing else."""
    shares = computers.shares()
    assert uuids == {share.uuid for share in shares}
    assert [(share.share, share.num_shares) for share in shares] == [(0, 2), (1, 2)]
    assert [tree(Path(share.path)) for share in shares] == list(expected)
    saved = cast(CheckpointSaved, computers.sinks[0].records[1])
    assert Path(saved.path).parent == computers.folder(0)
    assert saved.size_bytes > sum(len(text) for files in expected for text in files.values())
    assert [Path(name).name[:7] for name in computers.left()] == [".share-", ".share-"]


def test_ranks_of_computers_without_a_common_folder_store_shares(
    computers: Computers, tmp_path: Path
) -> None:
    folders = [
        write(tmp_path / "0", {"a": "0", "same": "x"}),
        write(tmp_path / "1", {"b": "1"}),
        write(tmp_path / "2", {"c/d": "2", "same": "x"}),
        write(tmp_path / "3", {"c/e": "3"}),
    ]
    uuids = computers.upload(*folders)
    first = {"a": "0", "b": "1", "same": "x"}
    assert_shares(computers, {str(u) for u in uuids}, first, {"c/": "", "c/d": "2", "c/e": "3"})


def test_blocks_of_ranks_of_computers_without_a_common_folder_store_shares(
    computers: Computers,
) -> None:
    def body(rank: ThreadRank) -> str:
        with computers.of(rank).store_path(STEPS, shard=True) as (path, uuid):
            (path / f"file-{rank.rank}").write_text(str(rank.rank))
            (path / "same").write_text("x")
        return uuid

    first = {"file-0": "0", "file-1": "1", "same": "x"}
    assert_shares(computers, set(results(4, body)), first, {"file-2": "2", "file-3": "3"})


def test_computer_whose_ranks_have_no_files_stores_no_share(
    computers: Computers, tmp_path: Path
) -> None:
    (uuid,) = set(computers.upload(write(tmp_path / "0", {"a": "0"}), None, None, None))
    assert tree(computers.folder(0) / str(uuid)) == {"a": "0"}
    assert computers.left() == [f"0/{uuid}"]
    assert not any(computers.sinks[rank].records for rank in (1, 2, 3))


@pytest.mark.parametrize("failing", [0, 2])
def test_share_that_cannot_be_committed_leaves_nothing_on_any_computer(
    computers: Computers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    commit = DirectoryDraft.commit

    def full(draft: DirectoryDraft) -> None:
        if draft.path.parent == computers.folder(failing // 2):
            raise OSError(28, "No space left on device")
        commit(draft)

    monkeypatch.setattr(DirectoryDraft, "commit", full)
    outcomes = computers.upload(*(write(tmp_path / str(r), {str(r): "x"}) for r in range(4)))
    assert isinstance(outcomes[failing], OSError)
    assert all(isinstance(each, Exception) for each in outcomes)
    assert computers.left() == []
    assert computers.sinks[0].records == []


def test_checkpoint_in_shares_is_deleted_by_its_record(
    computers: Computers, tmp_path: Path
) -> None:
    def body(rank: ThreadRank) -> None:
        checkpoint = computers.of(rank)
        folder = write(tmp_path / str(rank.rank), {str(rank.rank): "x"})
        uuid = checkpoint.upload(folder, STEPS, shard=True)
        if rank.rank == 1:
            checkpoint.delete(uuid)

    results(4, body)
    assert [type(record) for record in computers.sinks[1].records] == [CheckpointDeleted]


def test_checkpoint_in_shares_is_read_on_the_masters_computer_when_it_is_there(
    computers: Computers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(rank: ThreadRank) -> dict[str, str]:
        checkpoint = computers.of(rank)
        folder = write(tmp_path / str(rank.rank), {str(rank.rank): "x"})
        uuid = checkpoint.upload(folder, STEPS, shard=True)
        if rank.local_rank == 1:  # as the master does, a moment later
            draft = write(tmp_path / f"made-{rank.rank}-{uuid}", {"a": "1"})
            Timer(0.2, draft.rename, [computers.folder(rank.cross_rank) / uuid]).start()
        with checkpoint.restore_path(uuid) as path:
            return tree(path)

    assert results(4, body) == [{"a": "1"}] * 4
    monkeypatch.setattr("det_jupyter.core.wanted._LONGEST_S", 0.0)
    monkeypatch.setattr(f"{__name__}.Timer", Mock())
    for error in run_ranks(4, body):
        assert isinstance(error, CheckpointError | PeerFailed)
        assert "the agents have not uploaded all files of it" in str(error)


def test_folder_of_the_configuration_that_a_computer_does_not_see_is_refused(
    computers: Computers, tmp_path: Path
) -> None:
    computers.is_own = False
    outcomes = computers.upload(*(write(tmp_path / str(r), {str(r): "x"}) for r in range(4)))
    assert isinstance(outcomes[2], CheckpointError)
    assert "has to be a folder that all computers share" in str(outcomes[2])
    assert computers.left() == []
