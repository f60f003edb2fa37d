"""What a checkpoint's files wait for: each is synced to the disk once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
