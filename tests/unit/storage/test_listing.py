"""Which files of a checkpoint's folder are uploaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.storage.listing import sizes_in


def test_links_are_followed_and_no_folder_is_walked_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tokenizer.json").write_text("{}")
    folder = tmp_path / "checkpoint"
    (folder / "inner").mkdir(parents=True)
    (folder / "state.pt").write_text("state")
    (folder / "tokenizer").symlink_to(elsewhere)
    (folder / "one.json").symlink_to(elsewhere / "tokenizer.json")
    (folder / "inner" / "back").symlink_to(folder)
    (folder / "lost").symlink_to(folder / "nothing")
    assert sizes_in(folder) == {"state.pt": 5, "tokenizer/tokenizer.json": 2, "one.json": 2}
    assert sorted(record.getMessage() for record in caplog.records) == [
        "checkpoint: 'back' leads back to its own folder",
        "checkpoint: 'lost' cannot be uploaded",
    ]


def test_a_folder_that_does_not_exist_has_no_files(tmp_path: Path) -> None:
    assert sizes_in(tmp_path / "nothing") == {}
