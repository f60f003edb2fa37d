"""What an agent on another computer fetches, and how long it stays there."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from det_jupyter.agent.link import fetching
from det_jupyter.agent.link.fetching import RunFiles, remove_folder
from det_jupyter.agent.runs.run import AgentRun, new_run
from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.contract.host import blobs, paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import (
    AgentCredentials,
    Capsule,
    CheckpointRef,
    GangPlan,
    Loss,
    RemoteStart,
)
from det_jupyter.errors import LaunchError
from tests.integration.agent_support import make_plan

CREDENTIALS = AgentCredentials(agent="b", url="https://127.0.0.1:1", certificate="", token="t")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the agent's folder of checkpoints."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return paths.data_dir() / "checkpoints"


def test_trials_that_start_from_one_checkpoint_fetch_it_once(folder: Path) -> None:
    names = ["a?b", "c#d", "e/f"]
    fetched = []

    async def answer(request: httpx.Request) -> httpx.Response:
        fetched.append(name := request.url.params["name"])
        await asyncio.sleep(0.01)
        return httpx.Response(200, content=name)

    async def run() -> None:
        files, limit = RunFiles(CREDENTIALS), asyncio.Semaphore(4)
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://m") as http:
            fetch = [
                files._fetch_checkpoint(http, "u1", dict.fromkeys(names, 3), limit)
                for _ in range(3)
            ]
            await asyncio.gather(*fetch)
            os.utime(folder / "u1", (1, 1))
            await files._fetch_checkpoint(http, "u1", dict.fromkeys(names, 3), limit)
            assert (folder / "u1").stat().st_mtime > 1  # it is in use

    (folder / ".fetched-u1").mkdir(parents=True)  # by an agent that was killed
    (folder / ".fetched-u1" / "old").touch()
    asyncio.run(run())
    assert sorted(path.name for path in (folder / "u1").iterdir()) == ["a?b", "c#d", "e"]
    assert sorted(fetched) == names
    assert all((folder / "u1" / name).read_text() == name for name in names)


def test_trials_that_were_captured_with_the_same_values_fetch_a_blob_once(folder: Path) -> None:
    content, fetched = b"captured", []
    digest = hashlib.sha256(content).hexdigest()

    async def answer(request: httpx.Request) -> httpx.Response:
        fetched.append(request.url.path)
        await asyncio.sleep(0.01)
        return httpx.Response(200, content=content)

    async def run() -> None:
        files, limit = RunFiles(CREDENTIALS), asyncio.Semaphore(4)
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://m") as http:
            await asyncio.gather(*(files._fetch_blob(http, digest, limit) for _ in range(3)))
            os.utime(files._blobs.path(digest), (1, 1))
            await files._fetch_blob(http, digest, limit)
            assert files._blobs.path(digest).stat().st_mtime > 1  # it is in use

    asyncio.run(run())
    assert fetched == [f"/api/v1/agents/b/blobs/{digest}"]
    assert BlobStore(paths.data_dir() / "blobs").read(digest) == content


def test_a_large_blob_is_synced_while_it_arrives(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = list[int](), os.fsync

    def note(file: int) -> None:
        synced.append(os.fstat(file).st_size)
        sync(file)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(blobs, "_SYNC_BYTES", 20)
    content = bytes(range(65))
    store = BlobStore(folder / "blobs")
    with store.receiving(hashlib.sha256(content).hexdigest()) as take:
        for start in range(0, 65, 10):
            take(content[start : start + 10])
    assert synced == [20, 40, 60, 65]


def test_what_was_not_used_for_a_week_is_removed_unless_a_run_is_open(folder: Path) -> None:
    for name in ("old", "new", ".fetched-old"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    blob = paths.data_dir() / "blobs" / "ab" / "abc"
    blob.parent.mkdir(parents=True)
    blob.touch()
    written, growing = (paths.data_dir() / "tensorboard" / "1" / name for name in ("1", "2"))
    for trial in (written, growing):
        trial.mkdir(parents=True)
        (trial / "events.out.tfevents.1").touch()
    os.utime(written / "events.out.tfevents.1", (1, 1))
    for path in (folder / "old", folder / ".fetched-old", blob, written, growing):
        os.utime(path, (1, 1))

    async def trim(*runs: Any) -> None:
        task = asyncio.create_task(RunFiles(CREDENTIALS).keep_trimmed(lambda: runs))
        await asyncio.sleep(0.1)
        task.cancel()

    asyncio.run(trim(SimpleNamespace(id="1.1.1")))
    assert (folder / "old").exists()
    asyncio.run(trim())
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert not blob.exists()
    assert (written.exists(), growing.exists()) == (False, True)


def test_an_agent_that_is_always_busy_removes_what_no_run_uses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_TRIM_S", 0.001)
    monkeypatch.setattr(fetching, "_KEPT_S", -1000.0)  # without a run, all would be removed
    folder.mkdir(parents=True)
    rounds, remove = list[float](), RunFiles.remove_unused

    def counted(*given: Any) -> None:
        remove(*given)
        rounds.append(given[1])

    monkeypatch.setattr(RunFiles, "remove_unused", counted)

    async def two_rounds() -> None:
        before = len(rounds)
        while len(rounds) < before + 2:
            await asyncio.sleep(0.001)

    async def play() -> None:
        runs: list[Any] = [SimpleNamespace(id="1.1.1")]
        trimming = asyncio.create_task(RunFiles(CREDENTIALS).keep_trimmed(lambda: runs))
        await two_rounds()
        for name, at in (("used", time.time() + 1), ("old", 1)):
            (folder / name).mkdir()
            os.utime(folder / name, (at, at))
        runs.append(SimpleNamespace(id="2.1.1"))
        await two_rounds()
        assert (folder / "old").exists()  # the older run may use it
        del runs[0]  # never none
        await two_rounds()
        assert not (folder / "old").exists()
        trimming.cancel()

    asyncio.run(play())
    assert (folder / "used").exists()


def test_folder_of_which_a_part_could_not_be_removed_is_no_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "u1").mkdir(parents=True)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # the agent is killed
    remove_folder(folder / "u1")
    assert not (folder / "u1").exists()


def refused(_: httpx.Request) -> httpx.Response:
    """Return a refusal, which arrives in parts as from a network."""

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"problems": [{"path": "", '
        yield b'"text": "there is no such file"}]}'

    return httpx.Response(404, content=parts())


def test_refusal_of_a_file_is_the_answer_to_the_rank_that_has_requested_the_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/files"):
            return refused(request)  # the checkpoint was deleted meanwhile
        return httpx.Response(200, json={"files": {"a": 1}})

    transport = httpx.MockTransport(answer)
    monkeypatch.setattr(
        fetching,
        "open_http",
        lambda _: httpx.AsyncClient(transport=transport, base_url="http://m"),
    )
    run = new_run(make_plan("1.1.1", []), sockets=folder)
    run.dir.wanted.mkdir(parents=True)
    request = run.dir.wanted / "1.json"
    request.write_text('{"uuid": "u1", "is_saved": false}')
    asyncio.run(RunFiles(CREDENTIALS)._serve(run, request))
    assert not request.exists()
    assert request.with_suffix(".done").read_text() == (
        "the master answered 404: there is no such file"
    )


def test_an_agent_that_ends_fetches_nothing_more_for_its_ranks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(make_plan("1.1.1", []), sockets=folder)
    run.dir.wanted.mkdir(parents=True)
    (run.dir.wanted / "1.json").write_text('{"uuid": "u1", "is_saved": false}')
    begun: list[str] = []

    async def fetch(_: RunFiles, run: AgentRun, uuid: str, *, is_saved: bool) -> None:
        begun.append(uuid)
        await asyncio.Event().wait()

    async def serve() -> None:
        serving = asyncio.create_task(RunFiles(CREDENTIALS).serve_ranks({run.id: run}))
        while not begun:
            await asyncio.sleep(0.01)
        serving.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task(), serving}
        await asyncio.wait({serving})
        await asyncio.sleep(0)
        assert [task.cancelled() for task in others] == [True]

    monkeypatch.setattr(RunFiles, "_fetch_wanted", fetch)
    asyncio.run(serve())
    assert begun == ["u1"]


def test_requests_are_looked_up_again_after_no_file_could_be_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(make_plan("1.1.1", []), sockets=folder)
    run.dir.wanted.mkdir(parents=True)
    request = run.dir.wanted / "1.json"
    request.write_text("")  # is no request
    glob, failures = Path.glob, [OSError(errno.EMFILE, "Too many open files")]

    def fail_once(path: Path, pattern: str) -> Iterator[Path]:
        if failures:
            raise failures.pop()
        return glob(path, pattern)

    async def serve() -> None:
        task = asyncio.create_task(RunFiles(CREDENTIALS).serve_ranks({run.id: run}))
        while not request.with_suffix(".done").exists():
            await asyncio.sleep(0.01)
        task.cancel()

    monkeypatch.setattr(fetching, "_REQUESTS_S", 0.01)
    monkeypatch.setattr(Path, "glob", fail_once)
    asyncio.run(serve())


def test_start_that_the_master_refuses_fails_with_its_sentences(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = httpx.MockTransport(refused)
    monkeypatch.setattr(
        fetching,
        "open_http",
        lambda _: httpx.AsyncClient(transport=transport, base_url="http://m"),
    )
    run = new_run(make_plan("1.1.1", []), sockets=folder)
    with pytest.raises(
        StartFailed, match=r"the master answered 404: there is no such file$"
    ) as caught:
        asyncio.run(RunFiles(CREDENTIALS).prepare(run))
    assert caught.value.loss is None


class Unreachable(RunFiles):
    """Whose first attempts fail."""

    def __init__(self, num_failures: int) -> None:
        super().__init__(CREDENTIALS)
        self.num_left = num_failures

    async def _prepare(self, http: httpx.AsyncClient, run: AgentRun) -> None:
        if self.num_left:
            self.num_left -= 1
            raise httpx.ConnectError("no route")


def test_start_is_tried_again_while_the_master_cannot_be_reached(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fetching, "_PAUSE_S", 0.0)
    monkeypatch.setattr(fetching, "open_http", lambda _: httpx.AsyncClient())
    run = new_run(make_plan("1.1.1", []), sockets=folder)
    files = Unreachable(3)
    with caplog.at_level(logging.INFO):
        asyncio.run(files.prepare(run))
    assert files.num_left == 0
    told = [record.getMessage() for record in caplog.records]
    assert told == ["allocation=1.1.1 is prepared again: ConnectError: no route"] * 3
    monkeypatch.setattr(fetching, "_RETRIED_S", -1.0)
    with pytest.raises(StartFailed, match="could not be fetched from https") as caught:
        asyncio.run(Unreachable(1).prepare(run))
    assert caught.value.loss is Loss.MASTER


def test_a_shared_folder_has_to_have_the_masters_file(tmp_path: Path) -> None:
    (tmp_path / "probe").touch()
    asyncio.run(fetching._check_shared("b", tmp_path, "probe"))
    with pytest.raises(LaunchError, match=r"on agent b is not the folder .*No such file"):
        asyncio.run(fetching._check_shared("b", tmp_path, "probe"))


def test_a_shared_folder_that_does_not_answer_does_not_hold_up_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hang(_: Path) -> None:
        threading.Timer(0.5, answers.set).start()
        answers.wait(600)

    monkeypatch.setattr(Path, "unlink", hang)
    monkeypatch.setattr(fetching, "_FOLDER_S", 0.05)
    with pytest.raises(LaunchError, match=r"on agent b does not answer within 0\.05 s"):
        asyncio.run(fetching._check_shared("b", tmp_path, "probe"))


class Source(RunFiles):
    """Fetches from a master that is played by a function."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        super().__init__(CREDENTIALS)
        self.requested: list[str] = []
        self._answer = answer

    async def get_ready(self, run: AgentRun) -> None:
        """Do what `prepare` does, over a connection to that master."""

        def answer(request: httpx.Request) -> httpx.Response:
            path = request.url.path.removeprefix("/api/v1/agents/b/")
            self.requested.append(f"{request.method} {path}")
            return self._answer(request)

        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://m") as http:
            await self._prepare(http, run)


