"""Blobs that arrive in parts, folders of sockets, and the driver of GPUs."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from det_jupyter.contract.host import blobs as module
from det_jupyter.contract.host import disk_space, paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.connection_files import (
    read_connection_file,
    socket_path,
    write_connection_file,
)
from det_jupyter.contract.host.disk_space import folder_without_room, is_no_room
from det_jupyter.contract.host.nvml_driver import DriverError, initialised_nvml, text_of
from det_jupyter.contract.host.socket_folders import keep_socket_folder, remove_socket_folder
from det_jupyter.errors import DetError


def test_a_blob_that_arrives_in_parts_is_synced_now_and_then_and_stored_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SYNC_BYTES", 4)
    synced: list[int] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(descriptor)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    store, data = BlobStore(tmp_path), b"0123456789"
    digest = hashlib.sha256(data).hexdigest()
    with store.receiving(digest) as take:
        for begin in range(0, 10, 2):
            take(data[begin : begin + 2])
        assert len(synced) == 2  # after 4 and 8 bytes
        assert not store.path(digest).exists()
    assert store.read(digest) == data
    other = hashlib.sha256(b"another").hexdigest()
    arrived = f"blob {other[:12]} arrived with other bytes"
    with pytest.raises(DetError, match=arrived), store.receiving(other) as take:
        take(data)
    assert not store.path(other).exists()


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    paths.runtime_dir().mkdir(parents=True, exist_ok=True)
    return paths.runtime_dir() / "master.sockets"


def test_a_folder_of_sockets_is_kept_with_its_content_while_it_is_ours(note: Path) -> None:
    folder = keep_socket_folder(note)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "socket").touch()
    folder.chmod(0o755)
    assert keep_socket_folder(note) == folder
    assert (folder / "socket").exists()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    moved = folder.with_name("det-moved")
    folder.rename(moved)
    folder.symlink_to(moved)  # another user's, say
    other = keep_socket_folder(note)
    assert other not in (folder, moved)
    folder.unlink()
    remove_socket_folder(note)
    assert not other.exists()
    paths.write_private(note, str(moved))
    remove_socket_folder(note)
    assert not moved.exists()
    assert not note.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_sockets_of_another_user_is_not_used(note: Path) -> None:
    folder = keep_socket_folder(note)
    os.chown(folder, 65534, 65534)
    other = keep_socket_folder(note)
    assert other != folder
    folder.rmdir()
    remove_socket_folder(note)


def test_a_folder_that_is_none_of_sockets_is_never_removed(note: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    paths.write_private(note, str(theirs))
    remove_socket_folder(note)
    assert theirs.exists()


def test_a_connection_file_names_five_sockets_and_a_key(note: Path) -> None:
    file = note.with_name("kernel.json")
    assert read_connection_file(file) == {}
    write_connection_file(file, prefix="/s/0", key="k")
    found = read_connection_file(file)
    names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    assert [found[name] for name in names] == [1, 2, 3, 4, 5]
    assert (found["ip"], found["transport"], found["key"]) == ("/s/0", "ipc", "k")
    assert socket_path("/s/0", 3) == Path("/s/0-3")


def full(name: object = None) -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", name)


def test_the_full_disk_is_that_of_the_error_or_of_the_first_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped = ValueError("no")
    wrapped.__cause__ = full(str(tmp_path / "file"))
    assert folder_without_room(wrapped) == str(tmp_path)
    assert folder_without_room(full(os.fsencode(tmp_path))) == str(tmp_path)
    denied = OSError(errno.EACCES, "Permission denied", str(tmp_path))
    assert folder_without_room(denied) == ""
    monkeypatch.setattr(disk_space, "why_no_room", lambda folder: str(folder) == "/full")
    assert folder_without_room(full(), ["/free", "/full", "/full/too"]) == "/full"
    assert folder_without_room(full(), ["/free"]) == ""


def test_a_full_disk_is_known_by_the_errors_of_sqlite_and_of_the_system() -> None:
    database = sqlite3.OperationalError("database or disk is full")
    assert not is_no_room(database)
    database.sqlite_errorcode = 13
    assert is_no_room(database)
    database.sqlite_errorcode = 13 | 3 << 8  # an extended code
    assert is_no_room(database)
    database.sqlite_errorcode = 5
    assert not is_no_room(database)
    assert is_no_room(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert not is_no_room(OSError(errno.EIO, "Input/output error"))
    looping = ValueError("no")
    looping.__context__ = looping
    assert not is_no_room(looping)


def test_the_driver_of_gpus_is_opened_or_it_is_said_why_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake: Any = ModuleType("det_fake_nvml")
    opened: list[bool] = []
    fake.nvmlInit = lambda: opened.append(True)
    monkeypatch.setitem(sys.modules, "det_fake_nvml", fake)
    monkeypatch.setenv("DET_JUPYTER_FAKE_NVML", "det_fake_nvml")
    assert initialised_nvml() is fake
    assert opened == [True]
    monkeypatch.setenv("DET_JUPYTER_FAKE_NVML", "det_missing_nvml")
    with pytest.raises(DriverError, match=r"^NVML does not work: .*det_missing_nvml"):
        initialised_nvml()
    assert [text_of(value) for value in (b"GPU-0", "GPU-1")] == ["GPU-0", "GPU-1"]
