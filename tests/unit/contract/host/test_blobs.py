"""Blobs: there whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.disk_space import is_no_room
from det_jupyter.errors import DetError, NotFound


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_equal_data_is_stored_once_and_comes_back(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    digest = store.put(b"weights")
    assert store.put(bytearray(b"weights")) == digest
    assert files_below(tmp_path) == [store.path(digest)]
    assert store.read(digest) == b"weights"
    assert store.read(store.put(b"")) == b""


def test_blob_that_cannot_be_written_whole_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    store = BlobStore(tmp_path)
    with pytest.raises(DetError) as raised:
        store.put(b"weights")
    assert str(raised.value).startswith(
        f"7e-06 MB cannot be stored in {tmp_path} (No space left on device; "
    )
    assert is_no_room(raised.value)  # so a rank that stores code in a checkpoint waits
    assert files_below(tmp_path) == []


def test_blob_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        assert os.fstat(descriptor).st_size == len(b"weights")
        acts.append("sync")
        real_fsync(descriptor)

    def replace(source: str, target: Path) -> None:
        acts.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    BlobStore(tmp_path).put(b"weights")
    assert acts == ["sync", "rename"]


def test_change_of_a_mapped_blob_is_nobody_else_s(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    digest = store.put(b"weights")
    view = store.map(digest)
    view[0] = ord("W")
    assert bytes(view) == b"Weights"
    assert store.read(digest) == b"weights"


def test_unknown_blob_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"blob 000000000000 is not in .*submit .* anew"):
        BlobStore(tmp_path).map("0" * 64)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../outside", "a\0b"])
def test_a_path_is_no_name_of_a_blob(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_text("secret")
    with pytest.raises(NotFound, match="no name of a blob"):
        BlobStore(tmp_path / "blobs").map(name)
