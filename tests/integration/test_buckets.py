"""Checkpoints in a bucket of a server that speaks S3."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from det_jupyter.agent.link.destinations import Bucket
from det_jupyter.contract.messages import StoredCheckpoint
from det_jupyter.contract.values.bucket_urls import parse_bucket_url
from det_jupyter.errors import BucketProblem
from det_jupyter.storage import METADATA_FILE
from det_jupyter.storage.buckets.leftovers import Keys, signed
from det_jupyter.storage.buckets.opening import ask_region, azure_config, open_bucket
from det_jupyter.storage.buckets.process import Transfers, transfers
from det_jupyter.storage.buckets.storage import BucketStorage
from det_jupyter.storage.copies import find_copy_problem, find_outer_checkpoint
from tests.bucket_keys import KEYS
from tests.bucket_server import Answer, BucketServer, error
from tests.integration.bucket_support import bucket, server
from tests.processes import wait_until
from tests.unit.storage.test_contract import StorageContract, store

__all__ = ["bucket", "server"]  # fixtures

_places: dict[Path, str] = {}


class TestBucketStorage(StorageContract):
    """What holds for every kind of storage."""

    out_of_reach = "there is no such bucket; create it, or correct its name"

    @pytest.fixture(autouse=True)
    def place(self, bucket: BucketServer, tmp_path: Path) -> None:
        """Set the location of the storages in this folder."""
        _places[tmp_path / "stored"] = f"{bucket.location}/team"
        _places[tmp_path / "file" / "stored"] = bucket.location.replace("/models", "/nothing")

    @staticmethod
    def make(root: Path) -> BucketStorage:
        """Return the storage that belongs to a folder."""
        return BucketStorage(_places[root])


@pytest.fixture
def storage(bucket: BucketServer) -> BucketStorage:
    """Return the storage in the bucket."""
    return BucketStorage(f"{bucket.location}/team")


DENIED = error("AccessDenied", "403 Forbidden")
# As Amazon answers: the request succeeds, and says which objects it could not delete.
UNDELETED = Answer(
    "200 OK",
    b"<DeleteResult><Error><Key>team/.det-check</Key><Code>AccessDenied</Code>"
    b"<Message>Access Denied</Message></Error></DeleteResult>",
)
LOOK = (
    "look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials where the master "
    "and its agents are started"
)


@pytest.mark.parametrize(
    ("method", "answer", "kind", "text"),
    [
        ("PUT", error("NoSuchBucket", "404 Not Found"), "absent",
         "there is no such bucket; create it, or correct its name in checkpoint_storage"),
        ("PUT", error("InvalidAccessKeyId", "403 Forbidden", AWSAccessKeyId="AKIAIOSFODNN7"),
         "refused", f"its keys are not accepted (InvalidAccessKeyId); {LOOK}"),
        ("PUT", error("SignatureDoesNotMatch", "403 Forbidden", StringToSign="AWS4 wJalrXUtnF"),
         "refused", f"its keys are not accepted (SignatureDoesNotMatch); {LOOK}"),
        ("PUT", error("RequestTimeTooSkewed", "403 Forbidden"), "refused",
         "the clock of this computer differs from the server's by more than it allows; set it "
         "(`timedatectl set-ntp true`)"),
        ("PUT", DENIED, "refused", "its keys do not allow to write objects (AccessDenied); give "
         "them that right, in a policy s3:PutObject"),
        ("POST", DENIED, "refused", "its keys do not allow to delete objects (AccessDenied); give "
         "them that right, in a policy s3:DeleteObject"),
        ("POST", UNDELETED, "refused", "its keys do not allow to delete objects (AccessDenied); "
         "give them that right, in a policy s3:DeleteObject"),
        ("GET", DENIED, "refused", "its keys do not allow to read objects (AccessDenied); give "
         "them that right, in a policy s3:GetObject"),
        ("PUT", error("InternalError", "500 Sorry"), "away", "answers InternalError"),
        ("PUT", Answer("503 Service Unavailable"), "away", "answers 503"),
        ("PUT", error("NotImplemented", "501 Not Implemented"), "refused",
         "its server lacks what is needed to write objects (NotImplemented); it has to take "
         "conditional writes (`If-None-Match: *`), as Amazon's and MinIO's do"),
    ],
)  # fmt: skip
def test_what_a_bucket_does_not_allow_is_said_before_anything_is_saved(
    bucket: BucketServer, storage: BucketStorage, method: str, answer: Answer, kind: str, text: str
) -> None:
    bucket.fail = lambda given, path: answer if given == method else None
    with pytest.raises(BucketProblem) as caught:
        storage.check_writable()
    message = str(caught.value)
    between = " " if kind == "away" else ": "
    assert (caught.value.kind, message) == (kind, f"{storage.location}{between}{text}")
    assert not any(secret in message for secret in ("AKIA", "AWS4", "wJalr"))


def test_keys_that_may_not_delete_leave_one_small_object_however_often_they_are_checked(
    bucket: BucketServer, storage: BucketStorage
) -> None:
    bucket.fail = lambda method, path: DENIED if method == "POST" else None
    for _ in range(2):
        with pytest.raises(BucketProblem, match="do not allow to delete"):
            storage.check_writable()
    assert list(bucket.objects()) == ["team/.det-check"]
    bucket.heal()
    storage.check_writable()
    assert bucket.objects() == {}


def test_checks_at_the_same_time_do_not_fail(bucket: BucketServer, storage: BucketStorage) -> None:
    def remove_before_it_is_read(method: str, path: str) -> None:
        if method == "GET" and path.endswith("/.det-check"):
            bucket.replace("team/.det-check", None)

    bucket.fail = remove_before_it_is_read
    storage.check_writable()
    assert bucket.objects() == {}


def test_server_that_is_not_there_is_away(bucket: BucketServer) -> None:
    with pytest.raises(BucketProblem, match="does not answer") as caught:
        BucketStorage("s3+http://127.0.0.1:9/models").check_writable()
    assert caught.value.kind == "away"


def test_bucket_that_fails_for_a_moment_is_tried_again(
    bucket: BucketServer, storage: BucketStorage
) -> None:
    answers = [error("InternalError", "500 Internal Server Error")] * 2
    bucket.fail = lambda method, path: answers.pop() if answers and method == "PUT" else None
    store(storage, "one")
    assert (answers, len(storage.files("one"))) == ([], 4)


def put(storage: BucketStorage, folder: Path, share: int, num_shares: int, **files: str) -> object:
    """Put the files of a share, and try to commit."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    transfers.ask("put", storage.location, "one", folder=str(folder), share=share)
    return transfers.ask(
        "commit", storage.location, "one", folder=str(folder), share=share, num_shares=num_shares
    )


