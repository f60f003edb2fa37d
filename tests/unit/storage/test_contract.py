"""What holds for every kind of storage, the real one and the one of the tests."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from det_jupyter.errors import CheckpointError
from det_jupyter.storage import (
    METADATA_FILE,
    CheckpointStorage,
    find_checkpoint,
    path_of,
    read_metadata,
)
from det_jupyter.storage.directory import DirectoryStorage
from det_jupyter.storage.kinds import KINDS, folder_at, open_storage, reading
from tests.zip_storage import SCHEME, ZipStorage

FILES = {"weights": "whole", "code/a.py": "a = 1", "code/deep/b.py": "b = 2"}


def fill(folder: Path, uuid: str) -> None:
    """Write the files of a checkpoint, metadata.json last."""
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / METADATA_FILE).write_text(json.dumps({"uuid": uuid}))


def store(storage: CheckpointStorage, uuid: str) -> None:
    """Store a checkpoint."""
    draft = storage.begin(uuid)
    fill(draft.path, uuid)
    draft.sync()
    draft.commit()


class StorageContract:
    """What the docstrings of det_jupyter/storage/contract.py say.

    `make` returns a storage that is empty, given a folder to use; called again with the folder, it
    returns another object for the same storage, as another process has one.
    """

    out_of_reach = "cannot be written"  # what a storage says that is not there

    @staticmethod
    def make(root: Path) -> CheckpointStorage:
        raise NotImplementedError

    @pytest.fixture
    def storage(self, tmp_path: Path) -> CheckpointStorage:
        return type(self).make(tmp_path / "stored")

    def test_what_is_committed_is_read_as_it_was_written(
        self, storage: CheckpointStorage, tmp_path: Path
    ) -> None:
        store(storage, "one")
        other = type(self).make(tmp_path / "stored")
        with other.reading("one") as folder:
            assert {name: (folder / name).read_text() for name in FILES} == FILES
            assert read_metadata(folder) == {"uuid": "one"}
        sizes = {name: len(content) for name, content in FILES.items()}
        assert other.files("one") == dict(sorted({**sizes, METADATA_FILE: 15}.items()))

    def test_a_draft_is_no_checkpoint_before_it_is_committed(
        self, storage: CheckpointStorage
    ) -> None:
        draft = storage.begin("one")
        assert list(draft.path.iterdir()) == []
        fill(draft.path, "one")
        draft.sync()
        assert storage.files("one") == {}
        with pytest.raises(CheckpointError, match="one"), storage.reading("one"):
            pass
        draft.commit()
        draft.discard()  # too late: it is a checkpoint
        assert len(storage.files("one")) == 4

    def test_a_draft_that_is_discarded_leaves_nothing(self, storage: CheckpointStorage) -> None:
        draft = storage.begin("one")
        fill(draft.path, "one")
        for _ in range(2):
            draft.discard()
        assert storage.files("one") == {}
        assert not draft.path.exists()
        store(storage, "one")
        assert len(storage.files("one")) == 4

    def test_what_a_killed_writer_left_is_removed_and_what_is_being_written_stays(
        self, storage: CheckpointStorage
    ) -> None:
        mine = storage.begin("mine")
        fill(mine.path, "mine")
        if (writer := os.fork()) == 0:
            fill(storage.begin("killed").path, "killed")
            os._exit(0)
        assert os.waitpid(writer, 0) == (writer, 0)
        left = mine.path.with_name(mine.path.name.replace("mine", "killed"))
        assert left.exists()
        for _ in range(2):
            storage.remove_leftovers()
        assert not left.exists()
        assert storage.files("killed") == {}
        mine.commit()
        assert len(storage.files("mine")) == 4

    def test_files_that_are_needed_are_there(self, storage: CheckpointStorage) -> None:
        store(storage, "one")
        with storage.reading("one", "code/a.py".__eq__) as folder:
            assert (folder / "code" / "a.py").read_text() == "a = 1"

    def test_a_file_that_was_opened_stays_valid(self, storage: CheckpointStorage) -> None:
        store(storage, "one")
        with storage.reading("one") as folder:
            file = (folder / "weights").open()
        storage.delete("one")
        with file:
            assert file.read() == "whole"

    def test_a_deleted_checkpoint_is_gone_and_deleting_it_again_is_fine(
        self, storage: CheckpointStorage
    ) -> None:
        store(storage, "one")
        store(storage, "other")
        for _ in range(2):
            assert storage.delete("one") == 0
            assert storage.files("one") == {}
        assert len(storage.files("other")) == 4

    def test_some_files_are_deleted_and_the_checkpoint_with_the_last_of_them(
        self, storage: CheckpointStorage
    ) -> None:
        store(storage, "one")
        for _ in range(2):
            assert storage.delete("one", ["code/**", METADATA_FILE]) == len("whole") + 15
            assert list(storage.files("one")) == [METADATA_FILE, "weights"]
        assert storage.delete("one", ["**"]) == 0
        assert storage.files("one") == {}

    def test_what_is_no_checkpoint_of_this_name_is_left_alone(
        self, storage: CheckpointStorage
    ) -> None:
        draft = storage.begin("one")
        fill(draft.path, "other")
        draft.commit()
        with pytest.raises(CheckpointError, match=r"left .*one alone"):
            storage.delete("one")
        assert len(storage.files("one")) == 4

    @pytest.mark.parametrize("name", ["", "..", "../elsewhere", ".part-x", "/etc"])
    def test_names_that_lead_elsewhere_are_refused(
        self, storage: CheckpointStorage, name: str
    ) -> None:
        for use in (storage.begin, storage.files, storage.delete):
            with pytest.raises(CheckpointError, match="not the name of a checkpoint"):
                use(name)
        with pytest.raises(CheckpointError), storage.reading(name):
            pass

    def test_a_copy_of_a_folder_is_a_checkpoint_and_is_listed(
        self, storage: CheckpointStorage, tmp_path: Path
    ) -> None:
        store(storage, "one")
        with storage.reading("one") as folder:
            metadata = {"uuid": "two"}
            copied = tmp_path / "copied"
            shutil.copytree(folder, copied)
        (copied / METADATA_FILE).write_text(json.dumps(metadata))
        storage.store("two", copied)
        assert storage.files("two") == storage.files("one")
        found = storage.scan()
        assert [(each.uuid, each.problem) for each in found] == [("one", ""), ("two", "")]
        assert all(each.num_bytes >= 30 and each.stored_at > 0 for each in found)

    def test_a_sweep_takes_what_no_writer_has_and_no_checkpoint(
        self, storage: CheckpointStorage
    ) -> None:
        store(storage, "one")
        mine = storage.begin("mine")
        fill(mine.path, "mine")
        assert storage.sweep(-60, [".part-mine", "mine"]) == []
        mine.commit()
        assert len(storage.files("mine")) == len(storage.files("one")) == 4

    def test_a_probe_is_seen_until_it_is_removed(self, storage: CheckpointStorage) -> None:
        with storage.probe() as name:
            assert storage.has(name)
            assert not storage.has("none/metadata.json")
        assert not storage.has(name)
        assert storage.scan() == []

    def test_a_check_leaves_nothing(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        storage.check_writable()
        assert list(tmp_path.iterdir()) == []

    def test_a_storage_out_of_reach_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(CheckpointError, match=self.out_of_reach):
            type(self).make(tmp_path / "file" / "stored").check_writable()

    def test_a_checkpoint_is_found_by_its_path(
        self, storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(KINDS, SCHEME, ZipStorage)
        store(storage, "one")
        path = path_of(storage, "one")
        found, uuid = find_checkpoint(path)
        assert (found.location, uuid) == (storage.location, "one")
        assert found.files(uuid) == storage.files("one")
        with reading(path) as folder:
            assert (folder / "weights").read_text() == "whole"


class TestDirectoryStorage(StorageContract):
    """The storage that is a folder."""

    @staticmethod
    def make(root: Path) -> DirectoryStorage:
        """Return the storage in a folder."""
        return DirectoryStorage(root)


class TestZipStorage(StorageContract):
    """The storage of the tests that is none."""

    @staticmethod
    def make(root: Path) -> ZipStorage:
        """Return the storage in a folder."""
        return ZipStorage(f"{SCHEME}://{root}")


def test_a_location_that_no_kind_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"hdfs://h/c cannot be opened: hdfs has no back"):
        open_storage("hdfs://h/c", tmp_path)


def test_without_a_location_checkpoints_are_in_the_data_folder(tmp_path: Path) -> None:
    storage = open_storage(None, tmp_path)
    assert path_of(storage, "one") == str(tmp_path / "checkpoints" / "one")
    assert storage.delete("one") == 0  # nothing was ever stored there


def test_a_folder_that_is_not_there_may_be_on_a_drive(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot find the storage folder .*mounted"):
        open_storage(str(tmp_path / "drive"), tmp_path).delete("one")


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("/a/b", Path("/a/b")),
        ("~/c", Path.home() / "c"),
        ("s3://bucket/x", None),
        ("a:b", Path("a:b")),
    ],
)
def test_a_location_with_a_scheme_is_no_folder(location: str, folder: Path | None) -> None:
    assert folder_at(location) == folder


def test_a_folder_with_damaged_metadata_is_no_checkpoint_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / METADATA_FILE
    with pytest.raises(CheckpointError, match=f"^{tmp_path} is not a checkpoint: it has no meta"):
        read_metadata(tmp_path)
    path.write_text("{")
    with pytest.raises(CheckpointError, match=f"^{path} is damaged: "):
        read_metadata(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(CheckpointError, match=f"^{path}: "):
        read_metadata(tmp_path)
