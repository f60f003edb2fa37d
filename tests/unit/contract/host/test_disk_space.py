"""What counts as a disk without room."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import disk_space, paths
from det_jupyter.contract.host.tensorboards import board_folder, make_board_folder, running_boards
from det_jupyter.master.service.disks import disks_of


@pytest.mark.parametrize(
    ("code", "is_full"),
    [
        (errno.ENOSPC, True),
        (errno.EDQUOT, True),
        (errno.EMFILE, False),
        (errno.EIO, False),
        (errno.EACCES, False),
    ],
)
def test_only_a_disk_without_room_is_said_to_be_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, is_full: bool
) -> None:
    def refuse(**_: Any) -> Any:
        raise OSError(code, os.strerror(code))

    assert disk_space.why_no_room(tmp_path) == ""
    monkeypatch.setattr(disk_space, "TemporaryFile", refuse)
    assert disk_space.why_no_room(tmp_path) == (os.strerror(code) if is_full else "")


def mounted(monkeypatch: pytest.MonkeyPatch, *, total: int, free: int, flag: int = 0) -> None:
    fields = (512, 512, total, free, free, 0, 0, 0, flag, 255)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))


def test_a_file_system_that_does_not_report_its_size_lets_writers_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounted(monkeypatch, total=0, free=0)  # as FUSE reports it if a driver has no statfs
    room = disk_space.room_of(tmp_path)
    assert room is not None
    assert not room.is_short(10**9)
    assert disk_space.is_enough_room(tmp_path, 10**9)
    assert disks_of({str(tmp_path): room}) == []


def test_a_mount_that_is_read_only_keeps_no_writer_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounted(monkeypatch, total=1000, free=0)
    assert disk_space.room_of(tmp_path) is not None
    mounted(monkeypatch, total=1000, free=0, flag=os.ST_RDONLY)
    assert disk_space.room_of(tmp_path) is None  # the write fails, and its error says why


def test_a_stray_folder_beside_those_of_tensorboards_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    stray = board_folder(make_board_folder()).with_name("mine")
    stray.mkdir()
    (stray / "board.json").write_text("{}")
    assert list(running_boards()) == []
    assert stray.is_dir()
