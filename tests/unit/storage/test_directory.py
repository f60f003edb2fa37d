"""Checkpoints in a folder: how they come to be there, are read and go, and what is synced."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from det_jupyter.errors import CheckpointError
from det_jupyter.storage import directory, folder_locks
from det_jupyter.storage.contract import Leftover
from det_jupyter.storage.directory import DirectoryStorage


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is synced, in order."""
    names: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return names


def test_a_pipe_is_not_opened(tmp_path: Path, synced: list[str]) -> None:
    draft = DirectoryStorage(tmp_path).begin("one")
    os.mkfifo(draft.path / "pipe")
    (draft.path / "state").write_text("weights")
    draft.sync()
    assert synced == ["state", ".part-one"]


def test_what_was_synced_before_is_not_synced_again_unless_it_changed(
    tmp_path: Path, synced: list[str]
) -> None:
    draft = DirectoryStorage(tmp_path).begin("one")
    (draft.path / "state").write_text("weights")
    (draft.path / "old").write_text("before")
    draft.sync()
    assert (sorted(synced[:2]), synced[2:]) == (["old", "state"], [".part-one"])
    synced.clear()
    (draft.path / "old").write_text("after it")
    (draft.path / "metadata").write_text("{}")
    draft.commit()
    assert sorted(synced[:2]) == ["metadata", "old"]
    assert synced[2:] == [".part-one", tmp_path.name]


def test_a_link_to_a_blob_is_not_synced_but_its_folder_is(
    tmp_path: Path, synced: list[str]
) -> None:
    blob = tmp_path / "blob"
    blob.write_text("code")
    draft = DirectoryStorage(tmp_path / "checkpoints").begin("one")
    (draft.path / "code").mkdir()
    os.link(blob, draft.path / "code" / "blob")
    draft.commit()
    assert synced == [".part-one", "code", "checkpoints"]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def complete(storage: DirectoryStorage, uuid: str, **files: str) -> Path:
    """Return the folder of a checkpoint that was committed, with its metadata and these files."""
    draft = storage.begin(uuid)
    (draft.path / "metadata.json").write_text(f'{{"uuid": "{uuid}"}}')
    for name, text in files.items():
        (draft.path / name).write_text(text)
    draft.commit()
    return storage.root / uuid


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path / "checkpoints")


def test_a_draft_is_a_checkpoint_once_it_is_committed(storage: DirectoryStorage) -> None:
    assert storage.draft_path("one") is None
    draft = storage.begin("one")
    assert storage.draft_path("one") == draft.path == storage.root / ".part-one"
    draft.commit()
    draft.discard()  # of what is committed: nothing
    assert names_in(storage.root) == ["one"]
    other = storage.begin("two")
    other.discard()
    assert names_in(storage.root) == ["one"]


def test_drafts_of_ranks_and_uploads_do_not_disturb_each_other(storage: DirectoryStorage) -> None:
    first, upload = storage.begin("one"), storage.begin_upload("one")
    assert (first.path.name, upload.path.name) == (".part-one", ".part-upload-one")
    storage.remove_leftovers()
    assert names_in(storage.root) == [".part-one", ".part-upload-one"]
    first.discard()
    upload.discard()


def test_drafts_that_no_process_writes_are_removed_and_nothing_else(
    storage: DirectoryStorage,
) -> None:
    complete(storage, "one")
    (storage.root / ".part-left").mkdir()
    (storage.root / ".share-kept").mkdir()
    draft = storage.begin("two")
    assert names_in(storage.root) == [".part-two", ".share-kept", "one"]
    draft.discard()


@pytest.mark.parametrize(
    ("mounts", "are_removed"),
    [
        ({"/": "ext4"}, True),
        ({"/": "nfs4"}, False),
        ({"/": "ext4", "{folder}": "nfs4"}, False),
        ({"/": "nfs4", "{folder}": "xfs"}, True),
        ({"/": "ext4", "{folder}x": "nfs4"}, True),
        ({}, False),
    ],
)
def test_drafts_that_another_computer_may_have_locked_stay_for_a_day(
    storage: DirectoryStorage,
    monkeypatch: pytest.MonkeyPatch,
    mounts: dict[str, str],
    *,
    are_removed: bool,
) -> None:
    for name in (".part-new", ".part-deleted-one"):
        (storage.root / name).mkdir(parents=True)
    found = [
        SimpleNamespace(mountpoint=where.format(folder=storage.root.parent), fstype=kind)
        for where, kind in mounts.items()
    ]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: found)
    storage.begin("two").discard()
    assert names_in(storage.root) == ([] if are_removed else [".part-new"])
    monkeypatch.setattr(directory, "_SETTLED_S", -60.0)
    storage.remove_leftovers()
    assert names_in(storage.root) == []


