"""Every table and column of the database, and checks within them.

TABLES has each column: JUDGED, or why a change of it is not detected. KEPT in judge.py has each
kind of file. A test compares TABLES with the schema; walk.py changes a value of each judged
column, and each judged field in JSON.

`mistakes` are the checks within the database: data that are stored twice must be equal, and
ordered data must stay in order. They hold for any experiment, however it was disturbed.

    judge.py      values against an undisturbed experiment, and gaps
    restored.py   the master's answers, and marks of the feed, against events and snapshots
    here          columns against each other, measured times against each other
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from det_jupyter.config.pools import parse_pools
from det_jupyter.config.yaml_text import parse_yaml
from det_jupyter.contract.messages import SeriesQuery
from det_jupyter.contract.messages.queries import MAX_COLUMNS
from det_jupyter.errors import ConfigError
from det_jupyter.master.service.storing.series_reading import EVER, read_tables
from det_jupyter.master.service.storing.stored_logs import ROW_BYTES
from det_jupyter.master.service.storing.stored_rows import read_only
from det_jupyter.master.service.storing.stored_series import owner_of_trial
from det_jupyter.master.views.series_tables import Table, from_bytes
from tests.soak import shown
from tests.soak.collected import damaged_blobs
from tests.soak.restored import contradictions

JUDGED = ""
_NO_TWIN = "measured, and stored nowhere else: no two runs have the same"
_NO_ROWS = JUDGED  # a table that a soak does not use: any row is a mistake
TABLES: dict[str, dict[str, str]] = {
    "events": {"seq": JUDGED, "at": JUDGED, "json": JUDGED},
    "snapshots": {"seq": JUDGED, "json": JUDGED},
    "feed": {
        "seq": JUDGED, "at": JUDGED, "kind": JUDGED, "experiment_id": JUDGED, "trial_id": JUDGED,
        "first_step": JUDGED, "last_step": JUDGED, "json": JUDGED,
    },
    "logs": {
        "id": JUDGED, "at": JUDGED, "trial_id": JUDGED, "run": JUDGED, "rank": JUDGED,
        "text": JUDGED, "level": JUDGED, "is_open": JUDGED, "agent": JUDGED,
    },
    "log_sizes": {"trial_id": JUDGED, "rank": JUDGED, "bytes": JUDGED, "lines_cut": JUDGED},
    "offsets": {
        "allocation_id": "of a run whose files are gone: nothing is read from there again",
        "stream": "the same", "bytes": "the same",
    },
    "progress": {"trial_id": JUDGED, "steps_completed": JUDGED, "fraction": JUDGED},
    "timings": {
        "id": JUDGED, "trial_id": JUDGED, "first_step": JUDGED, "last_step": JUDGED,
        "json": JUDGED,
    },
    "numbers": {
        "seq": "a state takes the numbers of the last row only",
        "last_experiment_id": JUDGED, "last_trial_id": JUDGED,
    },
    "facts": {
        "id": "there is one row", "json": "of clusters and disks as they are now",
    },
    "quarantine": dict.fromkeys(
        ("id", "at", "experiment_id", "source", "content", "error"), _NO_ROWS
    ),
    "series_rows": {
        "id": JUDGED, "owner": JUDGED, "kind": JUDGED, "run": JUDGED, "source": JUDGED,
        "at": JUDGED, "json": JUDGED,
        "stored_at": "when a row is packed; the table has the same rows then",
    },
    "series_chunks": {
        "id": "no number is told to others before the chunk is rolled up",
        "owner": JUDGED, "kind": JUDGED, "run": JUDGED, "source": JUDGED, "step_s": JUDGED,
        "begins": JUDGED, "ends": JUDGED, "num": JUDGED, "rolled_into": JUDGED, "blob": JUDGED,
    },
    "series_missing": dict.fromkeys(
        ("owner", "source", "name", "why"), "of a computer, and not of an experiment"
    ),
    "series_runs": {
        "trial_id": JUDGED, "run": JUDGED, "began_at": JUDGED, "ended_at": JUDGED, "json": JUDGED,
    },
    "series_cuts": {"id": "only their set counts", "trial_id": JUDGED, "run": JUDGED,
                    "steps_completed": JUDGED},
    "verdicts": {"trial_id": JUDGED, "json": JUDGED},
    "templates": dict.fromkeys(("name", "created_at", "updated_at", "json"), _NO_ROWS),
    "alerts": dict.fromkeys(
        ("id", "at", "news", "destination", "state", "attempts", "next_at", "problem"), _NO_ROWS
    ),
    "alert_addresses": dict.fromkeys(("id", "at", "address"), _NO_ROWS),
    "tracked": dict.fromkeys(
        ("id", "experiment_id", "tracker", "environment", "key", "seq", "attempts", "next_at",
         "problem", "is_over"),
        _NO_ROWS,
    ),
    "tracked_runs": dict.fromkeys(("tracked_id", "trial_id", "json"), _NO_ROWS),
    "sqlite_sequence": {
        "name": JUDGED,
        "seq": "a larger number leaves a gap; of a smaller one the next row would fail",
    },
}  # fmt: skip
_UNUSED = ("templates", "alerts", "alert_addresses", "tracked", "tracked_runs")
# Timed parts of batches that the intervals of the chief have under the same name.
_TIMED_TWICE = ("dataloader_next", "to_device", "step_lr_schedulers")
# By kind of mark in the feed: whether it has an experiment, and a trial.
_MARKED = {
    "experiment": [True, False], "config": [True, False], "trial": [True, True],
    "checkpoint": [True, True], "cluster": [False, False],
}  # fmt: skip
_CLOSE = 1e-3  # relative difference between a sum of float32 and one of nanoseconds
# On a busy computer, the clock for an interval's end is read later than that for its length.
_APART_S = 2.0

Check = Callable[[sqlite3.Connection], Iterator[str]]


def damages(home: Path) -> list[str]:
    """Return the problems of the stored data below a home, disturbed in any way."""
    data = home / "data"
    found = [*mistakes(data / "det.sqlite3"), *damaged_blobs(data), *_damaged_files(data)]
    return found + contradictions(data, shown.read(home))


def _damaged_files(data: Path) -> Iterator[str]:
    try:
        pools = parse_pools(parse_yaml((data / "pools.yaml").read_text())).pools
    except (ConfigError, OSError) as error:
        yield f"damaged: pools.yaml: {error}"
        return
    if not pools:
        yield "damaged: pools.yaml: it has no pool"


def mistakes(database: Path) -> list[str]:
    """Return the contradictions within the tables."""
    found: list[str] = []
    with read_only(database) as db:
        for check in _CHECKS:
            try:
                found += check(db)
            # A damaged row may have any content.
            except (ValueError, LookupError, TypeError) as error:
                found.append(f"a row cannot be read: {error!r}")
    return found


def _unused(db: sqlite3.Connection) -> Iterator[str]:
    for table in _UNUSED:
        if num := db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]:
            yield f"{table} has {num} rows, and nothing writes there"


def _numbers(db: sqlite3.Connection) -> Iterator[str]:
    """Check the numbers of rows: events have no gaps, and no number occurs twice."""
    events = db.execute("SELECT seq, at FROM events ORDER BY seq").fetchall()
    if [seq for seq, _ in events] != list(range(1, len(events) + 1)):
        yield "events: a number is missing"
    if [at for _, at in events] != sorted(at for _, at in events):
        yield "events: one is older than the one before"
    last = dict(db.execute("SELECT name, seq FROM sqlite_sequence"))
    for table, key in (("feed", "seq"), ("logs", "id"), ("timings", "id")):
        highest = db.execute(f"SELECT max({key}) FROM {table}").fetchone()[0]
        if highest is not None and last.get(table, 0) < highest:
            yield f"sqlite_sequence: {table} has a row {highest} behind its last number"


def _feed(db: sqlite3.Connection) -> Iterator[str]:
    before, marks = 0.0, set()
    runs = set(db.execute("SELECT trial_id, run FROM series_runs"))
    for seq, at, kind, *of, first, last, text in db.execute(
        "SELECT seq, at, kind, experiment_id, trial_id, first_step, last_step, json "
        "FROM feed ORDER BY seq"
    ):
        item = json.loads(text)
        if kind == "metrics":
            yield from _metrics_row(seq, at, first, last, item)
            if (of[1], item["run"]) not in runs:
                yield f"feed {seq}: run {item['run']} of trial {of[1]} is unknown"
            continue
        if (first, last) != (None, None):
            yield f"feed {seq}: a {kind} of steps {first} to {last}"
        if at < before:
            yield f"feed {seq}: it is older than the item before"
        before = at
        if kind != "truncated":
            yield from _mark(seq, kind, of, item)
            if (mark := (kind, *of)) in marks:
                yield f"feed {seq}: a second mark of {mark}"
            marks.add(mark)


def _mark(seq: int, kind: str, of: list[int | None], item: dict[str, Any]) -> Iterator[str]:
    if kind not in _MARKED:
        yield f"feed {seq}: its kind is {kind}"
    elif [bool(number) for number in of] != _MARKED[kind]:
        yield f"feed {seq}: a mark of the {kind} of {of}"
    if item:
        yield f"feed {seq}: a mark with {item}"


def _metrics_row(
    seq: int, at: float, first: int, last: int, item: dict[str, Any]
) -> Iterator[str]:
    if item["kind"] == "metrics":
        steps = (item["steps_completed"], item["steps_completed"])
    else:
        num = max(map(len, item["values"].values()), default=0)
        steps = (item["first"], item["first"] + num - 1)
    if (first, last) != steps:
        yield f"feed {seq}: steps {first} to {last}, of a record of {steps[0]} to {steps[1]}"
    if at != item["at"]:
        yield f"feed {seq}: its time is {at}, and that of its record {item['at']}"


def _logs(db: sqlite3.Connection) -> Iterator[str]:
    sizes: dict[tuple[int, int], int] = defaultdict(int)
    times: dict[tuple[int, int, int], float] = {}
    agents: dict[tuple[int, int, int], str] = {}
    runs: dict[tuple[int, int], dict[str, list[str]]] = {
        (trial_id, run): json.loads(text)
        for trial_id, run, text in db.execute("SELECT trial_id, run, json FROM series_runs")
    }
    for number, at, trial_id, run, rank, text, level, is_open, agent in db.execute(
        "SELECT id, at, trial_id, run, rank, text, level, is_open, agent FROM logs ORDER BY id"
    ):
        where, key = f"line {number} of trial {trial_id}", (trial_id, run, rank)
        sizes[trial_id, rank] += len(text) + ROW_BYTES
        if at < times.setdefault(key, at):
            yield f"{where}: it is older than the line before"
        times[key] = at
        if text.startswith("batch ") and (level, is_open) != (0, 0):
            yield f"{where}: level {level}, is_open {is_open}"
        if agent != agents.setdefault(key, agent) or agent not in runs.get(key[:2], {agent: []}):
            yield f"{where}: its agent is {agent!r}"
    for trial_id, rank, num_bytes, cut in db.execute("SELECT * FROM log_sizes"):
        if (num_bytes, cut) != (sizes.pop((trial_id, rank), 0), 0):
            yield f"log_sizes: trial {trial_id}, rank {rank}: {num_bytes} bytes, {cut} lines cut"
    yield from (f"log_sizes: none of trial {key[0]}, rank {key[1]}" for key in sizes)


def _timings(db: sqlite3.Connection) -> Iterator[str]:
    times: dict[int, float] = {}
    for number, trial_id, first, last, text in db.execute(
        "SELECT id, trial_id, first_step, last_step, json FROM timings ORDER BY id"
    ):
        record = json.loads(text)
        num = len(record["records"])
        lengths = {len(values) for values in record["durations_ns"].values()}
        if (record["first"], record["first"] + num - 1, {num}) != (first, last, lengths | {num}):
            yield f"timings {number}: steps {first} to {last}, of a record of {num} batches"
        if record["at"] < times.get(trial_id, 0.0):
            yield f"timings {number}: it is older than the row before"
        times[trial_id] = record["at"]


def _runs(db: sqlite3.Connection) -> Iterator[str]:
    """Check the times of runs against the reports of their start and end."""
    reports: dict[str, dict[tuple[int, int], set[float]]] = {
        kind: defaultdict(set) for kind in ("gang_started", "gang_exited")
    }
    for (text,) in db.execute("SELECT json FROM events"):
        event = json.loads(text)
        if (kind := event["kind"]) in reports:
            _, trial_id, run = map(int, event["allocation_id"].split("."))
            reports[kind][trial_id, run].add(event["at"])
    started, exited = reports.values()
    # A trial whose runs were all killed at their start has no progress.
    there = {number for (number,) in db.execute("SELECT trial_id FROM feed WHERE kind = 'trial'")}
    rows = {
        (trial_id, run): times
        for trial_id, run, *times in db.execute(
            "SELECT trial_id, run, began_at, ended_at FROM series_runs"
        )
    }
    expected = {key for key in started if key[0] in there}
    for trial_id, run in sorted(rows.keys() ^ expected):
        yield f"series_runs: run {run} of trial {trial_id} is in one of rows and events"
    for key in rows.keys() & expected:
        began_at, ended_at = rows[key]
        if began_at not in started[key] or ended_at not in (exited[key] or {ended_at}):
            yield f"series_runs: run {key[1]} of trial {key[0]}: {began_at} to {ended_at}"


def _series(db: sqlite3.Connection) -> Iterator[str]:
    ids = {number for (number,) in db.execute("SELECT id FROM series_chunks")}
    for number, begins, ends, num, into, blob in db.execute(
        "SELECT id, begins, ends, num, rolled_into, blob FROM series_chunks"
    ):
        try:
            table = from_bytes(blob)
        except ValueError as error:
            yield f"series_chunks {number}: {error}"
            continue
        facts = (float(table.at.min()), float(table.at.max()), len(table.at))
        if facts != (begins, ends, num) or (into is not None and into not in ids):
            yield f"series_chunks {number}: {facts}, not {(begins, ends, num)} in {into}"
    for number, at, text in db.execute(
        "SELECT id, at, json FROM series_rows WHERE kind = 'timings'"
    ):
        if (found := json.loads(text)["at"]) != at:
            yield f"series_rows {number}: its time is {at}, and that of its record {found}"


def _times(db: sqlite3.Connection) -> Iterator[str]:
    """Check measured times: the intervals of each rank, and those of the chief against batches."""
    query = SeriesQuery(of="timings", axis="batches", columns=MAX_COLUMNS)
    for (trial_id,) in db.execute("SELECT trial_id FROM progress").fetchall():
        found = read_tables(db, owner_of_trial(trial_id), query, EVER)
        for (run, source), table in found.tables.items():
            where = f"timings of trial {trial_id}, run {run}, {source}"
            yield from (f"{where}: {line}" for line in _intervals(table))
        has_run_again = db.execute(
            "SELECT 1 FROM series_cuts WHERE trial_id = ?", (trial_id,)
        ).fetchone()
        chief = [t for (_, source), t in found.tables.items() if source == "rank:0"]
        # Otherwise, batches of one run and intervals of another are missing.
        if chief and not has_run_again:
            yield from _timed_twice(db, trial_id, chief)


def _intervals(table: Table) -> Iterator[str]:
    """Check that parts sum to their interval, and that intervals follow each other."""
    order = table.at.argsort()
    begins, seconds = table.at[order], table.get("", "seconds")[order]
    totals = [table.get(name, "total")[order] for name in table.names if _is_part(name)]
    for begin, length, parts in zip(begins, seconds, zip(*totals, strict=True), strict=False):
        if abs(sum(parts) - length) > _CLOSE * max(length, 1.0):
            yield f"at {begin:.3f} the parts of {length:.4f} s sum to {sum(parts):.4f} s"
    ends = begins + seconds
    for end, begin in zip(ends, begins[1:], strict=False):
        if abs(end - begin) > _APART_S:
            yield f"an interval ends at {end:.3f}, and the next begins at {begin:.3f}"


def _is_part(name: str) -> bool:
    return not name.startswith(("section.", "counter."))


def _timed_twice(db: sqlite3.Connection, trial_id: int, chief: list[Table]) -> Iterator[str]:
    rows = db.execute("SELECT json FROM timings WHERE trial_id = ?", (trial_id,))
    records = [json.loads(text)["durations_ns"] for (text,) in rows]
    for part in _TIMED_TWICE:
        batches = sum(ns or 0 for record in records for ns in record.get(part, ())) / 1e9
        intervals = sum(float(table.get(part, "total").sum()) for table in chief)
        if records and abs(batches - intervals) > _CLOSE * max(1.0, intervals):
            yield (
                f"{part} of trial {trial_id}: {batches:.4f} s in its batches, "
                f"{intervals:.4f} s in its intervals"
            )


_CHECKS: tuple[Check, ...] = (
    _unused, _numbers, _feed, _logs, _timings, _runs, _series, _times,
)  # fmt: skip
