"""Deletions remove files and rows; files that are not checkpoints stay."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import Delete, DropCheckpoints, MasterInfo, State
from det_jupyter.contract.run.journal import CheckpointSaved, RankFailure, Record
from det_jupyter.errors import ConfigError, NotFound
from det_jupyter.master.background.cleanup import remove_leftovers
from det_jupyter.master.background.deleting import Removed, delete, remove_files
from det_jupyter.master.machine.model.commands import DeleteCheckpoints, DeleteExperiment
from det_jupyter.master.machine.rules.retention import pending_deletions
from det_jupyter.master.service.committing.restoring import restore_machine
from det_jupyter.storage.directory import DirectoryStorage
from det_jupyter.storage.globs import check_globs, must_match
from tests.integration.master_support import (
    AGENT,
    Bench,
    MasterProcess,
    batches,
    bench_with_trial,
    first_step,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_client,
    make_request,
    make_text_chunk,
    master_process,
    started,
    validation,
)
from tests.problems import sentences_of
from tests.processes import wait_until


def make_checkpoint(root: Path, uuid: str, *, metadata: Any = None) -> Path:
    folder = root / uuid
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "state.pt").write_bytes(b"0" * 100)
    text = json.dumps({"uuid": uuid} if metadata is None else metadata)
    (folder / "metadata.json").write_text(text)
    return folder


def saved(root: Path, uuid: str, steps: int) -> CheckpointSaved:
    """Return the record of a checkpoint whose files exist."""
    path = str(make_checkpoint(root, uuid))
    return CheckpointSaved(
        at=float(steps), uuid=uuid, steps_completed=steps, path=path, size_bytes=1, metadata={}
    )


def failure(error: str) -> RankFailure:
    return RankFailure(at=2.0, rank=0, error=error, traceback="", where="here", final=False)


# Files


@contextmanager
def busy_writer(root: Path) -> Iterator[None]:
    """Begin checkpoints endlessly, as trials that save do: each removes leftovers."""
    is_over = threading.Event()

    def write(name: str) -> None:
        storage = DirectoryStorage(root)
        for number in count():
            if is_over.is_set():
                return
            storage.begin(f"{name}-{number}").discard()

    writers = [threading.Thread(target=write, args=[name]) for name in ("one", "other")]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        is_over.set()
        for writer in writers:
            writer.join()


def checkpoints_of(folder: Path | None, **places: Path) -> DeleteCheckpoints:
    return DeleteCheckpoints(
        experiment_id=1,
        location=str(folder) if folder else None,
        paths={uuid: str(path) for uuid, path in places.items()},
        cause=1,
    )


def test_checkpoints_are_removed_beside_trials_that_save(tmp_path: Path) -> None:
    places = {f"old{i}": make_checkpoint(tmp_path, f"old{i}") for i in range(10)}
    for folder in places.values():
        for number in range(40):
            (folder / "deep" / f"{number}.pt").touch()
    with busy_writer(tmp_path):
        removed = remove_files(checkpoints_of(tmp_path, **places), tmp_path / "home")
    assert removed == Removed(uuids=list(places))
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_removed_and_one_that_is_gone_is_gone(tmp_path: Path) -> None:
    root, home = tmp_path / "storage", tmp_path / "home"
    one, other = make_checkpoint(root, "one"), make_checkpoint(root, "other")
    command = checkpoints_of(root, one=one, gone=root / "gone")
    for _ in range(2):
        assert remove_files(command, home) == Removed(uuids=["one", "gone"])
        assert list(root.iterdir()) == [other]


def test_files_of_a_checkpoint_are_removed_and_then_all_of_it(tmp_path: Path) -> None:
    root, outside = tmp_path / "storage", tmp_path / "outside"
    one, other = make_checkpoint(root, "one"), make_checkpoint(root, "other")
    outside.mkdir()
    (outside / "x.pt").touch()
    (one / "link").symlink_to(outside)
    (one / "deep" / "optimizer.pt").write_text("12345")
    (one / "notes.txt").write_text("123")
    before = sum(path.lstat().st_size for path in one.rglob("*") if path.is_file())
    command = replace(checkpoints_of(root, one=one), globs=["deep/opt*", "**/x.pt", "metadata.*"])
    for _ in range(2):
        assert remove_files(command, tmp_path) == Removed(left_bytes={"one": before - 5})
    assert (one / "metadata.json").exists()
    assert (outside / "x.pt").exists()
    (one / "link").unlink()
    for _ in range(2):
        assert remove_files(replace(command, globs=["**"]), tmp_path) == Removed(uuids=["one"])
    assert list(root.iterdir()) == [other]


@pytest.mark.parametrize("glob", ["", "/etc/*", "../*", "a/../../b", "**/.."])
def test_patterns_that_lead_out_of_a_checkpoint_are_refused(glob: str) -> None:
    with pytest.raises(ConfigError, match=r"glob: got .* expected a pattern of files in the"):
        check_globs(["*.pt", glob])


def test_patterns_that_match_nothing_are_refused_with_what_there_is(tmp_path: Path) -> None:
    one, files = str(make_checkpoint(tmp_path, "one")), DirectoryStorage(tmp_path).files("one")
    must_match(one, files, ["*.none", "deep/*"])
    with pytest.raises(
        NotFound, match=r"no file of checkpoint one matches \*\.none; it has .*deep/"
    ):
        must_match(one, files, ["*.none"])
    with pytest.raises(NotFound, match="cannot find checkpoint two in"):
        must_match(str(tmp_path / "two"), DirectoryStorage(tmp_path).files("two"), ["*"])


def test_without_a_storage_folder_of_its_own_a_checkpoint_is_in_our_data_folder(
    tmp_path: Path,
) -> None:
    one = make_checkpoint(tmp_path / "checkpoints", "one")
    assert remove_files(checkpoints_of(None, one=one), tmp_path) == Removed(uuids=["one"])
    assert not one.exists()


def test_what_an_interrupted_removal_has_left_is_removed(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "one").rename(tmp_path / ".part-deleted-one")
    command = checkpoints_of(tmp_path, one=tmp_path / "one")
    assert remove_files(command, tmp_path) == Removed(uuids=["one"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_deletion", [True, False])
def test_a_checkpoint_that_a_killed_rank_did_not_complete_is_removed(
    tmp_path: Path, is_deletion: bool
) -> None:
    root, home = tmp_path / "storage", tmp_path / "home"
    (root / ".part-cut-off").mkdir(parents=True)
    (root / ".part-cut-off" / "state.pt").touch()
    mine = make_checkpoint(root, "mine")
    begun = DirectoryStorage(root).begin("begun")
    (root / ".part-cut-again").mkdir()
    if is_deletion:
        command = DeleteExperiment(
            experiment_id=1, trial_ids=(1,), location=str(root), paths={}, cause=1
        )
        remove_files(command, home)
    else:
        remove_leftovers([str(root), str(tmp_path / "gone")], home)
    assert sorted(root.iterdir()) == [begun.path, mine]
    begun.discard()


def test_a_checkpoint_that_a_killed_rank_did_not_record_is_deleted_with_its_experiment(
    tmp_path: Path,
) -> None:
    root = tmp_path / "checkpoints"
    origin = {"experiment_id": 1, "trial_id": 7}
    others: dict[str, dict[str, Any]] = {
        "copied by a user": {"uuid": "unrecorded"},
        "of another experiment": {"experiment_id": 2},
        "of another trial": {"trial_id": 8},
        "recorded": {},
    }
    of_others = [
        make_checkpoint(root, name, metadata={"uuid": name, **origin, **changes})
        for name, changes in others.items()
    ]
    of_others.append(make_checkpoint(root, "without origin"))
    unrecorded = make_checkpoint(root, "unrecorded", metadata={"uuid": "unrecorded", **origin})
    command = DeleteExperiment(experiment_id=1, trial_ids=(7,), location=None, paths={}, cause=1)
    elsewhere = replace(command, location=str(root))
    now = time.time()
    spans, earlier = {(1, 7): (now - 60, now + 60)}, {(1, 7): (now + 30, now + 60)}
    for each, deletes in ((elsewhere, False), (command, True)):
        assert remove_files(each, tmp_path, ["recorded"], earlier) == Removed()
        assert unrecorded.exists()
        assert remove_files(each, tmp_path, ["recorded"], spans) == Removed()
        assert unrecorded.exists() is not deletes
    assert sorted(root.iterdir()) == sorted(of_others)


def test_links_are_not_followed(tmp_path: Path) -> None:
    precious = make_checkpoint(tmp_path / "elsewhere", "linked")
    root = tmp_path / "storage"
    inside = make_checkpoint(root, "inside")
    (inside / "out").symlink_to(precious)
    (root / "linked").symlink_to(precious)
    command = checkpoints_of(root, inside=inside, linked=root / "linked")
    removed = remove_files(command, tmp_path)
    assert removed.uuids == ["inside"]
    assert removed.problems == [
        f"left {root / 'linked'} alone: it is not the folder of a checkpoint of this name"
    ]
    assert (precious / "deep" / "state.pt").exists()
    assert (root / "linked").is_symlink()


@pytest.mark.parametrize(
    ("uuid", "place"),
    [
        ("one", "elsewhere/one"),  # not in the storage folder
        ("one", "storage/deeper/one"),
        ("one", "storage/two"),  # another checkpoint's
        ("..", "storage/.."),
        (".hidden", "storage/.hidden"),
        ("a/b", "storage/a/b"),
    ],
)
def test_what_is_not_where_this_checkpoint_would_be_is_left_alone(
    tmp_path: Path, uuid: str, place: str
) -> None:
    path = tmp_path / place
    (tmp_path / "storage").mkdir()
    path.mkdir(parents=True, exist_ok=True)
    (path / "metadata.json").write_text(json.dumps({"uuid": uuid}))
    command = checkpoints_of(tmp_path / "storage", **{uuid: path})
    removed = remove_files(command, tmp_path)
    assert removed.uuids == []
    assert removed.problems[0].startswith(f"left {path} alone: it is not checkpoint {uuid!r}")
    assert (path / "metadata.json").exists()


@pytest.mark.parametrize("metadata", [{"uuid": "other"}, [], "text", {}])
def test_a_folder_that_does_not_say_that_it_is_this_checkpoint_is_left_alone(
    tmp_path: Path, metadata: Any
) -> None:
    one = make_checkpoint(tmp_path, "one", metadata=metadata)
    removed = remove_files(checkpoints_of(tmp_path, one=one), tmp_path)
    assert removed.uuids == []
    assert (one / "deep" / "state.pt").exists()


def test_a_storage_folder_that_is_not_there_is_a_problem_and_not_a_success(tmp_path: Path) -> None:
    root = tmp_path / "not mounted"
    removed = remove_files(checkpoints_of(root, one=root / "one"), tmp_path)
    problem = f"cannot find the storage folder {root}; is it mounted?"
    assert removed == Removed(problems=[problem])


def test_the_runs_of_an_experiment_are_removed_and_no_others(tmp_path: Path) -> None:
    for run in ("1.1.1", "1.12.2", "11.1.1", "2.1.1"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        (tmp_path / "runs" / run / "journal-0").write_text("{}")
    command = DeleteExperiment(
        experiment_id=1, trial_ids=(1, 12), location=None, paths={}, cause=1
    )
    assert remove_files(command, tmp_path) == Removed()
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["11.1.1", "2.1.1"]


# A master without HTTP


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the data directory of a private home."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return paths.data_dir()


@pytest.fixture
def bench(home: Path) -> Iterator[Bench]:
    """Return a master whose first trial has just been started."""
    with bench_with_trial(home / "det.sqlite3") as bench:
        yield bench


def settle(bench: Bench) -> None:
    """Carry out the deletions of a master, also those of a former one."""

    async def run() -> None:
        task = asyncio.create_task(delete(bench.service))
        while pending_deletions(bench.service.machine.state):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def finish(bench: Bench, *records: Record, run: str = "1.1.1") -> None:
    """Let a run have these records, print something, and complete."""
    said: list[Record] = [started(), first_step(), *records, *last_words()]
    bench.report(make_chunk(said, run=run))
    bench.report(make_text_chunk("hello\n", stream="output-0", run=run), gang_exited(run))


def rows(home: Path, table: str) -> int:
    db = sqlite3.connect(home / "det.sqlite3")
    try:
        (num,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(num)
    finally:
        db.close()


def test_a_deleted_experiment_leaves_no_rows_and_no_files(bench: Bench, home: Path) -> None:
    root = home / "checkpoints"
    (home / "runs" / "1.1.1").mkdir(parents=True)
    finish(bench, batches(1, [0.5] * 5), validation(5, 0.1), saved(root, "a", 5))
    asyncio.run(bench.service.submit(make_request()))
    bench.report(gang_started("2.2.1"))
    finish(bench, batches(1, [0.4] * 5), validation(5, 0.2), saved(root, "b", 5), run="2.2.1")
    bench.service.apply(Delete(experiment_id=1))
    assert bench.service.views.experiment(1).state is State.DELETING
    settle(bench)
    with pytest.raises(NotFound):
        bench.service.views.experiment(1)
    with pytest.raises(NotFound):
        bench.service.views.trial(1)
    assert [path.name for path in root.iterdir()] == ["b"]
    assert list((home / "runs").iterdir()) == []
    assert bench.store.feed.after(0, 1, 1000) == []
    assert bench.logs() == []
    assert bench.store.offsets_of("1.1.1") == {}
    assert bench.store.progress_of(1) is None
    other = bench.service.views.experiment(2)
    assert other.state is State.COMPLETED
    assert other.trials[0].steps_completed == 100
    assert [line.text for line in bench.log_page(2, rank=0).lines] == ["hello"]
    assert set(bench.store.offsets_of("2.2.1")) == {"journal-0", "output-0"}
    assert restore_machine(bench.store).state == bench.service.machine.state


def test_many_rows_are_deleted_in_parts(bench: Bench, home: Path) -> None:
    bench.report(make_text_chunk("line\n" * 4500, stream="output-0"))
    assert rows(home, "logs") == 4500
    parts = list(bench.store.delete_experiment(1, [1]))
    assert rows(home, "logs") == 0
    assert len(parts) >= 9


def test_a_deletion_that_fails_says_why_and_succeeds_when_that_is_gone(
    bench: Bench, home: Path
) -> None:
    root = home / "checkpoints"
    finish(bench, saved(root, "a", 5))
    metadata = root / "a" / "metadata.json"
    text = metadata.read_text()
    metadata.unlink()
    bench.service.apply(Delete(experiment_id=1))
    settle(bench)
    view = bench.service.views.experiment(1)
    assert view.state is State.DELETE_FAILED
    assert view.message == (
        f"left {root / 'a'} alone: it is not the folder of a checkpoint of this name"
    )
    assert bench.logs() == ["hello"]  # its rows are still there
    metadata.write_text(text)
    bench.service.apply(Delete(experiment_id=1))
    settle(bench)
    assert bench.service.machine.state.experiments == {}


def test_a_master_that_was_killed_while_deleting_goes_on_when_it_is_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench_with_trial(home / "det.sqlite3") as first:
        finish(first, saved(home / "checkpoints", "a", 5))
        first.service.apply(Delete(experiment_id=1))
    second = Bench(home / "det.sqlite3")
    try:
        settle(second)
        assert second.service.machine.state.experiments == {}
        assert not (home / "checkpoints" / "a").exists()
    finally:
        second.service.close()


def test_checkpoints_that_the_policy_does_not_keep_are_removed_when_the_experiment_ends(
    bench: Bench, home: Path
) -> None:
    root = home / "checkpoints"
    finish(bench, validation(10, 0.1), saved(root, "a", 10), saved(root, "b", 20),
           saved(root, "c", 30))  # fmt: skip
    settle(bench)
    assert sorted(path.name for path in root.iterdir()) == ["a", "c"]
    states = {uuid: c.state for uuid, c in bench.service.machine.state.checkpoints.items()}
    assert states == {"a": "COMPLETED", "b": "DELETED", "c": "COMPLETED"}


def test_deleted_files_of_a_checkpoint_are_told_with_the_size_of_the_others(
    bench: Bench, home: Path
) -> None:
    root = home / "checkpoints"
    finish(bench, saved(root, "a", 10))
    (root / "a" / "notes.txt").write_text("123")
    bench.service.apply(DropCheckpoints(uuids=["a"], globs=["deep/**"]))
    settle(bench)
    checkpoint = bench.service.machine.state.checkpoints["a"]
    left = sum(path.stat().st_size for path in (root / "a").iterdir())
    assert checkpoint.state == "PARTIALLY_DELETED"
    assert (checkpoint.size_bytes, checkpoint.globs) == (left, [])
    bench.service.apply(DropCheckpoints(uuids=["a"], globs=["*"]))
    settle(bench)
    assert bench.service.machine.state.checkpoints["a"].state == "DELETED"
    assert list(root.iterdir()) == []


def test_a_database_of_the_version_before_opens(home: Path) -> None:
    with bench_with_trial(home / "det.sqlite3") as first:
        finish(first)
        state = json.loads(first.service.machine.dump())
    for trial in state["trials"].values():
        del trial["avoids"]
    for experiment in state["experiments"].values():
        for name in ("parent_id", "pool", "priority", "weight", "max_slots", "position"):
            del experiment[name]
        del experiment["is_archived"]
    for agent in state["agents"].values():
        del agent["disabled"], agent["occupied"]
    db = sqlite3.connect(home / "det.sqlite3")
    db.execute("UPDATE snapshots SET json = ?", (json.dumps(state),))
    db.execute("ALTER TABLE feed ADD COLUMN is_passing INTEGER NOT NULL DEFAULT 0")
    db.execute("CREATE INDEX feed_passing ON feed (experiment_id, trial_id) WHERE is_passing")
    db.execute("PRAGMA user_version = 2")
    db.commit()
    db.close()
    second = Bench(home / "det.sqlite3")
    try:
        assert second.service.views.experiment(1).state is State.COMPLETED
        assert not second.service.views.experiment(1).is_archived
    finally:
        second.service.close()
    with closing(sqlite3.connect(home / "det.sqlite3")) as db:  # programs before refuse it
        assert db.execute("PRAGMA user_version").fetchone() == (3,)


# Logs


def with_policies(home: Path, *policies: dict[str, Any]) -> Bench:
    bench = Bench(home / "det.sqlite3")
    bench.register()
    asyncio.run(bench.service.submit(make_request(log_policies=list(policies))))
    bench.report(gang_started())
    return bench


def matches(bench: Bench) -> list[dict[str, Any]]:
    events = [json.loads(text) for _, _, text in bench.store.history.events_after(0)]
    return [event for event in events if event["kind"] == "log_matched"]


def test_a_line_that_a_policy_looks_for_is_told_once(home: Path) -> None:
    bench = with_policies(
        home,
        {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
        {"name": "oom", "pattern": "out of memory", "action": "cancel_retries"},
        {"pattern": "ECC", "action": "exclude_node"},
    )
    try:
        text = "step 1\nCUDA out of memory\nagain: out of memory\n"
        first = make_text_chunk(text, stream="output-1")
        bench.report(first)
        bench.report(
            make_text_chunk("out of memory\n", stream="output-1", offset=first.size_bytes),
            make_text_chunk("out of memory\nECC\n", stream="output-0"),
        )
        assert [(m["rank"], m["action"], m["line"]) for m in matches(bench)] == [
            (1, "cancel_retries", "CUDA out of memory"),
            (0, "exclude_node", "ECC"),
        ]
        bench.report(make_chunk([failure("RuntimeError: CUDA")]), gang_exited(code=1))
        experiment = bench.service.views.experiment(1)
        assert experiment.state is State.ERROR
        assert "not tried again: log policy 'oom' (cancel_retries)" in experiment.message
        assert bench.service.machine.state.trials[1].avoids == [AGENT]
        assert restore_machine(bench.store).state == bench.service.machine.state
    finally:
        bench.service.close()


def test_policies_without_an_action_are_not_looked_for(home: Path) -> None:
    bench = with_policies(home, {"name": "ECC Error", "pattern": "ECC"}, {"name": "CUDA OOM"})
    try:
        bench.report(make_text_chunk("ECC\nCUDA out of memory\n", stream="output-0"))
        assert matches(bench) == []
    finally:
        bench.service.close()


# A real master


class MasterWithExperiment:
    """A real master with a fake agent and one experiment, and a client."""

    def __init__(self, master: MasterProcess, info: MasterInfo) -> None:
        self.root = master.home / "data" / "checkpoints"
        self.agent = master.agent(info)
        self.http = make_client(info)

    def submit(self, *records: Record, **changes: Any) -> int:
        """Run an experiment to its end; return its number."""
        body = make_request(**changes).model_dump(mode="json")
        view = self.http.post("/experiments", json=body).json()
        run = view["trials"][0]["allocation"]["id"]
        said: list[Record] = [started(), *records, *last_words()]
        self.agent.report(gang_started(run), make_chunk(said, run=run), gang_exited(run))
        return int(view["id"])

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def is_gone(self, experiment_id: int) -> bool:
        return self.http.get(f"/experiments/{experiment_id}").status_code == 404


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MasterWithExperiment]:
    """Return a running master with one experiment."""
    with master_process(tmp_path_factory.mktemp("told") / "home") as master:
        told = MasterWithExperiment(master, master.start())
        yield told
        told.http.close()


def test_an_experiment_is_archived_thinned_out_continued_and_deleted(
    told: MasterWithExperiment,
) -> None:
    root = told.root
    keep_all = {"save_trial_latest": 9}
    number = told.submit(
        validation(10, 0.1), saved(root, "a", 10), saved(root, "b", 20), saved(root, "c", 100),
        checkpoint_storage=keep_all,
    )  # fmt: skip
    at = f"/experiments/{number}"

    assert told.post(f"{at}/archive").json()["is_archived"] is True
    refused = told.post(f"{at}/archive")
    assert refused.status_code == 409
    assert sentences_of(refused.json()) == [f"experiment {number} is already archived"]
    assert told.post(f"{at}/unarchive").json()["is_archived"] is False

    numbers = {"save_experiment_best": 0, "save_trial_best": 1, "save_trial_latest": 1}
    would_go = told.post(f"{at}/retention", **numbers, dry_run=True).json()
    assert [checkpoint["uuid"] for checkpoint in would_go] == ["b"]
    assert (root / "b").exists()
    assert told.post(f"{at}/retention", **numbers).json() == would_go
    wait_until(lambda: not (root / "b").exists(), "the checkpoint is removed")

    assert told.post(f"{at}/continue").status_code == 409  # it was completed
    farther = {"searcher": {"max_length": {"batches": 200}}}
    view = told.post(f"{at}/continue", config=farther).json()
    assert view["state"] == "ACTIVE"
    assert view["config"]["searcher"]["max_length"] == {"batches": 200}
    run = view["trials"][0]["allocation"]["id"]
    assert run == f"{number}.1.2"
    assert told.post(f"{at}/delete").status_code == 409
    told.post(f"{at}/kill")
    told.agent.report(gang_exited(run, killed=True))

    assert told.post(f"{at}/delete").json()["state"] == "DELETING"
    wait_until(lambda: told.is_gone(number), "the experiment is deleted")
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("config", "status", "problem"),
    [
        ({"project": "x"}, 400, "project: cannot be specified to continue"),
        ({"searcher": {"max_length": -1}}, 400, "searcher.max_length"),
        ({"entrypoint": "Other"}, 400, "entrypoint: got 'Other', expected 'Trial'"),
    ],
)
def test_an_override_that_cannot_be_is_refused(
    told: MasterWithExperiment, config: dict[str, Any], status: int, problem: str
) -> None:
    number = told.submit()
    answer = told.post(f"/experiments/{number}/continue", config=config)
    assert answer.status_code in (status, 422), answer.text
    assert problem in sentences_of(answer.json())[0]


def test_a_fork_of_an_archived_experiment_is_refused(told: MasterWithExperiment) -> None:
    number = told.submit()
    fork = make_request().model_dump(mode="json") | {"parent_id": number}
    assert told.http.post("/experiments", json=fork).json()["parent_id"] == number
    told.post(f"/experiments/{number}/archive")
    refused = told.http.post("/experiments", json=fork)
    assert refused.status_code == 409
    assert "is archived and cannot be forked" in sentences_of(refused.json())[0]
