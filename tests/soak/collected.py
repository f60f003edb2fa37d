"""What is stored of experiments, and what is left around them, read from files alone.

    home        files, database and processes below a DET_JUPYTER_HOME
    experiment  its state, and its trials by their index
    trial       rows of the database in their order, and the content of its checkpoints

No master is needed, so a copy of a home can be read as well. Measured numbers are read from rows
that are not packed yet: within five minutes after the end of an experiment.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from det_jupyter.master.service.stored_rows import read_metrics, read_only
from det_jupyter.pytorch.checkpoints.compare import contents
from det_jupyter.pytorch.checkpoints.training_state import STATE_FILE
from tests.processes import processes_below
from tests.soak.faults import roles

# Files of a checkpoint with times and numbers that no other run has.
_OWN_FILES = ("metadata.json", "load_data.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint in the database; `values` by dotted name, empty unless its files are there."""

    uuid: str
    steps_completed: int
    state: str
    is_on_disk: bool
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Consecutive batches of a rank in a run, whose times are one row."""

    run: int
    first: int
    num: int
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """The rows of a trial, in their order."""

    shown: Mapping[str, Any]  # fields of its view whose values do not depend on the time
    batches: list[tuple[int, Any]]  # steps_completed, metrics
    averages: list[tuple[int, Any]]  # steps_completed, metrics of a report other than a validation
    validations: list[tuple[int, Any]]  # steps_completed, metrics and amounts trained
    timed: list[tuple[int, Any]]  # steps_completed, records of the batch
    lines: Mapping[tuple[int, int], list[str]]  # by run and rank
    intervals: Mapping[int, list[Interval]]  # by rank
    cuts: list[
        tuple[int, int]
    ]  # the last run before it, and the step after which it trained again
    saved: list[Saved]

    def kept(self) -> list[Saved]:
        """Return the checkpoints that are not deleted."""
        return [one for one in self.saved if one.state == "COMPLETED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExperiment:
    """An experiment with its trials by index."""

    id: int
    state: str
    message: str
    trials: Mapping[int, StoredTrial]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHome:
    """What is below a home, and the processes that were started under it."""

    states: Mapping[int, str]  # of experiments
    checkpoints: set[str]  # uuids of those that are not deleted
    set_aside: list[str]  # what could not be handled
    damages: list[str]  # what SQLite finds wrong with its file
    files: list[str]  # paths; of checkpoints, runs and code only the folders
    processes: list[tuple[str, str]]  # also elsewhere: role ("" if it has none), description


_SHOWN = (
    "state",
    "hparams",
    "seed",
    "best_metric",
    "latest_metric",
    "rung_metrics",
    "was_stopped",
)


def read_experiment(
    data: Path, experiment_id: int, checkpoints: Path | None = None
) -> StoredExperiment:
    """Return what is stored of an experiment.

    Args:
        data: The folder with the database.
        checkpoints: The folder with the checkpoints; None: the data folder's own.
    """
    checkpoints = checkpoints or data / "checkpoints"
    with read_only(data / "det.sqlite3") as db:
        states = _states(db, experiment_id)
        found = states["experiment", None]
        trials = {number: view for (kind, number), view in states.items() if kind == "trial"}
        metrics = defaultdict(list)
        for trial_id, record in read_metrics(data / "det.sqlite3", experiment_id):
            metrics[trial_id].append(record)
        return StoredExperiment(
            id=experiment_id,
            state=found["state"],
            message=found["message"],
            trials={
                view["index"]: _read_trial(db, checkpoints, view, metrics[number or 0])
                for number, view in trials.items()
            },
        )


def _states(
    db: sqlite3.Connection, experiment_id: int
) -> dict[tuple[str, int | None], dict[str, Any]]:
    """Return the last state of the experiment and of its trials: items leave out what stayed."""
    found: dict[tuple[str, int | None], dict[str, Any]] = defaultdict(dict)
    for kind, trial_id, text in db.execute(
        "SELECT kind, trial_id, json FROM feed WHERE experiment_id = ? "
        "AND kind IN ('experiment', 'trial') ORDER BY seq",
        (experiment_id,),
    ):
        found[kind, trial_id] |= json.loads(text)
    return found


def _read_trial(
    db: sqlite3.Connection,
    checkpoints: Path,
    view: Mapping[str, Any],
    metrics: list[dict[str, Any]],
) -> StoredTrial:
    trial_id = view["id"]
    lines: dict[tuple[int, int], list[str]] = defaultdict(list)
    for run, rank, text in db.execute(
        "SELECT run, rank, text FROM logs WHERE trial_id = ? ORDER BY id", (trial_id,)
    ):
        lines[run, rank].append(text)
    progress = db.execute("SELECT * FROM progress WHERE trial_id = ?", (trial_id,)).fetchone()
    cuts = "SELECT run, steps_completed FROM series_cuts WHERE trial_id = ? ORDER BY id"
    reports = [record for record in metrics if record["kind"] == "metrics"]
    return StoredTrial(
        shown={name: view[name] for name in _SHOWN} | {"progress": progress and progress[1:]},
        batches=[row for record in metrics for row in _rows(record, "values")],
        averages=[
            (record["steps_completed"], (record["group"], record["metrics"]))
            for record in reports
            if record["group"] != "validation"
        ],
        validations=[
            (record["steps_completed"], (record["metrics"], record["trained"]))
            for record in reports
            if record["group"] == "validation"
        ],
        timed=[
            (record["first"] + index, num_records)
            for (text,) in db.execute(
                "SELECT json FROM timings WHERE trial_id = ? ORDER BY id", (trial_id,)
            )
            for record in [json.loads(text)]
            for index, num_records in enumerate(record["records"])
        ],
        lines=lines,
        intervals=_intervals(db, trial_id),
        cuts=db.execute(cuts, (trial_id,)).fetchall(),
        saved=list(_saved(db, checkpoints, trial_id)),
    )


def _rows(record: Mapping[str, Any], columns: str) -> Iterator[tuple[int, Any]]:
    """Yield steps_completed and the value of each column, of each batch in a record."""
    values: Mapping[str, list[Any]] = record.get(columns, {})
    for index in range(max(map(len, values.values()), default=0)):
        yield record["first"] + index, {name: column[index] for name, column in values.items()}


def _intervals(db: sqlite3.Connection, trial_id: int) -> dict[int, list[Interval]]:
    found: dict[int, list[Interval]] = defaultdict(list)
    for run, source, text in db.execute(
        "SELECT run, source, json FROM series_rows WHERE owner = ? AND kind = 'timings' "
        "ORDER BY id",
        (f"trial:{trial_id}",),
    ):
        row = json.loads(text)
        if row["batches"]:
            found[int(source.removeprefix("rank:"))].append(
                Interval(run=run, first=row["first"], num=row["batches"], samples=row["samples"])
            )
    return found


def _saved(db: sqlite3.Connection, checkpoints: Path, trial_id: int) -> Iterator[Saved]:
    views = {}
    for (text,) in db.execute(
        "SELECT json FROM feed WHERE trial_id = ? AND kind = 'checkpoint' ORDER BY seq",
        (trial_id,),
    ):
        view = json.loads(text)
        views[view["uuid"]] = view
    for uuid, view in views.items():
        folder = checkpoints / uuid
        yield Saved(
            uuid=uuid,
            steps_completed=view["steps_completed"],
            state=view["state"],
            is_on_disk=folder.is_dir(),
            values=_values(folder) if folder.is_dir() else {},
        )


def _values(folder: Path) -> dict[str, Any]:
    """Return the state in a checkpoint, value by value, and its other files as digests."""
    state = folder / STATE_FILE
    found = contents(folder) if state.exists() else {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file != state and file.name not in _OWN_FILES:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            found[str(file.relative_to(folder))] = digest[:16]
    return found


def read_home(home: Path) -> StoredHome:
    """Return what is below a home, and the processes that were started under it."""
    with read_only(home / "data" / "det.sqlite3") as db:
        states = {
            number: _states(db, number)["experiment", None].get("state", "")
            for (number,) in db.execute(
                "SELECT DISTINCT experiment_id FROM feed WHERE experiment_id > 0"
            ).fetchall()
        }
        checkpoints: dict[str, str] = {}
        for (text,) in db.execute("SELECT json FROM feed WHERE kind = 'checkpoint' ORDER BY seq"):
            view = json.loads(text)
            checkpoints[view["uuid"]] = view["state"]
        set_aside = db.execute("SELECT source, error FROM quarantine ORDER BY id").fetchall()
    return StoredHome(
        states=states,
        checkpoints={uuid for uuid, state in checkpoints.items() if state != "DELETED"},
        set_aside=[f"{source}: {error}" for source, error in set_aside],
        damages=damages_of(home / "data" / "det.sqlite3"),
        files=sorted(_files(home)),
        processes=list(_processes(home)),
    )


def damages_of(database: Path) -> list[str]:
    """Return what SQLite finds wrong with its file."""
    with read_only(database) as db:
        found = [row[0] for row in db.execute("PRAGMA integrity_check").fetchall()]
    return [line for line in found if line != "ok"]


# Folders of folders, of which each is one thing.
_WHOLE = ("data/checkpoints", "data/runs", "data/code")


def _files(home: Path) -> Iterator[str]:
    for folder, inner, names in os.walk(home):
        here = os.path.relpath(folder, home)
        if here in _WHOLE:
            yield from (f"{here}/{name}/" for name in inner)
            inner.clear()
        yield from (os.path.normpath(f"{here}/{name}") for name in names)


def _processes(home: Path) -> Iterator[tuple[str, str]]:
    found = processes_below(home)
    by_role = {process.pid: role for role, process in roles(found)}
    for process in found:
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())[:100]
            yield by_role.get(process.pid, ""), f"{process.pid}: {line}"