def test_checkpoint_of_two_computers_is_there_when_the_files_of_both_are(
    storage: BucketStorage, tmp_path: Path
) -> None:
    chief, other = tmp_path / "chief", tmp_path / "other"
    own = {"a": "1", "metadata__json": '{"uuid": "one"}'}
    assert put(storage, chief, 0, 2, **own) == [False, 3]
    assert storage.files("one") == {}
    assert put(storage, other, 1, 2, b="22") == [False, 6]
    for _ in range(2):  # as after a crash
        assert put(storage, chief, 0, 2)[0]  # type: ignore[index]
        assert put(storage, other, 1, 2)[0]  # type: ignore[index]
    assert storage.files("one") == {"a": 1, "b": 2, METADATA_FILE: 15}
    with storage.reading("one") as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["a", "b", METADATA_FILE]


def test_a_checkpoint_that_is_there_is_not_replaced_by_another(
    bucket: BucketServer, storage: BucketStorage, tmp_path: Path
) -> None:
    put(storage, tmp_path / "first", 0, 1, a="1", metadata__json='{"uuid": "one"}')
    before = bucket.objects()
    with pytest.raises(BucketProblem, match="one: another checkpoint is there"):
        put(storage, tmp_path / "2", 0, 1, a="two", metadata__json='{"uuid": "one", "of": "2"}')
    assert bucket.objects() == before


