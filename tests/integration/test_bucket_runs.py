"""What agents do with checkpoints in a bucket: upload, fetch, and wait for it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from det_jupyter.agent.link import bucket_files
from det_jupyter.agent.link import uploads as uploads_module
from det_jupyter.agent.link.fetching import RunFiles
from det_jupyter.agent.runs.run import AgentRun, new_run
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import CheckpointRef, CheckpointView, GangExited
from det_jupyter.contract.run.journal import CheckpointSaved, CheckpointShare, parse_line, to_line
from det_jupyter.errors import BucketProblem, LaunchError
from det_jupyter.master.background import deleting
from det_jupyter.master.background.deleting import Removed, remove_files
from det_jupyter.master.machine.model.commands import DeleteCheckpoints
from det_jupyter.master.service.address_checks import find_bucket_problems
from det_jupyter.storage.buckets import objects
from det_jupyter.storage.buckets.storage import BucketStorage, copies_dir
from det_jupyter.storage.directory import remove_tree
from tests.broken_network import broken_network
from tests.bucket_server import Answer, BucketServer, error
from tests.integration.agent_support import make_plan
from tests.integration.bucket_support import bucket, server
from tests.unit.agent.link.test_uploads import STEP, OfRun, chunk, saved, upload
from tests.unit.storage.test_contract import store

__all__ = ["bucket", "server"]  # fixtures

AWAY = Answer("503 Service Unavailable")


@pytest.fixture(autouse=True)
def copies(bucket: BucketServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty folder of copies of this computer; nothing waits for long."""
    monkeypatch.setattr(uploads_module, "_PAUSES_S", (0.01, 0.01))
    monkeypatch.setattr(uploads_module, "_SHARES_POLL_S", 0.01)
    monkeypatch.setattr(bucket_files, "_AWAY_S", 0.01)
    folder = copies_dir(paths.data_dir())
    if folder.exists():
        remove_tree(folder)
    return folder


def of_run(bucket: BucketServer) -> OfRun:
    """Return the uploads of a run whose checkpoints go to the bucket."""
    uploads = OfRun(None)
    if uploads.run.dir.path.exists():
        remove_tree(uploads.run.dir.path)
    uploads.run.dir.path.mkdir(parents=True)
    uploads.run.dir.unsent.mkdir()
    uploads.run.plan = make_plan("1.1.1", [], bucket=bucket.location)
    return uploads


def save(uploads: OfRun, folder: Path, uuid: str = "u1") -> str:
    """Do what the chief does; return the line of its record."""
    (folder / uuid).mkdir(parents=True)
    (folder / uuid / "weights").write_text("w")
    (folder / uuid / "metadata.json").write_text(json.dumps({"uuid": uuid}))
    (uploads.run.dir.unsent / uuid).touch()
    return saved(uuid, folder)


def test_record_is_sent_when_the_bucket_has_the_files(bucket: BucketServer, copies: Path) -> None:
    uploads = of_run(bucket)
    line = save(uploads, copies)
    step, record = upload(uploads, STEP, line)
    assert step == parse_line(STEP)
    assert isinstance(record, CheckpointSaved)
    assert record.path == f"{bucket.location}/u1"
    assert BucketStorage(bucket.location).files("u1").keys() == {"metadata.json", "weights"}
    assert list(uploads.run.dir.unsent.iterdir()) == []
    bucket.requests.clear()
    again = of_run(bucket)  # of the next agent process, which does not know of it
    assert upload(again, line) == [record]
    puts = [path for method, path in bucket.requests if method == "PUT"]
    assert [path.rpartition("/")[2] for path in puts] == [".det-upload-0", "metadata.json"]


