"""Checkpoints in buckets of Azure and Google: one contract, and what differs from S3."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.errors import BucketProblem
from det_jupyter.storage import METADATA_FILE
from det_jupyter.storage.buckets.process import transfers
from det_jupyter.storage.buckets.storage import BucketStorage
from tests import azurite
from tests.bucket_server import BUCKET, Answer, GoogleServer, error, serving_as
from tests.integration.bucket_support import only_keys
from tests.unit.storage.test_contract import StorageContract, store

NAMES = ["a b", "50%", "x%41y", "q?#[1]", "c+d=e&f", "æ/ü.pt", "deep/er/file~"]

_places: dict[Path, str] = {}


@pytest.fixture(scope="class")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Serve a container for the tests of a class, with the account's key for it."""
    if azurite.PROGRAM is None:
        pytest.skip("no Azurite")
    with azurite.serving() as found:
        keys = found | {"AZURE_STORAGE_ACCOUNT_KEY": azurite.KEY}
        with only_keys(keys, tmp_path_factory.mktemp("home")):
            yield found


@pytest.fixture(scope="class")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    """Serve a bucket for the tests of a class, with a token for it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with serving_as(GoogleServer) as server:
        keys = {"GOOGLE_BASE_URL": server.url, "GOOGLE_BEARER_TOKEN": server.token}
        with only_keys(keys, tmp_path_factory.mktemp("home")):
            yield server


class BucketContract(StorageContract):
    """What holds for a bucket of every service. `location` is that of an empty bucket."""

    out_of_reach = "there is no such bucket; create it, or correct its name"

    @pytest.fixture(autouse=True)
    def place(self, location: str, tmp_path: Path) -> None:
        """Set the location of the storages in the test's folder, each test's being empty."""
        _places[tmp_path / "stored"] = f"{location}/{tmp_path.name}"
        _places[tmp_path / "file" / "stored"] = location.replace(f"/{BUCKET}", "/nothing")

    @staticmethod
    def make(root: Path) -> BucketStorage:
        """Return the storage that belongs to a folder."""
        return BucketStorage(_places[root])

    @pytest.fixture
    def draft(self, tmp_path: Path) -> Path:
        """Return a folder with a metadata.json."""
        folder = tmp_path / "draft"
        folder.mkdir()
        (folder / METADATA_FILE).write_text('{"uuid": "one"}')
        return folder

    def test_a_large_file_is_put_in_parts_and_read_in_ranges(
        self, storage: BucketStorage, draft: Path
    ) -> None:
        (draft / "weights").write_bytes(os.urandom((20 << 20) + 1))
        storage.store("one", draft)
        with storage.reading("one") as folder:
            assert (folder / "weights").read_bytes() == (draft / "weights").read_bytes()

    def test_files_have_any_names(self, storage: BucketStorage, draft: Path) -> None:
        for name in NAMES:
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_text(name)
        storage.store("one", draft)
        with storage.reading("one") as folder:
            assert {name: (folder / name).read_text() for name in NAMES} == {
                name: name for name in NAMES
            }
        assert storage.delete("one", NAMES[:3]) > 0
        assert storage.files("one").keys() == {METADATA_FILE, *NAMES[3:]}
        storage.delete("one")
        assert storage.sweep(-60) == []

    def test_a_checkpoint_that_is_there_is_not_replaced_by_another(
        self, storage: BucketStorage, draft: Path
    ) -> None:
        for _ in range(2):  # as after a crash
            storage.store("one", draft)
        (draft / METADATA_FILE).write_text('{"uuid": "one", "of": "another"}')
        with pytest.raises(BucketProblem, match="one: another checkpoint is there"):
            storage.store("one", draft)
        assert storage.files("one") == {METADATA_FILE: 15}

    def test_what_a_killed_upload_has_left_is_found_and_removed(
        self, storage: BucketStorage, draft: Path
    ) -> None:
        store(storage, "whole")
        (draft / "weights").write_text("12345")
        transfers.ask("put", storage.location, "killed", folder=str(draft), share=0)
        assert storage.sweep(60, ["killed"]) == []  # it may still be at work
        for names in ([], ["whole"], ["killed"]):
            (left,) = storage.sweep(-60, names)
            assert (left.name, left.num_files) == ("killed", 3)
        assert storage.sweep(-60) == []
        assert [(each.uuid, each.problem) for each in storage.scan()] == [("whole", "")]


@pytest.mark.long
class TestAzure(BucketContract):
    """What holds for every bucket, and the keys of Azure."""

    @pytest.fixture
    def location(self, emulator: dict[str, str]) -> str:
        """Return the location of the container."""
        return azurite.LOCATION

    @pytest.mark.parametrize(
        ("rights", "use", "doing"),
        [
            ("rdl", BucketStorage.check_writable, "write"),
            ("wdlc", lambda storage: storage.has("one"), "read"),
            ("rwdc", lambda storage: storage.files("one"), "list"),
        ],
    )  # deleting with a shared access signature is not in Azurite
    def test_what_keys_do_not_allow_is_said(
        self, emulator: dict[str, str], storage: BucketStorage, tmp_path: Path,
        rights: str, use: Callable[[BucketStorage], Any], doing: str,
    ) -> None:  # fmt: skip
        transfers.close()
        keys = emulator | {"AZURE_STORAGE_SAS_TOKEN": azurite.sas_token(rights)}
        with (
            only_keys(keys, tmp_path),
            pytest.raises(BucketProblem, match=f"do not allow to {doing} objects") as caught,
        ):
            use(storage)
        assert caught.value.kind == "refused"
        assert "sig" not in str(caught.value)

    def test_key_is_read_from_a_connection_string(
        self, emulator: dict[str, str], storage: BucketStorage, tmp_path: Path
    ) -> None:
        text = f"AccountName={azurite.ACCOUNT};AccountKey={azurite.KEY}"
        transfers.close()
        with only_keys(emulator | {"AZURE_STORAGE_CONNECTION_STRING": text}, tmp_path):
            store(storage, "one")
            assert len(storage.files("one")) == 4


DENIED = error("AccessDenied", "403 Forbidden")


class TestGoogle(BucketContract):
    """What holds for every bucket, and what Google answers in another way than S3."""

    @pytest.fixture
    def location(self, server: GoogleServer) -> Iterator[str]:
        """Return the location of the bucket."""
        yield server.location
        server.heal()

    @pytest.mark.parametrize(
        ("method", "query", "doing"),
        [
            ("PUT", "", "write"),
            ("GET", "", "read"),
            ("GET", "?", "list"),
            ("DELETE", "", "delete"),
        ],
    )
    def test_what_keys_do_not_allow_is_said_before_anything_is_saved(
        self, server: GoogleServer, storage: BucketStorage, method: str, query: str, doing: str
    ) -> None:
        def deny(given: str, path: str) -> Answer | None:
            return DENIED if given == method and ("?" in path) == bool(query) else None

        server.fail = deny
        with pytest.raises(BucketProblem, match=f"do not allow to {doing} objects") as caught:
            storage.check_writable()
        assert caught.value.kind == "refused"

    def test_token_that_is_not_accepted_is_said(
        self, server: GoogleServer, storage: BucketStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "token", "another")
        with pytest.raises(BucketProblem, match=r"its keys are not accepted .*GOOGLE_APP"):
            storage.check_writable()

    def test_objects_that_others_delete_meanwhile_do_not_stop_a_deletion(
        self, server: GoogleServer, storage: BucketStorage
    ) -> None:
        store(storage, "one")

        def delete_before(method: str, path: str) -> Any:
            if method == "DELETE" and path.endswith("/code/a.py"):
                server.replace(path.removeprefix(f"/{BUCKET}/"), None)

        server.fail = delete_before
        storage.delete("one")
        prefix = storage.location.removeprefix(f"{server.location}/")
        assert not any(name.startswith(prefix) for name in server.objects())