@pytest.mark.parametrize(("is_shared", "is_probed"), [(True, True), (False, False), (True, False)])
def test_all_that_a_run_needs_is_fetched_before_it_starts(
    folder: Path, tmp_path: Path, is_shared: bool, is_probed: bool
) -> None:
    contents = [b"code", b"cells", b'{"values": {"TOKEN": "secret"}}']
    payload, sources, environment = [hashlib.sha256(each).hexdigest() for each in contents]
    capsule = Capsule(entrypoint="T", payload=payload, sources=sources, environment=environment)
    own, other = (
        CheckpointRef(uuid=uuid, path=f"/master/{uuid}", steps_completed=5)
        for uuid in ("u1", "u2")
    )
    plan = make_plan("1.1.1", [], capsule=capsule, checkpoint=own, warm_start=other)
    run = new_run(plan, sockets=tmp_path / "sockets")
    run.prepare()
    probe = tmp_path / "probe"
    probe.touch()
    start = RemoteStart(
        storage=str(tmp_path) if is_shared else None,
        probe=probe.name if is_probed else "",  # "": the master could make none there
        checkpoints={"u1": {"state": 5}},
    )

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/start"):
            return httpx.Response(200, content=start.model_dump_json())
        if "/blobs/" in path:
            found = [each for each in contents if hashlib.sha256(each).hexdigest() in path]
            return httpx.Response(200, content=found[0])
        return httpx.Response(200, content=b"state")

    source = Source(answer)
    asyncio.run(source.get_ready(run))
    assert source.requested[0] == "POST runs/1.1.1/start"
    assert run.environment == {"TOKEN": "secret"}
    store = BlobStore(paths.data_dir() / "blobs")
    assert [store.read(digest) for digest in (payload, sources)] == contents[:2]
    assert not store.path(environment).exists()  # secrets are kept in memory alone
    assert (folder / "u1" / "state").read_bytes() == b"state"
    assert run.plan.checkpoint == own.model_copy(update={"path": str(folder / "u1")})
    assert run.plan.warm_start == other  # that is where all computers see it
    assert GangPlan.model_validate_json(run.dir.plan.read_bytes()) == run.plan
    assert run.dir.wanted.exists() is not is_shared
    assert probe.exists() is not is_probed