def test_a_draft_begins_empty_on_a_drive_of_several_computers_too(
    storage: DirectoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "shows_all_locks", lambda folder: False)
    source = tmp_path / "source"
    source.mkdir()
    left = storage.begin("one")
    (left.path / "deleted-since").touch()
    left._lock.close()  # its process is killed
    storage.store("one", source)
    assert names_in(storage.root / "one") == []


@pytest.mark.parametrize(
    "error", [FileNotFoundError(), OSError(errno.ESTALE, "Stale file handle")]
)
def test_a_draft_that_another_computer_removes_just_now_does_not_matter(
    storage: DirectoryStorage, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def measure(path: Path) -> Leftover:
        raise error

    monkeypatch.setattr(directory, "shows_all_locks", lambda folder: False)
    monkeypatch.setattr(directory, "_measure", measure)
    (storage.root / ".part-left").mkdir(parents=True)
    storage.begin("one").discard()
    assert names_in(storage.root) == [".part-left"]


def test_leftovers_stay_where_folders_cannot_be_locked(
    storage: DirectoryStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    storage.root.mkdir()
    (storage.root / ".part-left").mkdir()
    monkeypatch.setattr(fcntl, "flock", refuse)
    draft = storage.begin("one")
    assert names_in(storage.root) == [".part-left", ".part-one"]
    assert "writing without a lock" in caplog.text
    draft.commit()
    assert names_in(storage.root) == [".part-left", "one"]


def test_no_descriptor_stays_open(storage: DirectoryStorage) -> None:
    def num_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = num_open()
    complete(storage, "one", weights="w")
    storage.begin("two").discard()
    (storage.root / ".part-left").mkdir()
    storage.remove_leftovers()
    writer = storage.begin("three")
    in_use = num_open()
    storage.remove_leftovers()  # finds it locked
    assert num_open() == in_use
    writer.commit()
    assert num_open() == before


def test_a_draft_becomes_a_share_only_in_our_own_folder(tmp_path: Path) -> None:
    own = DirectoryStorage(tmp_path / "own", is_own=True)
    draft = own.begin("one")
    assert draft.become_share() == tmp_path / "own" / ".share-one"
    draft.commit()
    assert names_in(own.root) == [".share-one"]
    shared = DirectoryStorage(tmp_path / "shared").begin("one")
    with pytest.raises(CheckpointError, match="a folder that all computers share"):
        shared.become_share()
    shared.discard()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    DirectoryStorage(tmp_path / "a" / "b").check_writable()
    assert names_in(tmp_path) == []  # it is created for the first checkpoint
    file = tmp_path / "file"
    file.write_text("")
    problem = r"file/x cannot be written: Not a directory \(.*file\)"
    with pytest.raises(CheckpointError, match=problem):
        DirectoryStorage(file / "x").check_writable()


def test_a_checkpoint_is_read_in_place_if_it_is_there(storage: DirectoryStorage) -> None:
    folder = complete(storage, "one", weights="four")
    with storage.reading("one") as found:
        assert found == folder
    assert storage.files("one") == {"metadata.json": 15, "weights": 4}
    assert storage.files("two") == {}
    with pytest.raises(CheckpointError, match="checkpoint two: not in "), storage.reading("two"):
        pass
    with pytest.raises(CheckpointError, match="not the name of a checkpoint"):
        storage.files("../one")


def test_a_checkpoint_is_deleted_whole_or_by_patterns(storage: DirectoryStorage) -> None:
    folder = complete(storage, "one", weights="four", notes="n")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "old").write_text("x")
    assert storage.delete("one", ["weights", "deep/**"]) == 16  # metadata.json and notes
    assert names_in(folder) == ["metadata.json", "notes"]
    assert storage.delete("one", ["notes"]) == 0  # nothing is left but its metadata
    assert names_in(storage.root) == []
    assert storage.delete("one") == 0  # gone already
    complete(storage, "two", weights="w")
    assert storage.delete("two") == 0
    assert names_in(storage.root) == []


def test_what_is_no_checkpoint_of_this_name_is_left_alone(storage: DirectoryStorage) -> None:
    one = complete(storage, "one", weights="w")
    (storage.root / "two").symlink_to(one)
    one.rename(storage.root / "three")
    (storage.root / "empty").mkdir()
    (storage.root / "file").write_text("")
    for name in ("two", "three", "empty", "file"):
        with pytest.raises(CheckpointError, match=r"left .* alone: it is not the folder"):
            storage.delete(name)
    assert names_in(storage.root) == ["empty", "file", "three", "two"]
    assert (storage.root / "three" / "weights").exists()


def test_another_folder_that_is_missing_may_be_a_drive_that_is_not_mounted(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is it mounted\?"):
        DirectoryStorage(tmp_path / "gone").delete("one")
    assert DirectoryStorage(tmp_path / "gone", is_own=True).delete("one") == 0


def test_a_checkpoint_that_another_process_writes_is_not_written_again(
    storage: DirectoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_locks, "_PAUSE_S", 0.0)
    first = storage.begin("one")
    with pytest.raises(CheckpointError, match="another process holds its lock"):
        storage.begin("one")
    first.discard()
    storage.begin("one").discard()


def test_a_forked_process_closes_the_folder_and_can_save_again(storage: DirectoryStorage) -> None:
    draft = storage.begin("one")
    assert draft._lock.is_open
    if (child := os.fork()) == 0:
        status = 1
        try:
            draft.discard()  # of the parent: nothing
            storage.begin("two").discard()
            status = int(draft._lock.is_open or not draft.path.is_dir())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0
    draft.commit()
    assert names_in(storage.root) == ["one"]


def test_what_was_left_is_listed_then_removed_and_what_is_new_or_locked_stays(
    tmp_path: Path,
) -> None:
    storage, names = DirectoryStorage(tmp_path, is_own=True), [".part-killed", ".share-old"]
    storage.begin("mine")
    for name in (*names, ".fetched-old", ".other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_bytes(b"12345")
        os.utime(tmp_path / name / "weights", (1000.0, 1000.0))  # as copies have it
        os.utime(tmp_path / name, (1000.0, 1000.0))
    found = storage.sweep(60, names)
    assert [each.name for each in found] == [".part-killed"]  # the others may be in use
    for _ in range(2):
        found = storage.sweep(-60)
        assert [(each.name, each.num_bytes) for each in found] == [
            (".fetched-old", 5), (".share-old", 5),
        ]  # fmt: skip
    storage.sweep(-60, [".share-old"])
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".fetched-old", ".other", ".part-mine"]


def test_in_a_folder_of_the_user_only_old_drafts_are_left_overs(tmp_path: Path) -> None:
    for name in (".part-killed", ".share-links", ".read-later", ".fetched-mail"):
        (tmp_path / name).mkdir()
    storage = DirectoryStorage(tmp_path)
    assert storage.sweep(60) == []  # a writer on another computer may have its lock
    assert [each.name for each in storage.sweep(-60)] == [".part-killed"]


def test_folders_that_are_no_whole_checkpoints_are_named(tmp_path: Path) -> None:
    uuid = "0" * 8 + "-0000" * 3 + "-" + "0" * 12
    folders = {uuid: None, "moved": '{"uuid": "other"}', "cut": "{", "x": None}
    for name, metadata in folders.items():
        (tmp_path / name).mkdir()
        if metadata is not None:
            (tmp_path / name / "metadata.json").write_text(metadata)
    found = {each.uuid: each.problem for each in DirectoryStorage(tmp_path).scan()}
    assert found.keys() == {uuid, "moved", "cut"}
    assert found[uuid].endswith("is not a checkpoint: it has no metadata.json")
    assert found["moved"] == "its metadata.json is that of 'other'"
    assert "cut/metadata.json is damaged" in found["cut"]


def test_ages_are_not_those_of_a_clock_that_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".share-new").mkdir()
    storage = DirectoryStorage(tmp_path, is_own=True)
    monkeypatch.setattr(time, "time", lambda: 1e11)
    assert storage.sweep(60) == []


def test_leftovers_on_a_drive_that_cannot_be_written_stay(
    storage: DirectoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(dir: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    (storage.root / ".part-left").mkdir(parents=True)
    monkeypatch.setattr(directory, "shows_all_locks", lambda folder: False)
    monkeypatch.setattr(directory, "TemporaryFile", refuse)
    storage.remove_leftovers()
    assert names_in(storage.root) == [".part-left"]