def test_a_file_whose_name_no_object_can_have_is_named(
    storage: BucketStorage, tmp_path: Path
) -> None:
    named = r"one: a bucket cannot have a file with the name 'a\\tb'"
    with pytest.raises(BucketProblem, match=named):
        put(storage, tmp_path / "draft", 0, 1, **{"a\tb": "1", "metadata__json": "{}"})


@pytest.mark.parametrize(
    "location",
    [
        "s3+https://ann:pa55@minio/b",
        "s3://ann:pa55@b",
        "s3+http://b",
        "gs+https://minio/b",
        "s3://b?pa55",
        "azure://pa55.example.org/b",
    ],
)
def test_a_location_that_is_none_is_not_asked_and_its_password_not_shown(location: str) -> None:
    with pytest.raises(BucketProblem, match="expected the ") as caught:
        BucketStorage(location)
    assert "pa55" not in str(caught.value)


def test_files_that_are_there_are_not_put_again(
    bucket: BucketServer, storage: BucketStorage, tmp_path: Path
) -> None:
    files = {"a": "1", "b": "2", "metadata__json": '{"uuid": "one"}'}

    def deny(method: str, path: str) -> Answer | None:
        if method != "PUT" or not path.endswith("/b"):
            return None
        # Files are put at the same time.
        wait_until(lambda: "team/one/a" in bucket.objects(), "the other file is there")
        return DENIED

    bucket.fail = deny
    with pytest.raises(BucketProblem, match="write"):
        put(storage, tmp_path / "draft", 0, 1, **files)
    bucket.heal()
    bucket.requests.clear()
    assert put(storage, tmp_path / "draft", 0, 1) == [True, 4]
    puts = [path.rpartition("/")[2] for method, path in bucket.requests if method == "PUT"]
    assert puts == [".det-upload-0", "b", ".det-files-0.json", METADATA_FILE]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("weights", b"whose", "weights (its checksum is another)"),
        ("weights", b"who", "weights (3 of 5 bytes)"),
        ("code/a.py", None, "code/a.py (it is not there)"),
    ],
)
def test_what_is_damaged_is_named(
    bucket: BucketServer, storage: BucketStorage, name: str, content: bytes | None, why: str
) -> None:
    store(storage, "one")
    bucket.replace(f"team/one/{name}", content)
    with pytest.raises(BucketProblem, match="is damaged") as caught, storage.reading("one"):
        pass
    assert str(caught.value) == f"checkpoint {storage.location}/one is damaged: {why}"
    with storage.reading("one", "code/deep/b.py".__eq__) as folder:  # others can be read
        assert (folder / "code/deep/b.py").read_text() == "b = 2"


def test_a_checkpoint_of_determined_has_folders_and_no_list_and_is_read(
    bucket: BucketServer, storage: BucketStorage
) -> None:
    store(storage, "one")
    bucket.replace("team/one/.det-files-0.json", None)
    bucket.replace("team/one/code/", b"")
    with storage.reading("one") as folder:
        assert (folder / "code/deep/b.py").read_text() == "b = 2"
        assert (folder / METADATA_FILE).exists()


def test_an_answer_that_is_cut_off_is_no_file(
    bucket: BucketServer, storage: BucketStorage
) -> None:
    store(storage, "one")
    bucket.change = lambda method, path, content: (
        content[:-2] if method == "GET" and path.endswith("/weights") else content
    )
    with pytest.raises(BucketProblem) as caught, storage.reading("one"):
        pass
    assert caught.value.kind == "away"


