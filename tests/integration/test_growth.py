"""Stored data stay in bounds, and what nothing refers to is deleted."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule, LogQuery
from det_jupyter.contract.run.output_lines import OutputLines
from det_jupyter.contract.trial.captured import code_key
from det_jupyter.master.background.cleanup import sweep
from det_jupyter.master.service.storing.database import open_database
from det_jupyter.master.service.storing.store import Store
from det_jupyter.master.service.storing.stored_logs import Logs, read_page
from tests.integration.master_support import (
    Bench,
    bench_with_trial,
    first_step,
    gang_started,
    make_chunk,
    make_request,
    make_text_chunk,
    progress,
    started,
    validation,
)

HOUR = 3600.0


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        yield bench


def file_bytes(store: Store) -> int:
    """Return the size of the database after a checkpoint of its WAL."""
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    return store.path.stat().st_size


def test_a_large_hyperparameter_is_stored_a_few_times_and_not_with_each_report(
    tmp_path: Path,
) -> None:
    large = "x" * 1_000_000
    hparams = {"global_batch_size": 8, "table": large}
    bench = Bench(tmp_path / "det.sqlite3")
    bench.register()
    asyncio.run(bench.service.submit(make_request(hyperparameters=hparams)))
    bench.report(gang_started(), make_chunk([started(), first_step()]))
    offset = make_chunk([started(), first_step()]).size_bytes
    for step in range(1, 101):
        chunk = make_chunk([progress(step), validation(step, 0.5)], offset=offset)
        bench.report(chunk)
        offset += chunk.size_bytes
    assert file_bytes(bench.store) < 8_000_000  # one event, and two snapshots
    view = bench.service.views.experiment(1)
    assert view.trials[0].hparams["table"] == large
    bench.store.close()


def test_each_experiment_and_trial_has_one_mark_with_the_number_of_its_last_change(
    bench: Bench,
) -> None:
    chunk = make_chunk([started(), first_step(), validation(10, 0.5)])
    bench.report(chunk)
    before = bench.store.feed.last_seq
    bench.report(make_chunk([validation(20, 0.4)], offset=chunk.size_bytes))
    kinds = [kind for kind, _ in bench.feed()]
    assert (kinds.count("experiment"), kinds.count("trial"), kinds.count("cluster")) == (1, 1, 1)
    assert {"experiment", "trial"} <= {item.kind for item in bench.store.feed.after(before, 1, 9)}
    assert [r["steps_completed"] for r in bench.metrics()] == [10, 20]


def test_marks_of_an_older_version_are_replaced(bench: Bench) -> None:
    with closing(sqlite3.connect(bench.store.path)) as db, db:
        db.execute("ALTER TABLE feed ADD COLUMN is_passing INTEGER NOT NULL DEFAULT 0")
        for state in ("ACTIVE", "PAUSED"):
            db.execute(
                "INSERT INTO feed (at, kind, experiment_id, json) VALUES (1, 'experiment', 1, ?)",
                (f'{{"state": "{state}"}}',),
            )
    bench.service.announce("experiment", 1)
    marks = [data for kind, data in bench.feed() if kind == "experiment"]
    assert marks == [{}]


def test_of_each_rank_the_newest_lines_are_kept_and_one_says_what_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "det.sqlite3"
    db = open_database(path)
    rows = Logs(db, max_bytes=64 * 140)
    for number in range(0, 1000, 10):
        lines = [f"{number + i:04}".ljust(100, ".") for i in range(10)]
        rows.add(1.0, trial_id=1, run=1, rank=0, printed=OutputLines(lines, None))
        quiet = OutputLines(["quiet"] if number == 0 else [], None)
        rows.add(1.0, trial_id=1, run=1, rank=1, printed=quiet)
    found = texts(path, rank=0)
    assert 60 <= len(found) <= 65
    assert found[0].endswith("lines were cut here: the newest 0.00854 MiB that a rank of a "
                             "trial prints are kept")  # fmt: skip
    assert int(found[0].split()[1]) + len(found) - 1 == 1000
    numbers = [int(line[:4]) for line in found[1:]]
    assert numbers == list(range(numbers[0], 1000))
    assert texts(path, rank=1) == ["quiet"]
    db.close()


def texts(path: Path, *, rank: int) -> list[str]:
    return [line.text for line in read_page(path, [1], LogQuery(rank=rank), is_over=False).lines]


def test_a_deleted_experiment_gives_its_space_back(bench: Bench) -> None:
    empty = file_bytes(bench.store)
    text = ("x" * 99 + "\n") * 2000
    for number in range(38):  # 7.6 MB
        chunk = make_text_chunk(text, stream="output-0", offset=number * len(text))
        bench.report(chunk)
    assert file_bytes(bench.store) > 7_600_000
    for _ in bench.store.delete_experiment(1, [1]):
        pass
    while bench.store.give_back():
        pass
    assert file_bytes(bench.store) < empty + 5_000_000  # some free pages are kept


def test_a_database_from_before_it_could_shrink_learns_it(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite3"
    Store(path).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("ALTER TABLE logs DROP COLUMN agent")
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")
    db.close()
    store = Store(path)
    assert not store.give_back()
    store.feed.mark("trial", 1.0, 1, 1)
    assert [item.data for item in store.feed.after(0, 1, 10)] == [{}]
    store.close()
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    db.close()


def capsule_of(blobs: BlobStore, name: str) -> Capsule:
    module = blobs.put(f"# {name}".encode())
    return Capsule(
        entrypoint="T",
        payload=blobs.put(f"payload of {name}".encode()),
        sources=blobs.put(b"{}"),
        buffers=[blobs.put(f"array of {name}".encode())],
        modules={"helpers.py": module},
        environment=blobs.put(f"variables of {name}".encode()),
    )


def digests_in(value: Any) -> set[str]:
    """Return all strings in a document that may be digests of blobs."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return {digest for each in value for digest in digests_in(each)}
    return {value} if isinstance(value, str) and len(value) == 64 else set()


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_blobs_and_code_that_no_experiment_refers_to_are_removed_when_they_are_old(
    tmp_path: Path,
) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    kept, gone = capsule_of(blobs, "kept"), capsule_of(blobs, "gone")
    for capsule in (kept, gone):
        (tmp_path / "code" / code_key(capsule)).mkdir(parents=True)
    now = os.stat(tmp_path).st_mtime
    sweep(tmp_path, [kept], now)  # just stored: the client may be about to submit
    assert len(files_in(tmp_path / "blobs")) == 9
    sweep(tmp_path, [kept], now + HOUR + 60)
    left = files_in(tmp_path / "blobs")
    # Every field of a capsule that names blobs, one added later too.
    named = {digest for digest in digests_in(kept.model_dump()) if blobs.path(digest).is_file()}
    assert len(named) == 5
    assert left == named
    assert [path.name for path in (tmp_path / "code").iterdir()] == [code_key(kept)]


def test_a_blob_that_is_stored_again_is_new_again(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    digest = blobs.put(b"data")
    os.utime(blobs.path(digest), (0, 0))
    assert blobs.put(b"data") == digest
    sweep(tmp_path, [], os.stat(tmp_path).st_mtime + 60)
    assert blobs.read(digest) == b"data"


def test_a_removal_that_was_interrupted_is_completed(tmp_path: Path) -> None:
    folder = tmp_path / "blobs" / "aa"
    folder.mkdir(parents=True)
    (folder / ".doomed-x").touch()
    sweep(tmp_path, [], os.stat(tmp_path).st_mtime + HOUR + 60)
    assert files_in(tmp_path / "blobs") == set()
