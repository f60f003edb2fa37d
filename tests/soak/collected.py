"""Stored experiments, and what is left around them, read from files.

    home        files, database and processes below a DET_JUPYTER_HOME
    experiment  its state, and its trials by their index
    trial       rows of the database in their order, and the content of its checkpoints

States are those that the master has shown (shown.py). All other data are read without the master,
so a copy of a home can be read as well. Measured numbers are read from rows and from the chunks
into which they are packed minutes after the end of an experiment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from det_jupyter.contract.messages import SeriesQuery
from det_jupyter.contract.messages.queries import MAX_COLUMNS
from det_jupyter.master.service.storing.series_reading import EVER, read_tables
from det_jupyter.master.service.storing.stored_rows import read_metrics, read_only
from det_jupyter.master.service.storing.stored_series import owner_of_trial
from det_jupyter.pytorch.checkpoints.compare import contents
from det_jupyter.pytorch.checkpoints.training_state import STATE_FILE
from tests.processes import processes_below
from tests.soak import shown
from tests.soak.faults import roles

# Metadata files of a checkpoint, compared field by field.
METADATA, ORIGIN = "metadata.json", "load_data.json"
# Fields that differ between trials; they are compared with the trial's row.
_OWN_FIELDS = {
    METADATA: {"uuid", "experiment_id", "trial_id"},
    ORIGIN: {"experiment_id", "trial_id", "hparams"},
}
# Also the pause of disturbed experiments.
_CHANGED_BY_USERS = {"name", "resources", "hyperparameters"}
_MOST_READ = 20
_read: dict[bytes, dict[str, Any]] = {}  # values of training states, by the digests of their files
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint in the database; `values` by dotted name, empty if its files are missing."""

    uuid: str
    steps_completed: int
    state: str
    is_on_disk: bool
    values: Mapping[str, Any]
    wrong: Sequence[str] = ()  # contradictions between its files and its row or trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Consecutive batches of a rank in a run whose times are in one row."""

    run: int
    first: int
    num: int
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """The rows of a trial, in their order; of an elastic one, lines and timings of rank 0 only."""

    is_elastic: bool = False
    num_recoveries: int = 0  # how often survivors have saved its last step
    shown: Mapping[str, Any]  # fields of its view whose values do not depend on the time
    batches: list[tuple[int, Any]]  # steps_completed, metrics
    averages: list[tuple[int, Any]]  # steps_completed, each report other than a validation
    validations: list[tuple[int, Any]]  # steps_completed, metrics and amounts trained
    timed: list[tuple[int, Any]]  # steps_completed, records of the batch
    lines: Mapping[tuple[int, int], list[str]]  # printed lines, by run and rank
    intervals: Mapping[int, list[Interval]]  # by rank
    cuts: list[tuple[int, int]]  # the last earlier run, and the step after which it trained again
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
    """The files below a home, and the processes that were started under it."""

    states: Mapping[int, str]  # states of experiments, as the master has shown them
    checkpoints: set[str]  # uuids of checkpoints that are not deleted
    set_aside: list[str]  # contents of the quarantine
    damages: list[str]  # problems that SQLite finds in its file
    files: list[str]  # paths; only the folders of checkpoints, runs and code
    # Role ("" if it has none) and description, also of processes elsewhere.
    processes: list[tuple[str, str]]


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
    data: Path, known: shown.Shown, checkpoints: Path | None = None
) -> StoredExperiment:
    """Return the stored data of an experiment.

    Args:
        data: The folder with the database.
        known: The master's answers about it.
        checkpoints: The folder with the checkpoints; None: the data folder's own.
    """
    view = known["experiment"]
    saved = defaultdict(list)
    for each in known["checkpoints"]:
        saved[each["trial_id"]].append(each)
    metrics = defaultdict(list)
    for trial_id, record in read_metrics(data / "det.sqlite3", view["id"]):
        metrics[trial_id].append(record)
    with read_only(data / "det.sqlite3") as db:
        return StoredExperiment(
            id=view["id"],
            state=view["state"],
            message=view["message"],
            trials={
                trial["index"]: _read_trial(
                    db,
                    trial,
                    metrics[trial["id"]],
                    _saved(checkpoints or data / "checkpoints", trial, saved[trial["id"]]),
                )
                for trial in view["trials"]
            },
        )