def test_upload_goes_on_after_its_process_was_killed_and_leaves_no_parts(
    bucket: BucketServer, storage: BucketStorage, tmp_path: Path
) -> None:
    killed = threading.Event()

    def kill(method: str, path: str) -> None:
        if "partNumber=2" in path and not killed.is_set():
            killed.set()
            assert transfers.pid is not None
            os.kill(transfers.pid, signal.SIGKILL)
            time.sleep(0.1)

    bucket.fail = kill
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "weights").write_bytes(os.urandom(9 << 20))
    put(storage, draft, 0, 1, metadata__json='{"uuid": "one"}')
    assert killed.is_set()
    assert bucket.num_uploads() == 0
    with storage.reading("one") as folder:
        assert (folder / "weights").read_bytes() == (draft / "weights").read_bytes()


def test_files_of_one_checkpoint_are_one_request_among_any_number_of_others(
    bucket: BucketServer, storage: BucketStorage
) -> None:
    store(storage, "one")
    for number in range(1500):  # more than an answer has
        bucket.replace(f"team/{number}/{METADATA_FILE}", b"{}")
    bucket.requests.clear()
    assert len(storage.files("one")) == 4
    assert len(bucket.requests) == 1


def test_upload_in_parts_that_its_server_has_lost_is_made_anew(
    bucket: BucketServer, storage: BucketStorage, tmp_path: Path
) -> None:
    lost = error("NoSuchUpload", "404 Not Found")
    bucket.fail = lambda method, path: lost if method == "POST" and "uploadId=" in path else None
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "weights").write_bytes(bytes(9 << 20))
    with pytest.raises(BucketProblem, match="answers NoSuchUpload") as caught:
        put(storage, draft, 0, 1, metadata__json='{"uuid": "one"}')
    assert caught.value.kind == "away"  # so an agent repeats it until it succeeds
    bucket.heal()
    put(storage, draft, 0, 1)
    assert storage.files("one")["weights"] == 9 << 20
    assert bucket.num_uploads() == 0


def test_whichever_request_kills_its_process_the_checkpoint_is_there_once_and_whole(
    bucket: BucketServer, storage: BucketStorage, tmp_path: Path
) -> None:
    draft = tmp_path / "draft"
    files = {"a": "1", "b": "22", "metadata__json": '{"uuid": "one"}'}
    put(storage, draft, 0, 1, **files)
    num_requests = len(bucket.requests)
    whole = bucket.objects()
    for number in range(num_requests):
        bucket.clear()
        left = [number]

        def kill(method: str, path: str, left: list[int] = left) -> None:
            if left[0] == 0 and transfers.pid is not None:
                os.kill(transfers.pid, signal.SIGKILL)
            left[0] -= 1

        bucket.fail = kill
        put(storage, draft, 0, 1)
        assert bucket.objects() == whole, number
    assert num_requests == 10


def test_a_deletion_that_was_broken_off_is_completed(
    bucket: BucketServer, storage: BucketStorage
) -> None:
    store(storage, "one")
    bucket.fail = lambda method, path: (
        DENIED
        if method == "POST" and not any(name.endswith(METADATA_FILE) for name in bucket.objects())
        else None
    )
    with pytest.raises(BucketProblem, match="delete"):
        storage.delete("one")
    assert storage.files("one") == {}
    assert len(bucket.objects()) == 4
    bucket.heal()
    storage.delete("one")
    assert bucket.objects() == {}


def test_what_killed_uploads_have_left_is_found_with_its_size_and_removed(
    bucket: BucketServer, storage: BucketStorage, tmp_path: Path
) -> None:
    store(storage, "whole")
    bucket.replace("team/foreign/weights", b"of another tool")
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "a").write_bytes(b"12345")
    (draft / "weights").write_bytes(b"123")
    bucket.fail = lambda method, path: DENIED if path.endswith("/weights") else None
    with pytest.raises(BucketProblem):
        transfers.ask("put", storage.location, "killed", folder=str(draft), share=0)
    bucket.heal()
    address = f"{bucket.url}/models/team/killed/weights"
    answer = httpx.post(f"{address}?uploads").text
    upload = answer.partition("<UploadId>")[2].partition("<")[0]
    httpx.put(address, params={"partNumber": 1, "uploadId": upload}, content=b"x" * 100)
    assert bucket.num_uploads() == 1
    assert storage.sweep(60, ["killed"]) == []  # it may still be at work
    assert bucket.num_uploads() == 1
    for names in ([], ["whole"], ["killed"]):
        (left,) = storage.sweep(-60, names)
        assert (left.name, left.num_files) == ("killed", 3)  # the mark, `a`, and the upload
        assert left.num_bytes == 5 + 100
    assert bucket.num_uploads() == 0
    left_over = {name.split("/")[1] for name in bucket.objects()}
    assert left_over == {"whole", "foreign"}


