"""Exports and imports of archives that fail half way, and files that would do harm."""

from __future__ import annotations

import errno
import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Client
from det_jupyter.client.sharing import archive_export, archive_import
from det_jupyter.client.sharing.archive_export import export_archive
from det_jupyter.client.sharing.archive_import import import_archive
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.errors import Conflict, DetError, MasterUnreachable
from det_jupyter.storage.directory import DirectoryDraft
from tests.integration.test_archives import (
    capsule_of,
    master,
    members_of,
    rewritten,
    train,
    trial_of,
)

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive with both checkpoints."""
    folder = tmp_path_factory.mktemp("here")
    with master(folder) as (routes, client):
        train(routes, folder, BlobStore(folder / "data" / "blobs"))
        return export_archive(client, 1, folder / "digits.zip", "all").path


def checkpoints_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "data" / "checkpoints").glob("*"))


@pytest.mark.parametrize(
    ("error", "kind"), [(FULL, DetError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_an_import_that_ends_between_two_checkpoints_leaves_none(
    archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    kind: type[BaseException],
) -> None:
    commit = DirectoryDraft.commit

    def failing(draft: DirectoryDraft) -> None:
        if draft.path.name.endswith("late"):
            raise error
        commit(draft)

    with master(tmp_path) as (_, client):
        monkeypatch.setattr(DirectoryDraft, "commit", failing)
        with pytest.raises(kind, match=r"^$|cannot be imported: No space left"):
            import_archive(client, archive)
        assert (checkpoints_in(tmp_path), client.experiments()) == ([], [])
        monkeypatch.setattr(DirectoryDraft, "commit", commit)
        assert import_archive(client, archive).stored.num_values == 4


def test_checkpoints_of_an_import_that_may_have_been_stored_are_kept(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = Client.change

    def unanswered(client: Client, request: Any) -> Any:
        change(client, request)
        raise MasterUnreachable("no answer")

    with master(tmp_path) as (_, client):
        monkeypatch.setattr(Client, "change", unanswered)
        with pytest.raises(MasterUnreachable):
            import_archive(client, archive)
        assert checkpoints_in(tmp_path) == ["good", "late"]
        monkeypatch.undo()
        assert import_archive(client, archive).stored.num_values == 4


def test_an_error_after_the_experiment_was_stored_keeps_its_checkpoints(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise Conflict("refused")

    with master(tmp_path) as (_, client):
        monkeypatch.setattr(archive_import, "store_data", refused)
        with pytest.raises(Conflict, match="refused"):
            import_archive(client, archive)
        assert checkpoints_in(tmp_path) == ["good", "late"]
        assert client.experiments()


def test_a_checkpoint_that_is_here_with_other_content_is_not_taken(
    archive: Path, tmp_path: Path
) -> None:
    def change(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
        members["checkpoints/good/code/w.pt"] = b"others"

    other = tmp_path / "other.zip"
    other.write_bytes(rewritten(archive, change))
    with master(tmp_path) as (_, client):
        import_archive(client, archive)
        with pytest.raises(
            DetError, match=r"checkpoint good is here with another content of 'code"
        ):
            import_archive(client, other)


def add_nan(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
    trial_of(manifest)["hparams"]["lr"] = float("nan")


def add_infinity(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
    trial_of(manifest)["rung_metrics"] = ["Infinity"]


def add_half_a_character(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
    trial_of(manifest)["hparams"]["lr"] = "\ud800"


def add_damaged_context(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
    digest = hashlib.sha256(b"no tar").hexdigest()
    members[f"blobs/{digest}"] = b"no tar"
    context = {"blob": digest, "num_files": 1, "size_bytes": 6}
    capsule_of(manifest)["context"] = context


def add_escapes(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["experiment"]["\x1b[31mred\nline"] = 1


@pytest.mark.parametrize(
    "change", [add_nan, add_infinity, add_half_a_character, add_damaged_context, add_escapes]
)
def test_what_cannot_be_sent_or_shown_is_refused_in_a_line(
    archive: Path, tmp_path: Path, change: Callable[..., None]
) -> None:
    bad = tmp_path / "bad.zip"
    bad.write_bytes(rewritten(archive, change))
    with master(tmp_path) as (_, client):
        with pytest.raises(DetError, match=r" is damaged.*; nothing was imp") as caught:
            import_archive(client, bad)
        assert str(caught.value).isprintable()
        assert checkpoints_in(tmp_path) == []


class Harm:
    """A pickle of it makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.mkdir, (self._folder,)


def test_nothing_of_an_archive_is_loaded_to_import_and_show_it(
    archive: Path, tmp_path: Path
) -> None:
    harm = pickle.dumps(Harm(tmp_path / "harm"))

    def change(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
        code = capsule_of(manifest)
        del members[f"blobs/{code['payload']}"]
        code["payload"] = hashlib.sha256(harm).hexdigest()
        members[f"blobs/{code['payload']}"] = members["checkpoints/good/state_dict.pth"] = harm

    bad = tmp_path / "bad.zip"
    bad.write_bytes(rewritten(archive, change))
    with master(tmp_path) as (_, client):
        number = import_archive(client, bad).stored.experiment_id
        assert client.code(number)
        assert client.checkpoints(number)
        assert not (tmp_path / "harm").exists()


def test_an_export_that_fails_keeps_the_file_that_was_there(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with master(tmp_path) as (_, client):
        import_archive(client, archive)
        file = tmp_path / "files" / "a.zip"
        file.parent.mkdir()
        file.write_bytes(b"before")
        for error in (FULL, KeyboardInterrupt()):
            monkeypatch.setattr(archive_export, "_add_checkpoint", raising(error))
            with pytest.raises((DetError, KeyboardInterrupt)):
                export_archive(client, 1, file)
            assert [path.read_bytes() for path in file.parent.iterdir()] == [b"before"]
        with pytest.raises(DetError, match="/dev/null: it is no regular file"):
            export_archive(client, 1, "/dev/null")
        assert Path("/dev/null").is_char_device()


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_what_no_import_would_take_is_not_exported(archive: Path, tmp_path: Path) -> None:
    with master(tmp_path) as (_, client):
        import_archive(client, archive)
        odd = tmp_path / "data" / "checkpoints" / "good" / "a\\b"
        odd.write_bytes(b"")
        with pytest.raises(Conflict, match=r"'checkpoints/good/a\\\\b' cannot be in an archive"):
            export_archive(client, 1, tmp_path / "a.zip")


def test_secrets_are_found_as_json_writes_them_and_in_the_configuration(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = json.dumps(
        {"cell": {"label": "Cell In[1]", "source": 'key = "pä\\"ss-word"'}}
    ).encode()

    def change(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
        code = capsule_of(manifest)
        del members[f"blobs/{code['sources']}"]
        code["sources"] = hashlib.sha256(cells).hexdigest()
        members[f"blobs/{code['sources']}"] = cells
        manifest["experiment"]["config"]["hyperparameters"]["api_key"] = "abcd1234"

    made = tmp_path / "made.zip"
    made.write_bytes(rewritten(archive, change))
    with master(tmp_path) as (_, client):
        import_archive(client, made)
        done = export_archive(client, 1, tmp_path / "a.zip")
        assert done.doubtful == ["the configuration"]
        monkeypatch.setenv("DB_PASSWORD", 'pä\\"ss-word')
        with pytest.raises(Conflict, match=r"would contain the value of .* variable DB_PASSWORD"):
            export_archive(client, 1, tmp_path / "a.zip")
        assert "manifest.json" in members_of(done.path)
