"""Checkpoints that arrive in parts."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from det_jupyter.errors import CheckpointError, Conflict
from det_jupyter.master.service.reports import checkpoint_inbox
from det_jupyter.master.service.reports.checkpoint_inbox import CheckpointInbox, write_part
from det_jupyter.storage.directory import DirectoryStorage


@pytest.fixture
def inbox(tmp_path: Path) -> CheckpointInbox:
    """Return the inbox of an empty data folder."""
    return CheckpointInbox(tmp_path)


def found(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "checkpoints").iterdir())


def test_checkpoint_is_there_when_all_its_files_are(
    inbox: CheckpointInbox, tmp_path: Path
) -> None:
    inbox.put("u1", "a/b", 0, b"ab")
    inbox.put("u1", "a/b", 2, b"cd")
    with pytest.raises(Conflict, match="not all files have arrived"):
        inbox.commit("u1", {"a/b": 4, "c": 1})
    inbox.put("u1", "a/b", 0, b"abcd")
    inbox.commit("u1", {"a/b": 4})
    assert (tmp_path / "checkpoints/u1/a/b").read_bytes() == b"abcd"


def test_second_upload_of_a_checkpoint_changes_nothing_and_leaves_nothing(
    inbox: CheckpointInbox, tmp_path: Path
) -> None:
    inbox.put("u1", "a", 0, b"first")
    stored = inbox.commit("u1", {"a": 5})  # the answer is lost
    assert stored.path == str(tmp_path / "checkpoints/u1")
    inbox.put("u1", "a", 0, b"other")
    assert inbox.commit("u1", {"a": 5}) == stored
    assert found(tmp_path) == ["u1"]
    assert (tmp_path / "checkpoints/u1/a").read_bytes() == b"first"


def test_upload_that_does_not_go_on_is_removed(
    inbox: CheckpointInbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.put("u1", "a", 0, b"a")
    inbox.put("u2", "a", 0, b"a")
    assert found(tmp_path) == [".part-upload-u1", ".part-upload-u2"]
    monkeypatch.setattr(checkpoint_inbox, "_DRAFT_S", -1.0)
    inbox.put("u3", "a", 0, b"a")
    assert found(tmp_path) == [".part-upload-u3"]


def fail_to_commit(inbox: CheckpointInbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be full when the upload u1 is committed."""

    def full(*_: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr("det_jupyter.storage.directory._sync_tree", full)
        with pytest.raises(OSError, match="no space left"):
            inbox.commit("u1", {"a": 1})


def test_upload_whose_commit_fails_can_begin_again(
    inbox: CheckpointInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.put("u1", "a", 0, b"a")
    fail_to_commit(inbox, monkeypatch)
    inbox.put("u1", "a", 0, b"a")
    inbox.commit("u1", {"a": 1})


@pytest.mark.parametrize("name", ["", ".", "/a", "../a", "a/../../b", "a\0b"])
def test_name_that_is_no_path_in_a_checkpoint_is_refused(
    inbox: CheckpointInbox, name: str
) -> None:
    with pytest.raises(CheckpointError, match="expected the path of a file in a folder"):
        inbox.put("u1", name, 0, b"a")


@pytest.mark.parametrize("uuid", ["", ".part-u1", "a/b", "a\0b"])
def test_name_that_is_no_checkpoints_is_refused(inbox: CheckpointInbox, uuid: str) -> None:
    with pytest.raises(CheckpointError, match="expected the name of a checkpoint"):
        inbox.put(uuid, "a", 0, b"a")


def test_file_whose_beginning_was_lost_with_a_master_gets_no_hole(inbox: CheckpointInbox) -> None:
    with pytest.raises(Conflict, match="bytes before 2 are gone"):
        inbox.put("u1", "a", 2, b"cd")
    with pytest.raises(Conflict, match="not all files have arrived"):
        inbox.commit("u1", {"a": 4})


def test_upload_for_which_there_is_no_room_leaves_nothing(
    inbox: CheckpointInbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.put("u1", "a", 0, b"a")
    free = shutil.disk_usage(tmp_path).free
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_inbox, "_RESERVE_BYTES", 2 * free)
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/checkpoints'"):
            inbox.put("u1", "a", 1, b"b")
    assert found(tmp_path) == []
    with pytest.raises(Conflict, match="not all files have arrived"):
        inbox.commit("u1", {"a": 1})


def test_other_files_leave_room_for_the_database_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events"
    write_part(path, 0, b"a")
    monkeypatch.setattr(checkpoint_inbox, "_RESERVE_BYTES", 2 * shutil.disk_usage(tmp_path).free)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_part(path, 1, b"b")
    assert path.read_bytes() == b"a"


def test_checkpoint_of_several_agents_is_there_when_each_has_committed_its_files(
    inbox: CheckpointInbox, tmp_path: Path
) -> None:
    inbox.put("u1", "a", 0, b"a")
    inbox.put("u1", "b", 0, b"bb")
    with pytest.raises(Conflict, match="not all files have arrived"):
        inbox.commit("u1", {"b": 3}, 1, 2)
    waiting = inbox.commit("u1", {"a": 1}, 0, 2)
    assert (waiting.path, inbox.commit("u1", {"a": 1}, 0, 2).path) == ("", "")
    assert 0.0 <= waiting.silent_s < 10.0
    stored = inbox.commit("u1", {"b": 2}, 1, 2)
    assert stored.path == str(tmp_path / "checkpoints/u1")
    assert inbox.commit("u1", {"a": 1}, 0, 2) == stored
    assert found(tmp_path) == ["u1"]


def test_agent_that_has_no_files_any_more_is_told_whether_there_is_a_checkpoint(
    inbox: CheckpointInbox,
) -> None:
    inbox.put("u1", "a", 0, b"a")
    with pytest.raises(Conflict, match="not all files have arrived"):
        inbox.commit("u1", {})
    stored = inbox.commit("u1", {"a": 1})
    assert inbox.commit("u1", {}) == stored


def test_agents_that_upload_at_once_share_a_draft(inbox: CheckpointInbox, tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda name: inbox.put("u1", name, 0, name.encode()), names):
            pass
        stored = list(
            threads.map(
                lambda name: inbox.commit("u1", {name: len(name)}, names.index(name), len(names)),
                names,
            )
        )
    assert any(each.path for each in stored)
    assert inbox.files("u1") == {name: len(name) for name in names}


def test_share_arrives_while_a_rank_on_the_masters_computer_still_writes_its_own(
    inbox: CheckpointInbox, tmp_path: Path
) -> None:
    draft = DirectoryStorage(tmp_path / "checkpoints", is_own=True).begin("u1")
    inbox.put("u1", "a", 0, b"a")
    assert inbox.commit("u1", {"a": 1}, 1, 2).path == ""
    folder = draft.become_share()
    (draft.path / "b").write_bytes(b"b")
    draft.commit()
    assert folder.is_dir()
    inbox.put("u1", "b", 0, b"b")
    assert inbox.commit("u1", {"b": 1}, 0, 2).path == str(tmp_path / "checkpoints" / "u1")
    assert inbox.files("u1") == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("name", "is_accepted"),
    [
        ("a" * 255, True),
        ("a" * 256, False),
        ("a/" + "é" * 127 + "x", True),
        ("a/" + "é" * 128 + "/b", False),  # in bytes
        ("/".join(["a" * 99] * 20), True),
        ("/".join(["a" * 99] * 20) + "a", True),
        ("/".join(["a" * 99] * 20) + "/a", False),  # 2001 bytes
        ("/".join("a" * 200), True),
        ("/".join("a" * 201), False),
    ],
)
def test_path_that_a_file_system_could_not_have_is_refused(name: str, is_accepted: bool) -> None:
    if is_accepted:
        assert str(checkpoint_inbox.inside(name)) == name
        return
    with pytest.raises(CheckpointError, match="the path of a file is too long"):
        checkpoint_inbox.inside(name)


def test_folder_and_file_of_one_name_are_refused(inbox: CheckpointInbox) -> None:
    inbox.put("u1", "a", 0, b"x")
    with pytest.raises(CheckpointError, match="a file and a folder have this name"):
        inbox.put("u1", "a/b", 0, b"x")
    inbox.put("u1", "c/d", 0, b"x")
    with pytest.raises(CheckpointError, match="'c': a file and a folder have this name"):
        inbox.put("u1", "c", 0, b"x")
    assert inbox.commit("u1", {"a": 1, "c/d": 1}).path


def test_files_that_no_agent_has_committed_are_in_no_checkpoint(
    inbox: CheckpointInbox, tmp_path: Path
) -> None:
    inbox.put("u1", "a", 0, b"a")
    inbox.put("u1", "stray", 0, b"b")
    with pytest.raises(Conflict, match="not all files have arrived"):
        inbox.commit("u1", {"a": 1})
    assert found(tmp_path) == []  # it is uploaded again
    inbox.put("u1", "a", 0, b"a")
    assert inbox.commit("u1", {"a": 1}).path


def test_upload_that_begins_again_is_no_leftover_for_others(
    inbox: CheckpointInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.put("u1", "a", 0, b"a")
    fail_to_commit(inbox, monkeypatch)
    inbox.put("u1", "a", 0, b"a")
    inbox.put("u2", "a", 0, b"a")  # a new upload removes those that were left
    assert inbox.commit("u1", {"a": 1}).path