def test_upload_waits_for_a_bucket_that_is_away_also_when_the_run_has_ended(
    bucket: BucketServer, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    uploads, waits = of_run(bucket), list[str]()
    line = save(uploads, copies)
    uploads.run.exited = GangExited(allocation_id="1.1.1", at=4.0, exit_codes={0: 0})

    def fail(method: str, path: str) -> Answer | None:
        if uploads.run.upload_wait is not None:
            waits.append(uploads.run.upload_wait.sentence)
        return AWAY if len(waits) < 5 else None

    bucket.fail = fail
    assert len(upload(uploads, line)) == 1
    reason = f"{bucket.location} answers 503"
    assert set(waits) == {f"keeps its last checkpoints, as {reason}; the training goes on"}
    assert (uploads.broken_off, uploads.run.upload_wait) == ([], None)


def test_failures_before_and_after_a_bucket_was_away_do_not_add_up(
    bucket: BucketServer, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)  # at the third failure
    denied = error("AccessDenied", "403 Forbidden")
    answers = [denied, *[AWAY] * 3] * 3  # the library itself tries three times what is away
    bucket.fail = lambda method, path: answers.pop(0) if answers else None
    uploads = of_run(bucket)
    assert len(upload(uploads, save(uploads, copies))) == 1
    assert (uploads.broken_off, answers) == ([], [])


def test_run_that_was_killed_gives_up_what_its_bucket_does_not_take_soon(
    bucket: BucketServer, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "_OF_KILLED_S", 0.1)  # others try for a minute
    bucket.fail = lambda method, path: AWAY
    uploads = of_run(bucket)
    line = save(uploads, copies)
    uploads.run.is_killed = True
    assert upload(uploads, line) == []
    assert len(uploads.broken_off) == 1


def test_run_ends_when_its_keys_are_taken_away(
    bucket: BucketServer, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    bucket.fail = lambda method, path: (
        error("AccessDenied", "403 Forbidden") if method == "PUT" else None
    )
    uploads = of_run(bucket)
    assert upload(uploads, STEP, save(uploads, copies)) == [parse_line(STEP)]
    ((message, no_room),) = uploads.broken_off
    assert message.startswith(
        f"checkpoint u1 could not be uploaded from agent b: {bucket.location}:"
    )
    assert "do not allow to write objects (AccessDenied)" in message
    assert not no_room


def test_checkpoint_of_two_computers_is_sent_when_both_have_uploaded(
    bucket: BucketServer, copies: Path, tmp_path: Path
) -> None:
    def share(number: int, **files: str) -> str:
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(text)
        return to_line(
            CheckpointShare(at=2.0, uuid="u1", share=number, num_shares=2, path=str(folder))
        )

    async def run() -> str:
        chief, other = of_run(bucket), of_run(bucket)
        whole = chunk(share(0, a="a", metadata__json='{"uuid": "u1"}'), saved("u1", copies))
        for _ in range(20):
            assert chief.of(whole) is None
            await asyncio.sleep(0.01)
        rest = chunk(share(1, b="b"), STEP)
        while (second := other.of(rest)) is None or second.text != STEP:
            await asyncio.sleep(0.01)
        while (sent := chief.of(whole)) is None:
            await asyncio.sleep(0.01)
        return sent.text

    record = parse_line(asyncio.run(run()))
    assert isinstance(record, CheckpointSaved)
    assert record.path == f"{bucket.location}/u1"
    files = BucketStorage(bucket.location).files("u1")
    assert list(files) == ["a", "b", "metadata.json"]


def test_checkpoint_that_a_rank_has_deleted_first_leaves_nothing(
    bucket: BucketServer, copies: Path
) -> None:
    uploads = of_run(bucket)
    line = save(uploads, copies)

    def delete(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("weights"):
            remove_tree(copies / "u1")

    bucket.fail = delete
    (record,) = upload(uploads, line)
    assert isinstance(record, CheckpointSaved)  # the record of its deletion is next
    assert (record.path, bucket.objects()) == (f"{bucket.location}/u1", {})


def run_of(bucket: BucketServer, path: str = "") -> AgentRun:
    """Return a run that begins with the checkpoint at a path."""
    ref = CheckpointRef(uuid=path.rpartition("/")[2], path=path, steps_completed=5)
    plan = make_plan("1.1.1", [], bucket=bucket.location, checkpoint=ref if path else None)
    run = new_run(plan, sockets=Path("/sockets"))
    if run.dir.path.exists():
        remove_tree(run.dir.path)
    run.dir.path.mkdir(parents=True)
    return run


def test_run_on_another_computer_begins_with_what_the_bucket_has(
    bucket: BucketServer, copies: Path
) -> None:
    store(BucketStorage(f"{bucket.location}/of/another"), "u1")  # which has trained before
    run, files = run_of(bucket, f"{bucket.location}/of/another/u1"), RunFiles(None)
    asyncio.run(files.prepare(run))
    assert run.plan.checkpoint is not None
    assert run.plan.checkpoint.path == str(copies / "u1")
    assert (copies / "u1" / "weights").read_text() == "whole"
    assert json.loads(run.dir.plan.read_text())["checkpoint"]["path"] == str(copies / "u1")
    bucket.requests.clear()
    asyncio.run(files.prepare(run_of(bucket, f"{bucket.location}/of/another/u1")))
    assert bucket.requests == []  # the copy is there, and the bucket was checked


def prepared(run: AgentRun) -> str:
    """Return why a run cannot be prepared."""
    with pytest.raises(LaunchError) as caught:
        asyncio.run(RunFiles(None).prepare(run))
    return str(caught.value)


def test_run_whose_checkpoints_could_not_be_saved_is_not_started(bucket: BucketServer) -> None:
    run = run_of(bucket)
    run.plan = run.plan.model_copy(update={"bucket": bucket.location + "s"})
    assert prepared(run) == (
        f"checkpoint_storage: {bucket.location}s: there is no such bucket; create it, or correct "
        "its name in checkpoint_storage"
    )
    absent = f"{bucket.location}/u7"
    assert prepared(run_of(bucket, absent)) == (
        f"checkpoint_storage: checkpoint u7: not in {bucket.location}"
    )


def test_run_waits_for_a_bucket_that_is_away_before_it_starts(bucket: BucketServer) -> None:
    run, waits = run_of(bucket), list[Any]()

    def fail(method: str, path: str) -> Answer | None:
        waits.append(run.upload_wait)
        return AWAY if len(waits) < 5 else None

    bucket.fail = fail
    asyncio.run(RunFiles(None).prepare(run))
    sentence = f"waits, as {bucket.location} answers 503, and goes on by itself"
    assert {wait.sentence for wait in waits if wait is not None} == {sentence}
    assert run.upload_wait is None


def test_checkpoint_that_a_rank_reads_is_fetched(bucket: BucketServer, copies: Path) -> None:
    run = run_of(bucket)
    run.dir.wanted.mkdir()

    def ask(uuid: str) -> str:
        request = run.dir.wanted / "1.json"
        request.write_text(json.dumps({"uuid": uuid, "is_saved": False}))
        asyncio.run(RunFiles(None)._serve(run, request))
        return request.with_suffix(".done").read_text()

    assert ask("u1") == f"checkpoint u1: not in {bucket.location}"
    store(BucketStorage(bucket.location), "u1")
    assert ask("u1") == ""
    assert (copies / "u1" / "weights").read_text() == "whole"


def test_copies_are_removed_when_they_were_not_used_for_a_week(
    bucket: BucketServer, copies: Path
) -> None:
    own = paths.data_dir() / "checkpoints" / "u2"  # the master's: they stay
    for folder in (copies / "u1", own):
        folder.mkdir(parents=True)
    RunFiles(None).remove_unused(before=2**33)
    assert (list(copies.iterdir()), own.exists()) == ([], True)


def deletion(bucket: BucketServer, *uuids: str) -> DeleteCheckpoints:
    """Return the command to delete checkpoints of experiment 1."""
    paths_of = {uuid: f"{bucket.location}/{uuid}" for uuid in uuids}
    return DeleteCheckpoints(experiment_id=1, location=bucket.location, paths=paths_of, cause=1)


def test_master_deletes_in_a_bucket_and_asks_one_that_is_away_once(
    bucket: BucketServer, tmp_path: Path
) -> None:
    for uuid in ("u1", "u2", "another"):
        store(BucketStorage(bucket.location), uuid)
    command = deletion(bucket, "u1", "u2", "gone")
    bucket.fail = lambda method, path: AWAY
    bucket.requests.clear()
    removed = remove_files(command, tmp_path)
    assert (removed.uuids, removed.is_away) == ([], True)
    assert removed.problems == [f"{bucket.location} answers 503"]
    assert len(bucket.requests) == 3  # the library has tried again
    bucket.heal()
    assert remove_files(command, tmp_path) == Removed(uuids=["u1", "u2", "gone"])
    assert {name.partition("/")[0] for name in bucket.objects()} == {"another"}


def test_deletion_is_repeated_when_the_bucket_is_back(
    bucket: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "_AWAY_S", 0.01)
    taken: list[Any] = []
    service: Any = SimpleNamespace(
        deletions=asyncio.Queue(),
        machine=SimpleNamespace(state=SimpleNamespace(checkpoints={})),
        take=taken.append,
    )

    async def run() -> None:
        bucket.fail = lambda method, path: AWAY
        await deleting._carry_out(service, deletion(bucket, "u1"))
        assert taken == []
        bucket.heal()
        await deleting._carry_out(service, await service.deletions.get())

    asyncio.run(run())
    assert [event.uuids for event in taken] == [["u1"]]


def test_broken_connections_lose_and_double_no_checkpoint(
    bucket: BucketServer, copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PART_BYTES", "_RANGE_BYTES"):  # an eighth, as all other sizes here
        monkeypatch.setattr(objects, name, 1 << 20)
    uuids = [f"u{number}" for number in range(1, 5)]
    with broken_network(bucket.url, seed=3) as network:
        network.most_bytes = (400, 4_000, 512 << 10, 5 << 20)
        location = bucket.location.replace(bucket.url, network.url)
        uploads = of_run(bucket)
        uploads.run.plan = make_plan("1.1.1", [], bucket=location)
        lines = [save(uploads, copies, uuid) for uuid in uuids]
        large = os.urandom(9 << 17)  # two parts
        (copies / "u2" / "weights").write_bytes(large)
        records = upload(uploads, *lines)
        assert [record.uuid for record in records if isinstance(record, CheckpointSaved)] == uuids

        storage = BucketStorage(location)
        again(lambda: storage.download("u2", tmp_path))
        assert (tmp_path / "weights").read_bytes() == large
        for uuid in uuids[:2]:
            again(partial(storage.delete, uuid))
    # A mark or a part may be left, if the request that removes it broke: `gc` finds them.
    there = [name for name in bucket.objects() if "/.det-upload-" not in name]
    names = ("weights", "metadata.json", ".det-files-0.json")
    assert sorted(there) == sorted(f"{u}/{name}" for u in uuids[2:] for name in names)
    assert network.num_broken > 10


@pytest.mark.parametrize("sent", [20, 60, -2])
def test_the_imitated_bucket_drops_a_request_that_is_cut_within_its_headers(
    bucket: BucketServer, sent: int
) -> None:
    request = (
        b"PUT /models/one HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\nContent-Length: 0\r\n\r\n"
    )
    url = urlsplit(bucket.url)
    for given in (request[:sent], request):
        with socket.create_connection((url.hostname, url.port)) as connection:
            connection.sendall(given)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1000)
        assert ("one" in bucket.objects()) == (given == request) == (b"200" in answer)


def again(do: Callable[[], object]) -> None:
    """Do something as the master and agents do: again while the bucket is away."""
    while True:
        try:
            do()
            return
        except BucketProblem as problem:
            if problem.kind != "away":
                raise


def test_experiments_of_two_masters_in_one_prefix_keep_to_their_own(
    bucket: BucketServer, copies: Path, tmp_path: Path
) -> None:
    for uuid in ("u1", "u2"):  # both are of an experiment 1
        upload(of_run(bucket), save(of_run(bucket), copies, uuid))
    assert remove_files(deletion(bucket, "u1"), tmp_path) == Removed(uuids=["u1"])
    assert {name.partition("/")[0] for name in bucket.objects()} == {"u2"}


def test_submission_waits_for_a_bucket_that_is_away_only_if_it_has_checkpoints(
    bucket: BucketServer,
) -> None:
    known = CheckpointView(
        uuid="u1", experiment_id=1, trial_id=1, path=f"{bucket.location}/u1", steps_completed=1,
        size_bytes=1, created_at=1.0,
    )  # fmt: skip

    def problems(*checkpoints: CheckpointView) -> list[str]:
        found = asyncio.run(find_bucket_problems(bucket.location, checkpoints))
        return [problem.text for problem in found]

    assert problems() == []
    bucket.fail = lambda method, path: AWAY
    assert problems(known.model_copy(update={"path": "/data/u1"})) == [
        f"{bucket.location} answers 503"
    ]
    assert problems(known) == []
    bucket.fail = lambda method, path: error("AccessDenied", "403 Forbidden")
    assert len(problems(known)) == 1