def test_checkpoints_of_a_bucket_are_listed_with_what_is_missing_in_them(
    bucket: BucketServer, storage: BucketStorage, tmp_path: Path
) -> None:
    for uuid in ("whole", "cut", "lost", "torn"):
        store(storage, uuid)
    bucket.replace("team/cut/weights", b"who")
    bucket.replace(f"team/lost/{METADATA_FILE}", None)
    bucket.replace("team/torn/.det-files-0.json", b"{")
    bucket.replace("team/notes.txt", b"of somebody")
    bucket.replace("team/foreign/weights", b"of another tool")
    assert {each.uuid: each.problem for each in storage.scan()} == {
        "cut": "it is damaged: weights (3 of 5 bytes)",
        "lost": "it has no metadata.json: its upload or its deletion was broken off",
        "torn": "the list of its files is damaged",
        "whole": "",
    }


def test_an_upload_whose_files_are_gone_is_stored_only_if_its_commit_is_there(
    storage: BucketStorage, tmp_path: Path
) -> None:
    to, gone = Bucket(storage.location), tmp_path / "gone"
    assert asyncio.run(to.commit("one", gone, 0, 1)) is None  # a rank has deleted it
    store(storage, "one")
    assert asyncio.run(to.commit("one", gone, 0, 1)) == StoredCheckpoint(
        path=f"{storage.location}/one"
    )


def test_a_draft_on_a_full_disk_says_so(storage: BucketStorage, tmp_path: Path) -> None:
    store(storage, "one")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "weights").mkdir()
    with pytest.raises(IsADirectoryError):
        storage.download("one", tmp_path / "there")


def test_process_ends_when_nothing_is_asked_and_another_one_starts(
    bucket: BucketServer, storage: BucketStorage
) -> None:
    storage.check_writable()
    former = transfers.pid
    transfers.close()
    assert transfers.pid is None
    storage.check_writable()
    assert transfers.pid not in (None, former)


def test_requests_and_answers_that_are_longer_than_pipes_do_not_wait_for_each_other() -> None:
    def ask(number: int) -> str:
        with pytest.raises(BucketProblem) as raised:
            transfers.ask("files", f"{number}{'x' * 300_000}", "uuid")
        return str(raised.value)

    try:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(ask, range(32)))
        assert [answer.startswith(f"{n}x") for n, answer in enumerate(answers)] == [True] * 32
    finally:
        transfers.close()


def test_a_program_that_ends_does_not_wait_for_a_server_that_never_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    own = Transfers()
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as threads:
        location = f"s3+http://127.0.0.1:{silent.getsockname()[1]}/models"
        asked = threads.submit(own.ask, "files", location, "uuid")
        connection, _ = silent.accept()
        with connection:
            own.stop()
            for answer in (asked, threads.submit(own.ask, "files", location, "uuid")):
                with pytest.raises(BucketProblem, match="this program ends") as raised:
                    answer.result()
                assert raised.value.kind == "away"


