"""Damages to a copy of a home, which the judge must find.

ELEVEN is the first list with which the soak was tested; at that time it found five of them.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from det_jupyter.contract.host.paths import HOME_VARIABLE
from det_jupyter.master.service.committing.restoring import restore_machine
from det_jupyter.master.service.storing.database import open_database
from det_jupyter.master.service.storing.series_packing import find_due
from det_jupyter.master.service.storing.series_packing import pack as packed
from det_jupyter.master.service.storing.store import Store
from det_jupyter.master.service.storing.stored_series import StoredSeries
from det_jupyter.pytorch.checkpoints.training_state import STATE_FILE
from tests.soak import shown
from tests.soak.collected import METADATA, ORIGIN, StoredExperiment, read_experiment, read_home
from tests.soak.judge import differences, leftovers
from tests.soak.tables import damages

_DATABASE = "data/det.sqlite3"
_LATER_S = 86_400.0  # time after which a source counts as ended, however few rows it has
_BATCHES = "kind = 'metrics' AND json LIKE '%batch_metrics%' AND first_step > 1"
_AVERAGES = "kind = 'metrics' AND json LIKE '%\"group\":\"training\"%'"
_VALIDATIONS = "kind = 'metrics' AND json LIKE '%\"group\":\"validation\"%'"
_COLUMNS = "at, kind, experiment_id, trial_id, first_step, last_step, json"


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a home, the damaged experiment, and the processes started there."""

    home: Path
    experiment_id: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def execute(self, statement: str) -> None:
        """Execute a statement, which must change the database."""
        with closing(sqlite3.connect(self.home / _DATABASE)) as db, db:
            assert db.execute(statement).rowcount > 0, statement

    def delete(self, which: str, *, table: str = "feed", key: str = "seq") -> None:
        """Delete the last matching row."""
        self.execute(f"DELETE FROM {table} WHERE {key} = ({self.last(which, table, key)})")

    def double(self, which: str) -> None:
        """Insert the last matching row of the feed a second time."""
        last = self.last(which, "feed", "seq")
        self.execute(
            f"INSERT INTO feed ({_COLUMNS}) SELECT {_COLUMNS} FROM feed WHERE seq = ({last})"
        )

    def last(self, which: str, table: str, key: str) -> str:
        """Return a query for the key of the last matching row of the experiment."""
        trials = f"SELECT trial_id FROM feed WHERE experiment_id = {self.experiment_id}"
        of = {
            "feed": f"experiment_id = {self.experiment_id}",
            "series_rows": f"substr(owner, 7) IN ({trials})",
        }
        where = of.get(table, f"trial_id IN ({trials})")
        return f"SELECT max({key}) FROM {table} WHERE {where} AND {which}"

    def read(self) -> StoredExperiment:
        """Return the stored data of the experiment."""
        return read_experiment(self.home / "data", shown.read(self.home)[self.experiment_id])

    def last_checkpoint(self) -> Path:
        """Return the folder of the last checkpoint of the experiment's trial 0."""
        stored = self.read()
        last = max(stored.trials[0].kept(), key=lambda one: one.steps_completed)
        return self.home / "data" / "checkpoints" / last.uuid

    def change_state(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the training state in the last checkpoint."""
        file = self.last_checkpoint() / STATE_FILE
        state = torch.load(file, weights_only=True)
        change(state)
        torch.save(state, file)

    def folder(self, path: str) -> None:
        """Create a folder with a file."""
        (self.home / path).mkdir(parents=True)
        (self.home / path / "file").touch()


Damage = Callable[[Copy], None]


def _executing(statement: str) -> Damage:
    return lambda copy: copy.execute(statement)


def _deleting(which: str, table: str = "feed", key: str = "seq") -> Damage:
    return lambda copy: copy.delete(which, table=table, key=key)


def _doubling(which: str) -> Damage:
    return lambda copy: copy.double(which)


def _changing(change: Callable[[dict[str, Any]], None]) -> Damage:
    return lambda copy: copy.change_state(change)


def _making(path: str) -> Damage:
    return lambda copy: copy.folder(path)


def _raise_loss(copy: Copy) -> None:
    with closing(sqlite3.connect(copy.home / _DATABASE)) as db, db:
        last = f"experiment_id = {copy.experiment_id} AND {_BATCHES} ORDER BY seq DESC LIMIT 1"
        seq, text = db.execute(f"SELECT seq, json FROM feed WHERE {last}").fetchone()
        record = json.loads(text)
        record["values"]["loss"][0] += 1e-4
        db.execute("UPDATE feed SET json = ? WHERE seq = ?", (json.dumps(record), seq))


def _raise_weight(state: dict[str, Any]) -> None:
    state["models"][0]["0.bias"][0] += 1e-6


def _raise_momentum(state: dict[str, Any]) -> None:
    state["optimizers"][0]["state"][0]["momentum_buffer"][0] += 1e-6


def _remove_generator(state: dict[str, Any]) -> None:
    state["rng_states"][1].pop("torch")


def _run_scheduler_further(state: dict[str, Any]) -> None:
    state["lr_schedulers"][0]["last_epoch"] += 1


def _count_further(state: dict[str, Any]) -> None:
    state["callbacks"]["noise"]["seen"] += 1


def _in_file(name: str, field: str, value: Any) -> Damage:
    """Return a damage that sets a field of a JSON file of the last checkpoint."""

    def change(copy: Copy) -> None:
        file = copy.last_checkpoint() / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}, indent=2))

    return change


def _lengthen_metadata(copy: Copy) -> None:
    with (copy.last_checkpoint() / METADATA).open("a") as file:
        file.write(" ")


def _flip_bit(copy: Copy) -> None:
    file = max(copy.home.glob("data/blobs/*/*"), key=lambda file: file.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _showing(path: str, value: Any) -> Damage:
    """Return a damage that sets a field, such as trials.0.seed, of the master's last answers."""

    def change(copy: Copy) -> None:
        file = copy.home / shown.FILE
        found = json.loads(file.read_text())
        item = next(each for each in found if each["experiment"]["id"] == copy.experiment_id)
        *names, last = path.split(".")
        for name in names:
            item = item[int(name) if name.isdecimal() else name]
        assert item[last] != value, item
        item[last] = value
        file.write_text(json.dumps(found))

    return change


def _take_snapshot(copy: Copy) -> None:
    """Store a snapshot of the last state, in which a trial has another seed."""
    with closing(Store(copy.home / _DATABASE)) as store:
        machine = restore_machine(store)
        machine.state.trials[max(machine.state.trials)].seed += 1
        store.history.add_snapshot(machine.state.seq, machine.dump())


def _tenfold(value: Any) -> Any:
    """Return a JSON value in which all numbers except `at` and counts are tenfold."""
    if isinstance(value, dict):
        kept = ("at", "first", "batches", "samples", "records", "kind")
        return {key: each if key in kept else _tenfold(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_tenfold(each) for each in value]
    return 10 * value if isinstance(value, (int, float)) else value


def _tenfold_times(table: str, which: str = "1") -> Damage:
    def change(copy: Copy) -> None:
        with closing(sqlite3.connect(copy.home / _DATABASE)) as db, db:
            rows = db.execute(f"SELECT id, json FROM {table} WHERE {which}").fetchall()
            assert rows
            for number, text in rows:
                changed = json.dumps(_tenfold(json.loads(text)))
                db.execute(f"UPDATE {table} SET json = ? WHERE id = ?", (changed, number))

    return change


def pack(copy: Copy) -> None:
    """Pack all rows of measured numbers, as the master does minutes after the end."""
    database = copy.home / _DATABASE
    with closing(open_database(database)) as db:
        for key in find_due(database, time.time() + _LATER_S):
            StoredSeries(db).replace_rows(packed(database, key))


def _packing_and(statement: str) -> Damage:
    def change(copy: Copy) -> None:
        pack(copy)
        copy.execute(statement)

    return change


def _remove_checkpoint(copy: Copy) -> None:
    shutil.rmtree(copy.last_checkpoint())


def _start_process(copy: Copy) -> None:
    environment = {**os.environ, HOME_VARIABLE: str(copy.home)}
    copy.processes.append(subprocess.Popen(["sleep", "60"], env=environment))


# By name: the damage, and a part of the sentence that the judge reports for it.
ELEVEN: dict[str, tuple[Damage, str]] = {
    "batch row deleted": (_deleting(_BATCHES), "metrics of batches: lost: "),
    "batch row doubled": (_doubling(_BATCHES), "metrics of batches: doubled: "),
    "validation deleted": (_deleting(_VALIDATIONS), "validations: lost: 60"),
    "loss + 1e-4": (_raise_loss, "metrics of batches: changed at "),
    "weight + 1e-6": (_changing(_raise_weight), "models.0.0.bias: 1 of 16 elements differ"),
    "momentum changed": (_changing(_raise_momentum), "momentum_buffer: 8 of 128 elements differ"),
    "generator's state removed": (_changing(_remove_generator), "rng_states.1.torch: "),
    "average deleted": (_deleting(_AVERAGES), "averages: lost: 60"),
    "logs deleted": (_executing("DELETE FROM logs WHERE rank = 1"), "lines of rank 1: lost: 1, 2"),
    "leftover folder": (_making("data/checkpoints/.part-0"), "left behind: data/checkpoints/.p"),
    "stray process": (_start_process, "a process of no program: "),
}
MORE: dict[str, tuple[Damage, str]] = {
    "validation doubled": (_doubling(_VALIDATIONS), "validations: doubled: 60"),
    "average doubled": (_doubling(_AVERAGES), "averages: doubled: (60, 'training')"),
    "scheduler one step further": (
        _changing(_run_scheduler_further),
        "lr_schedulers.0.last_epoch",
    ),
    "state of a callback changed": (_changing(_count_further), "callbacks.noise.seen: "),
    "line deleted": (_deleting("text LIKE 'batch 7:%'", "logs", "id"), "lost: 7"),
    "line torn": (_executing("UPDATE logs SET text = 'batch 7' WHERE id = 7"), "torn: 'batch 7'"),
    "times of a rank deleted": (
        _deleting("source = 'rank:0' AND json LIKE '%optimizer%'", "series_rows", "id"),
        "timings of rank",
    ),
    "timed batches deleted": (_deleting("1", "timings", "id"), "timed batches: lost: "),
    "files of a checkpoint deleted": (_remove_checkpoint, "its files are gone"),
    "checkpoint that is in no row": (
        _making("data/checkpoints/01234567-89ab-cdef-0123-456789abcdef"),
        "a checkpoint that is in no row: 01234567",
    ),
    "folder of a run": (_making("data/runs/1.1.1"), "left behind: data/runs/1.1.1/"),
    "temporary file": (_making("runtime/.master.json.123"), "left behind: runtime/.master.json.1"),
    "other steps_completed in metadata.json": (
        _in_file(METADATA, "steps_completed", 61),
        "metadata.json: steps_completed is 61, and 60 in the database",
    ),
    "other seed in load_data.json": (_in_file(ORIGIN, "seed", 1), "load_data.json: seed is 1"),
    "other library in load_data.json": (_in_file(ORIGIN, "library", "keras"), "library: "),
    "a byte more in metadata.json": (_lengthen_metadata, "its files have "),
    "a bit of a code blob flipped": (_flip_bit, "damaged: blobs/"),
    "other restarts shown": (
        _showing("experiment.trials.0.restarts", 1),
        "the master shows restarts 1, and 0 by ",
    ),
    "other time with slots shown": (
        _showing("experiment.trials.0.held_s", 1.5),
        "the master shows held_s 1.5, and ",
    ),
    "checkpoint not shown": (
        _showing("checkpoints", []),
        "the master does not show checkpoint ",
    ),
    "batch times tenfold": (_tenfold_times("timings"), " s in its batches, "),
    "interval times tenfold": (
        _tenfold_times("series_rows", "kind = 'timings'"),
        " s in its intervals",
    ),
    "packed times of a rank deleted": (
        _packing_and("DELETE FROM series_chunks WHERE kind = 'timings' AND source = 'rank:1'"),
        "timings of ranks: lost: 1",
    ),
    "event deleted": (_executing("DELETE FROM events WHERE seq = 3"), "events: a number is mis"),
    "event at another time": (
        _executing("UPDATE events SET at = at + 1 WHERE json LIKE '%experiment_submitted%'"),
        " by all events",
    ),
    "other metric in an event": (
        _executing(
            "UPDATE events SET json = json_set(json, '$.metric', 0.0) "
            "WHERE json LIKE '%validation_reported%'"
        ),
        "the master shows latest_metric ",
    ),
    "last events deleted": (
        _executing(
            "DELETE FROM events WHERE seq >= "
            "(SELECT max(seq) FROM events WHERE json LIKE '%gang_exited%')"
        ),
        "the master shows state COMPLETED, and ACTIVE by all events",
    ),
    "other seed in the snapshot": (_take_snapshot, "by the events since the snapshot"),
    "mark deleted": (_deleting("kind = 'trial'"), "the feed has no mark of trial "),
    "mark of before the end": (
        _executing("UPDATE feed SET at = at - 1000 WHERE kind = 'experiment'"),
        "mark of experiment 1 is older than its end",
    ),
    "mark doubled": (_doubling("kind = 'experiment'"), "a second mark of ('experiment', 1, "),
    "run without a row": (_executing("DELETE FROM series_runs"), "is in one of rows and events"),
    "verdict changed": (
        _executing("UPDATE verdicts SET json = json_set(json, '$.at', 1)"),
        "the master shows verdict ",
    ),
    "experiment that is not over": (
        _showing("experiment.state", "ACTIVE"),
        "experiment 1 is ACTIVE",
    ),
}


@contextmanager
def copy_of(home: Path, folder: Path, experiment_id: int) -> Iterator[Copy]:
    """Copy a home into this folder, also while its master runs; end processes started in it."""
    path = shutil.copytree(home, folder, ignore=shutil.ignore_patterns("det.sqlite3*"))
    with (
        closing(sqlite3.connect(home / _DATABASE)) as source,
        closing(sqlite3.connect(path / _DATABASE)) as target,
    ):
        source.backup(target)
    copy = Copy(path, experiment_id)
    try:
        yield copy
    finally:
        for process in copy.processes:
            process.kill()
            process.wait()


def judge(copy: Copy, expected: StoredExperiment) -> list[str]:
    """Return the problems that the judge finds in a copy."""
    return [
        *differences(copy.read(), expected),
        *damages(copy.home),
        *leftovers(read_home(copy.home)),
    ]
