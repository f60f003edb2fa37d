"""Disks that are full, or read-only, or flip bits: told, and in time."""

from __future__ import annotations

import os
from pathlib import Path
from traceback import walk_tb
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
import torch

from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.checkpoints.restore import read_state
from det_jupyter.pytorch.checkpoints.training_state import FORMAT, STATE_FILE, write_state
from det_jupyter.storage.directory import DirectoryStorage


def flip(file: Path, part: str) -> None:
    """Flip one bit of a part of the file."""
    with ZipFile(file) as archive:
        info = next(info for info in archive.infolist() if info.filename.endswith(part))
        content = archive.read(info)
    whole = bytearray(file.read_bytes())
    whole[whole.index(content) + len(content) // 2] ^= 4
    file.write_bytes(whole)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    weights = torch.arange(300.0)
    write_state(tmp_path, {"format": FORMAT, "models": [{"w": weights}], "arrays": {}})
    return tmp_path


@pytest.mark.parametrize("part", ["data/0", "data.pkl"])
def test_a_flipped_bit_is_told(saved: Path, part: str) -> None:
    flip(saved / STATE_FILE, part)
    with pytest.raises(CheckpointError, match=rf"state_dict\.pt is damaged: .*{part} in it"):
        read_state(saved)


@pytest.mark.parametrize("part", ["data/0", "version"])
def test_one_of_the_ranks_that_share_the_check_finds_it(saved: Path, part: str) -> None:
    flip(saved / STATE_FILE, part)
    found = 0
    for rank in range(3):
        try:
            state = read_state(saved, checked=slice(rank, None, 3))
        except CheckpointError as error:
            found += "is damaged" in str(error)
        else:
            assert state["models"][0]["w"].shape == (300,)
    assert found == 1


def test_a_file_that_was_written_without_checksums_is_read(saved: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        write_state(saved, {"format": FORMAT, "models": [], "arrays": {}})
    finally:
        torch.serialization.set_crc32_options(True)
    assert read_state(saved)["models"] == []


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / STATE_FILE).symlink_to("/dev/full")
    state = {"format": FORMAT, "models": [{"w": torch.zeros(9000)}], "arrays": {}}
    with pytest.raises(RuntimeError, match="enforce fail"):  # there is room: another reason
        write_state(folder, state)
    usage = SimpleNamespace(free=4096)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=rf"\(4096 bytes free\): '{tmp_path}'$"):
        write_state(folder, state)


def test_a_file_that_could_not_be_written_is_closed_while_its_error_is_handled(
    tmp_path: Path,
) -> None:
    """Else it would fill the disk after it is removed."""
    (tmp_path / STATE_FILE).symlink_to("/dev/full")
    state = {"format": FORMAT, "models": [{"w": torch.zeros(9000)}], "arrays": {}}
    before = os.listdir("/dev/fd")
    try:
        raise KeyError("of a rank that is left")
    except KeyError as earlier:
        (*_, (frame, _)) = walk_tb(earlier.__traceback__)
        with pytest.raises(RuntimeError, match="enforce fail") as caught:
            write_state(tmp_path, state)
        assert len(os.listdir("/dev/fd")) == len(before), caught
        assert frame.f_locals["state"] is state


def test_storage_that_cannot_be_written_is_told_before_anything_is_saved(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CheckpointError) as caught:
        DirectoryStorage(file / "checkpoints").check_writable()
    assert str(caught.value) == (
        f"checkpoint_storage: {file}/checkpoints cannot be written: Not a directory ({file})"
    )
    DirectoryStorage(tmp_path / "new" / "checkpoints").check_writable()
    assert list(tmp_path.iterdir()) == [file]
