"""Checkpoints: files, metadata, and copies in another folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from det_jupyter.client import Checkpoint
from det_jupyter.contract.messages import CheckpointView
from det_jupyter.errors import CheckpointError


def stored(folder: Path) -> Checkpoint:
    """Return a checkpoint with two files and a folder."""
    (folder / "code").mkdir(parents=True)
    (folder / "weights").write_text("1 2 3")
    (folder / "code" / "metadata.json").write_text("the code's own")
    (folder / "metadata.json").write_text(json.dumps({"uuid": "abc", "steps_completed": 7}))
    view = CheckpointView(
        uuid="abc", experiment_id=1, trial_id=2, steps_completed=7, path=str(folder),
        size_bytes=5, created_at=0.0,
    )  # fmt: skip
    return Checkpoint(view, folder.parent)


def test_it_is_copied_whole_and_once(tmp_path: Path) -> None:
    checkpoint = stored(tmp_path / "stored")
    target = checkpoint.download(tmp_path / "mine" / "abc")
    assert (target / "weights").read_text() == "1 2 3"
    assert (target / "code" / "metadata.json").read_text() == "the code's own"
    assert json.loads((target / "metadata.json").read_text())["uuid"] == "abc"
    (target / "weights").write_text("changed")
    checkpoint.download(target)
    assert (target / "weights").read_text() == "changed"


def test_files_that_are_selected_are_copied_alone(tmp_path: Path) -> None:
    checkpoint = stored(tmp_path / "stored")
    target = checkpoint.download(tmp_path / "mine", lambda path: path != "weights")
    assert [path.name for path in target.rglob("*") if path.is_file()] == ["metadata.json"]
    assert (target / "code" / "metadata.json").exists()  # the checkpoint's own is not there
    assert (checkpoint.download(target) / "weights").exists()  # so this copies all


def test_one_in_a_bucket_has_no_folder() -> None:
    view = CheckpointView(
        uuid="abc", experiment_id=1, trial_id=2, steps_completed=7, path="s3://models/abc",
        size_bytes=5, created_at=0.0,
    )  # fmt: skip
    with pytest.raises(
        CheckpointError, match=r"in a bucket \(s3://models/abc\); download\(\) copies"
    ):
        print(Checkpoint(view, Path()).path)


def test_by_default_it_goes_to_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert stored(tmp_path / "stored").download() == Path("checkpoints/abc")


def test_a_copy_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    checkpoint = stored(tmp_path / "stored")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights").write_text("1")
    assert (checkpoint.download(tmp_path / "mine") / "weights").read_text() == "1 2 3"


def test_its_metadata_are_read_and_a_gone_one_is_named(tmp_path: Path) -> None:
    checkpoint = stored(tmp_path / "stored")
    assert checkpoint.metadata["steps_completed"] == 7
    (tmp_path / "stored" / "metadata.json").unlink()
    with pytest.raises(CheckpointError, match=r"abc.*metadata\.json"):
        print(checkpoint.metadata)