class Answers:
    """A master that answers requests for a checkpoint one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: int | None) -> None:
        self.answers = list(answers)  # a status; None: no connection
        self.now = 0.0
        monkeypatch.setattr(fetching, "open_http", lambda _: self._open())
        monkeypatch.setattr(fetching, "_PAUSE_S", 0.0)
        clock = SimpleNamespace(monotonic=lambda: self.now, time=time.time)
        monkeypatch.setattr(fetching, "time", clock)

    def _open(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer), base_url="http://m")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/checkpoints/u1"):
            return httpx.Response(200, content=b"state")
        self.now += 10.0
        status = self.answers.pop(0)
        if status is None:
            raise httpx.ConnectError("refused", request=request)
        if status != 200:
            return httpx.Response(status, json={"problems": [{"path": "", "text": "no"}]})
        return httpx.Response(200, content=b'{"files": {"state": 5}}')


@pytest.mark.parametrize(
    ("answers", "is_saved", "num_left", "problem"),
    [
        ([200], False, 0, ""),
        ([None, None, 200], False, 0, ""),
        ([404, 404, 200], True, 0, ""),  # another rank has saved it, and it is on its way
        ([404, 200], False, 1, "no"),
        ([409, 200], True, 1, "no"),
        ([None] * 9, False, 2, "refused"),  # for a minute
        ([404] * 300, True, 0, "no"),
    ],
)
def test_a_checkpoint_that_a_rank_has_requested_is_tried_again_while_it_may_come(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answers: list[int | None],
    is_saved: bool,
    num_left: int,
    problem: str,
) -> None:
    run = new_run(make_plan("1.1.1", []), sockets=folder)
    run.prepare()
    run.dir.wanted.mkdir()
    request = run.dir.wanted / "u1.json"
    request.write_text(json.dumps({"uuid": "u1", "is_saved": is_saved}))
    master = Answers(monkeypatch, *answers)
    caplog.set_level(logging.INFO, logger=fetching.__name__)
    asyncio.run(RunFiles(CREDENTIALS)._serve(run, request))
    assert not request.exists()
    told = request.with_suffix(".done").read_text()
    assert problem in told
    assert bool(told) is bool(problem)
    if len(answers) < 9:
        assert len(master.answers) == num_left
    assert (folder / "u1" / "state").exists() is not bool(problem)
    outcome = f"allocation=1.1.1 has requested a checkpoint: {told or 'fetched'}"
    assert caplog.messages[-1] == outcome