def test_process_that_cannot_start_is_given_up(
    bucket: BucketServer, storage: BucketStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    transfers.close()
    with pytest.raises(
        BucketProblem, match=r"has ended 3 times, the last time with 1; see whethe"
    ):
        storage.check_writable()


def test_without_keys_it_is_said_where_they_are_looked_for(
    bucket: BucketServer, storage: BucketStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9/169.254.169.254")
    transfers.close()
    with pytest.raises(BucketProblem, match="no keys for it were found; set AWS_ACCESS_KEY_ID"):
        storage.check_writable()
    transfers.close()


def test_keys_of_a_profile_are_read_from_the_files_of_aws(
    bucket: BucketServer, storage: BucketStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    credentials = tmp_path / "credentials"
    credentials.write_text("[team]\naws_access_key_id = AKIA1\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_PROFILE", "team")
    transfers.close()
    store(storage, "one")
    assert len(storage.files("one")) == 4
    transfers.close()


def test_google_and_azure_have_their_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "AccountName=acme;AccountKey=a2V5;EndpointSuffix=core.windows.net"
    url = parse_bucket_url("azure://acme.blob.core.windows.net/models")
    assert azure_config(url, {"AZURE_STORAGE_CONNECTION_STRING": key}) == {
        "account_name": "acme", "account_key": "a2V5",
        "endpoint": "https://acme.blob.core.windows.net",
    }  # fmt: skip
    other = {"AZURE_STORAGE_CONNECTION_STRING": key.replace("acme", "another")}
    assert "account_key" not in azure_config(url, other)
    google = open_bucket("gs://models/team")
    assert (type(google).__name__, google.prefix) == ("GCSStore", "team")
    azure = open_bucket("azure://acme.blob.core.windows.net/models/team")
    assert (type(azure).__name__, azure.prefix) == ("AzureStore", "team")
    assert azure.config["endpoint"] == "https://acme.blob.core.windows.net"


def test_region_of_a_bucket_is_asked_of_the_server(bucket: BucketServer) -> None:
    assert ask_region(f"{bucket.url}/models") == "us-east-1"
    assert ask_region("http://127.0.0.1:9/models") == ""


def test_signature_is_that_of_the_example_in_the_documentation() -> None:
    """From "Authenticating Requests: Using the Authorization Header", GET Bucket Lifecycle."""
    keys = Keys(
        "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", "us-east-1"
    )
    at = datetime(2013, 5, 24, tzinfo=UTC)
    headers = signed("GET", "https://examplebucket.s3.amazonaws.com/", "lifecycle=", keys, at)
    assert headers["Authorization"].endswith(
        "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    )


def test_an_object_that_is_gone_is_not_waited_for(
    bucket: BucketServer, storage: BucketStorage, tmp_path: Path
) -> None:
    store(storage, "one")
    gone = error("NoSuchKey", "404 Not Found")
    bucket.fail = lambda method, path: gone if path.endswith("/weights") else None
    with pytest.raises(BucketProblem, match=r"an object to read is not there") as caught:
        storage.download("one", tmp_path)
    assert caught.value.kind == "absent"


def test_an_upload_is_not_committed_if_its_files_were_removed_meanwhile(
    bucket: BucketServer, storage: BucketStorage, tmp_path: Path
) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    for name in ("weights", METADATA_FILE):
        (draft / name).write_text('{"uuid": "one"}')
    transfers.ask("put", storage.location, "one", folder=str(draft), share=0)
    bucket.replace("team/one/weights", None)
    with pytest.raises(BucketProblem, match="weights was removed from the bucket during"):
        transfers.ask("commit", storage.location, "one", folder=str(draft), share=0, num_shares=1)
    assert storage.files("one") == {}
    storage.store("one", draft)  # as the next attempt
    assert storage.files("one").keys() == {"weights", METADATA_FILE}


def test_other_names_of_a_bucket_are_the_same_place(
    bucket: BucketServer, storage: BucketStorage
) -> None:
    store(storage, "one")
    path, root = f"{storage.location}/one", storage.location.removesuffix("/team")
    for same in (f"{root}//team/one", path.replace("127.0.0.1", "localhost")):
        assert find_copy_problem(path, same).endswith("are the same")
        assert find_copy_problem(same, path).endswith("are the same")
    assert find_outer_checkpoint(f"{path}/inner/folder") == path
    assert find_outer_checkpoint(storage.location) == ""