def _read_trial(
    db: sqlite3.Connection,
    view: Mapping[str, Any],
    metrics: list[dict[str, Any]],
    saved: Iterable[Saved],
) -> StoredTrial:
    trial_id, is_elastic = view["id"], bool(view["sizes"])
    lines: dict[tuple[int, int], list[str]] = defaultdict(list)
    for run, rank, text in db.execute(
        "SELECT run, rank, text FROM logs WHERE trial_id = ? ORDER BY id", (trial_id,)
    ):
        if rank == 0 or not is_elastic:
            lines[run, rank].append(text)
    progress = db.execute("SELECT * FROM progress WHERE trial_id = ?", (trial_id,)).fetchone()
    cuts = "SELECT run, steps_completed FROM series_cuts WHERE trial_id = ? ORDER BY id"
    reports = [record for record in metrics if record["kind"] == "metrics"]
    intervals = _intervals(db, trial_id)
    return StoredTrial(
        is_elastic=is_elastic,
        num_recoveries=view["num_recoveries"],
        shown={name: view[name] for name in _SHOWN} | {"progress": progress and progress[1:]},
        batches=[row for record in metrics for row in _rows(record, "values")],
        averages=[
            (record["steps_completed"], (record["group"], record["metrics"], record["trained"]))
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
        intervals={0: intervals[0]} if is_elastic else intervals,
        cuts=db.execute(cuts, (trial_id,)).fetchall(),
        saved=list(saved),
    )


def _rows(record: Mapping[str, Any], columns: str) -> Iterator[tuple[int, Any]]:
    """Yield steps_completed and the value of each column, of each batch in a record."""
    values: Mapping[str, list[Any]] = record.get(columns, {})
    for index in range(max(map(len, values.values()), default=0)):
        yield record["first"] + index, {name: column[index] for name, column in values.items()}


def _intervals(db: sqlite3.Connection, trial_id: int) -> dict[int, list[Interval]]:
    """Return the intervals of each rank that contain batches, packed or not, in order."""
    query = SeriesQuery(of="timings", axis="batches", columns=MAX_COLUMNS)
    found: dict[int, list[Interval]] = defaultdict(list)
    tables = read_tables(db, owner_of_trial(trial_id), query, EVER).tables
    for (run, source), table in sorted(tables.items()):
        columns = [table.get("", name) for name in ("first", "batches", "samples")]
        found[int(source.removeprefix("rank:"))] += [
            Interval(run=run, first=int(first), num=int(num), samples=int(samples))
            for first, num, samples in zip(*columns, strict=True)
            if num
        ]
    return found


def _saved(
    checkpoints: Path, trial: Mapping[str, Any], views: Iterable[Mapping[str, Any]]
) -> Iterator[Saved]:
    for view in views:
        folder = checkpoints / view["uuid"]
        yield Saved(
            uuid=view["uuid"],
            steps_completed=view["steps_completed"],
            state=view["state"],
            is_on_disk=folder.is_dir(),
            values=_values(folder) if folder.is_dir() else {},
            wrong=list(_wrong(folder, view, trial)) if folder.is_dir() else [],
        )


def _values(folder: Path) -> dict[str, Any]:
    """Return each value of the state in a checkpoint, and digests of its other files."""
    state = folder / STATE_FILE
    found = _contents(folder, state) if state.exists() else {}
    for name, own in _OWN_FIELDS.items():
        for field, value in _read_json(folder / name).items():
            if field == "config":
                kept = value.items()
                value = {key: each for key, each in kept if key not in _CHANGED_BY_USERS}
            if field not in own:
                found[f"{name}: {field}"] = json.dumps(value, sort_keys=True)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file != state and file.name not in _OWN_FIELDS:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            found[str(file.relative_to(folder))] = digest[:16]
    return found


def _contents(folder: Path, state: Path) -> dict[str, Any]:
    """Return the values of the training state; copies of a checkpoint are read once."""
    digest = hashlib.sha256(state.read_bytes()).digest()
    if digest not in _read:
        if len(_read) == _MOST_READ:
            _read.clear()
        _read[digest] = contents(folder)
    return dict(_read[digest])


def _read_json(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _wrong(folder: Path, view: Mapping[str, Any], trial: Mapping[str, Any]) -> Iterator[str]:
    """Yield contradictions between the files of a checkpoint and its row or trial."""
    if not (folder / METADATA).exists():
        yield f"it has no {METADATA}"
    rows = {
        METADATA: view,
        ORIGIN: {**trial, "trial_id": trial["id"]},
    }
    fields = {
        METADATA: ("uuid", "experiment_id", "trial_id", "steps_completed"),
        ORIGIN: ("experiment_id", "trial_id", "hparams", "seed"),
    }
    for name, row in rows.items():
        for field, value in _read_json(folder / name).items():
            if field in fields[name] and row[field] != value:
                yield f"{name}: {field} is {value!r}, and {row[field]!r} in the database"
    sizes = {file: file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    # Blobs count unless they are links to the master's blobs.
    blobs = sum(size for file, size in sizes.items() if _DIGEST.fullmatch(file.name))
    if view["size_bytes"] not in (total := sum(sizes.values()), total - blobs):
        yield f"its files have {total} bytes, and {view['size_bytes']} in the database"


def read_home(home: Path) -> StoredHome:
    """Return the files below a home, and the processes that were started under it."""
    known = shown.read(home)
    with read_only(home / "data" / "det.sqlite3") as db:
        set_aside = db.execute("SELECT source, error FROM quarantine ORDER BY id").fetchall()
    return StoredHome(
        states={number: each["experiment"]["state"] for number, each in known.items()},
        checkpoints={
            view["uuid"]
            for each in known.values()
            for view in each["checkpoints"]
            if view["state"] != "DELETED"
        },
        set_aside=[f"{source}: {error}" for source, error in set_aside],
        damages=damages_of(home / "data" / "det.sqlite3"),
        files=sorted(_files(home)),
        processes=list(_processes(home)),
    )


def last_news(data: Path) -> int:
    """Return a number that grows with each item of the feed and each line of a rank."""
    query = "SELECT seq FROM sqlite_sequence WHERE name IN ('feed', 'logs')"
    with read_only(data / "det.sqlite3") as db:
        return sum(number for (number,) in db.execute(query))


def damages_of(database: Path) -> list[str]:
    """Return the problems that SQLite finds in its file."""
    with read_only(database) as db:
        found = [row[0] for row in db.execute("PRAGMA integrity_check").fetchall()]
    return [line for line in found if line != "ok"]


def damaged_blobs(data: Path) -> list[str]:
    """Return the files of code whose content does not match their names."""
    files = [*data.glob("blobs/*/*"), *data.glob("checkpoints/*/code/files/*")]
    return [
        f"damaged: {file.relative_to(data)}"
        for file in files
        if hashlib.sha256(file.read_bytes()).hexdigest() != file.name
    ]


# Folders whose subfolders are listed without their contents.
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
