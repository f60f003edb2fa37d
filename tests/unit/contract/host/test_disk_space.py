"""What counts as a disk without room."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import disk_space, paths
from det_jupyter.contract.host.tensorboards import board_folder, make_board_folder, running_boards


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


def test_a_stray_folder_beside_those_of_tensorboards_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    stray = board_folder(make_board_folder()).with_name("mine")
    stray.mkdir()
    (stray / "board.json").write_text("{}")
    assert list(running_boards()) == []
    assert stray.is_dir()
