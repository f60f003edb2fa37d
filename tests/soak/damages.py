"""Damages to a copy of a home, which the judge must find.

ELEVEN are those of the first list that the soak was held against: at that time it found five.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from det_jupyter.contract.host.paths import HOME_VARIABLE
from det_jupyter.pytorch.checkpoints.training_state import STATE_FILE
from tests.soak.collected import StoredExperiment, read_experiment, read_home
from tests.soak.judge import differences, leftovers

_DATABASE = "data/det.sqlite3"
_BATCHES = "kind = 'metrics' AND json LIKE '%batch_metrics%' AND first_step > 1"
_AVERAGES = "kind = 'metrics' AND json LIKE '%\"group\":\"training\"%'"
_VALIDATIONS = "kind = 'metrics' AND json LIKE '%\"group\":\"validation\"%'"
_COLUMNS = "at, kind, experiment_id, trial_id, first_step, last_step, json"


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a home, the experiment that is damaged, and what is started there."""

    home: Path
    experiment_id: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def execute(self, statement: str) -> None:
        """Change the database; a statement that changes nothing is a mistake here."""
        with closing(sqlite3.connect(self.home / _DATABASE)) as db, db:
            assert db.execute(statement).rowcount > 0, statement

    def delete(self, which: str, *, table: str = "feed", key: str = "seq") -> None:
        """Delete the last matching row."""
        self.execute(f"DELETE FROM {table} WHERE {key} = ({self._last(which, table, key)})")

    def double(self, which: str) -> None:
        """Insert the last matching row of the feed again."""
        last = self._last(which, "feed", "seq")
        self.execute(
            f"INSERT INTO feed ({_COLUMNS}) SELECT {_COLUMNS} FROM feed WHERE seq = ({last})"
        )

    def _last(self, which: str, table: str, key: str) -> str:
        trials = f"SELECT trial_id FROM feed WHERE experiment_id = {self.experiment_id}"
        of = {
            "feed": f"experiment_id = {self.experiment_id}",
            "series_rows": f"substr(owner, 7) IN ({trials})",
        }
        where = of.get(table, f"trial_id IN ({trials})")
        return f"SELECT max({key}) FROM {table} WHERE {where} AND {which}"

    def last_checkpoint(self) -> Path:
        """Return the folder of the last checkpoint of the experiment's trial 0."""
        stored = read_experiment(self.home / "data", self.experiment_id)
        last = max(stored.trials[0].kept(), key=lambda one: one.steps_completed)
        return self.home / "data" / "checkpoints" / last.uuid

    def change_state(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the training state in the last checkpoint."""
        file = self.last_checkpoint() / STATE_FILE
        state = torch.load(file, weights_only=True)
        change(state)
        torch.save(state, file)

    def folder(self, path: str) -> None:
        """Make a folder with a file."""
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


def _remove_checkpoint(copy: Copy) -> None:
    shutil.rmtree(copy.last_checkpoint())


def _start_process(copy: Copy) -> None:
    environment = {**os.environ, HOME_VARIABLE: str(copy.home)}
    copy.processes.append(subprocess.Popen(["sleep", "60"], env=environment))


# By name: the damage, and a part of the sentence that the judge has for it.
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
    "experiment that is not over": (
        _executing("UPDATE feed SET json = replace(json, 'COMPLETED', 'ACTIVE')"),
        "experiment 1 is ACTIVE",
    ),
}


@contextmanager
def copy_of(home: Path, folder: Path, experiment_id: int) -> Iterator[Copy]:
    """Copy a home into this folder, also while its master runs; end what is started in it."""
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
    """Return what the judge finds in a copy."""
    found = read_experiment(copy.home / "data", copy.experiment_id)
    return differences(found, expected) + leftovers(read_home(copy.home))
