"""Samples of a computer: as packed chunks (ours), and as one narrow table that SQL rolls up.

    python -m tests.benchmarks.series_in_sql            a day; a table
    python -m tests.benchmarks.series_in_sql --hours 1 --noise

Both stores get the same 359 numbers a second: 8 GPUs, 16 ranks with workers, the host. The rival
has a row for each number, `points(series, step_s, at, num, total, low, high)` without rowid, and
keeps as many rows of each step as ours does (`LEVELS`). Its numbers are first stored in the order
in which they arrive, and moved every 5 minutes: stored directly in the order of the series, each
second would write to 359 pages. Rolling up is `INSERT ... SELECT ... GROUP BY` for one series at a
time.

Times are CPU times, so other programs do not count. Without `--noise` half of the numbers change
little, as in practice; noise is the worst case for compression.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil

from det_jupyter.contract.messages import (
    Series,
    SeriesPage,
    SeriesQuery,
    SystemSample,
    SystemSampled,
)
from det_jupyter.master.service.storing.database import open_database, transaction
from det_jupyter.master.service.storing.series_packing import find_due, pack, roll_up
from det_jupyter.master.service.storing.series_reading import read_agent
from det_jupyter.master.service.storing.stored_series import LAST_STEP_S, LEVELS, StoredSeries
from det_jupyter.master.views.series_pages import rounded
from tests.benchmarks.series_history import NUM_GPUS, drawn_samples

AGENT = "here"
COLUMNS = 600
_START = 1.75e9
_CHORES = 300  # samples between two rounds of packing, or of moving
_ROLL_UPS = (3600, 21_600, 43_200, 86_400)  # samples between two roll-ups, by level
_STEPS = [*(int(level.step_s) for level in LEVELS), int(LAST_STEP_S)]


class Ours:
    """Rows of JSON, which are packed and rolled up outside of the writer."""

    def __init__(self, path: Path) -> None:
        self.path, self.db = path, open_database(path)
        self.series = StoredSeries(self.db)
        self.held_s: list[float] = []  # CPU seconds for which each transaction blocks the writer

    def add(self, sample: SystemSample) -> None:
        with transaction(self.db):
            report = SystemSampled(samples=[sample])
            self.series.add_samples(sample.at, AGENT, report, lambda run, rank: (1, 1))

    def do_chores(self, index: int) -> None:
        for key in find_due(self.path, _START + index):
            packed = pack(self.path, key)
            began = time.process_time()
            self.series.replace_rows(packed)
            self.held_s.append(time.process_time() - began)
            for chunk in roll_up(self.path, [chunk.key for chunk in packed.chunks]):
                began = time.process_time()
                self.series.add_rolled(chunk)
                self.held_s.append(time.process_time() - began)

    def read(self, query: SeriesQuery, end: float) -> SeriesPage:
        return read_agent(self.path, AGENT, query)


class OneTable:
    """A row for each number, rolled up in SQL."""

    def __init__(self, path: Path) -> None:
        self.path, self.db = path, open_database(path)
        self.held_s: list[float] = []
        self._ids: dict[tuple[str, str], int] = {}
        self.db.executescript("""
            CREATE TABLE names (id INTEGER PRIMARY KEY, source TEXT, name TEXT);
            CREATE TABLE points (
                series INTEGER, step_s INTEGER, at REAL, num INTEGER, total REAL, low REAL,
                high REAL, PRIMARY KEY (series, step_s, at)) WITHOUT ROWID;
            CREATE TABLE arrived (
                at REAL, series INTEGER, value REAL, PRIMARY KEY (at, series)) WITHOUT ROWID;
        """)

    def add(self, sample: SystemSample) -> None:
        with transaction(self.db):
            rows = [
                (sample.at, self._id(source, name), value)
                for source, values in sample.values.items()
                for name, value in values.items()
            ]
            self.db.executemany("INSERT OR IGNORE INTO arrived VALUES (?, ?, ?)", rows)

    def _id(self, source: str, name: str) -> int:
        if (source, name) not in self._ids:
            query = "INSERT INTO names (source, name) VALUES (?, ?)"
            number = self.db.execute(query, (source, name)).lastrowid
            self._ids[source, name] = number or 0
        return self._ids[source, name]

    def _change(self, *queries: tuple[str, tuple[float, ...]]) -> None:
        began = time.process_time()
        with transaction(self.db):
            for query, values in queries:
                self.db.execute(query, values)
        self.held_s.append(time.process_time() - began)

    def do_chores(self, index: int) -> None:
        # A few at a time, as this blocks the writer.
        for first in range(1, len(self._ids) + 1, 12):
            self._change((
                "INSERT OR IGNORE INTO points SELECT series, 0, at, 1, value, NULL, NULL "
                "FROM arrived WHERE series BETWEEN ? AND ? ORDER BY series, at",
                (first, first + 11),
            ))  # fmt: skip
        while self.db.execute("SELECT 1 FROM arrived LIMIT 1").fetchone():
            some = "SELECT at, series FROM arrived LIMIT 6000"
            self._change((f"DELETE FROM arrived WHERE (at, series) IN ({some})", ()))
        for level, every in enumerate(_ROLL_UPS):
            if index % every == every - 1:
                for series in self._ids.values():
                    self._roll_up(series, level)

    def _roll_up(self, series: int, level: int) -> None:
        step_s, next_s = _STEPS[level : level + 2]
        newest = "SELECT max(at) FROM points WHERE series = ? AND step_s = ?"
        done = self.db.execute(newest, (series, next_s)).fetchone()[0]
        since = 0.0 if done is None else done + next_s
        until = self.db.execute(newest, (series, step_s)).fetchone()[0] // next_s * next_s
        oldest = self.db.execute(
            "SELECT at FROM points WHERE series = ? AND step_s = ? "
            "ORDER BY at DESC LIMIT 1 OFFSET ?",
            (series, step_s, LEVELS[level].num_kept),
        ).fetchone()
        self._change(
            (
                "INSERT OR REPLACE INTO points SELECT series, ?, CAST(at / ? AS INT) * ?, "
                "sum(num), sum(total), min(coalesce(low, total)), max(coalesce(high, total)) "
                "FROM points WHERE series = ? AND step_s = ? AND at >= ? AND at < ? "
                "GROUP BY CAST(at / ? AS INT)",
                (next_s, next_s, next_s, series, step_s, since, until, next_s),
            ),
            (
                "DELETE FROM points WHERE series = ? AND step_s = ? AND at <= ?",
                (series, step_s, oldest[0] if oldest else 0.0),
            ),
        )

    def read(self, query: SeriesQuery, end: float) -> SeriesPage:
        begin = query.since or _START
        width = (end - begin) / COLUMNS
        steps = [step_s for step_s in reversed(_STEPS) if step_s <= width]
        page = SeriesPage(series=[], began_at=_START, ended_at=None, interval_s=1.0)
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as db:
            for number, source, name in db.execute("SELECT * FROM names").fetchall():
                if source not in (query.sources or [source]):
                    continue
                if source.startswith(("rank", "workers")) or name not in (query.names or [name]):
                    continue
                rows, since = [], begin
                # The longest step first, then the rows that it does not have yet.
                for step_s in steps:
                    rows += db.execute(
                        "SELECT min(at), sum(num), sum(total), min(coalesce(low, total)), "
                        "max(coalesce(high, total)), max(at) FROM points WHERE series = ? "
                        "AND step_s = ? AND at >= ? GROUP BY CAST((at - ?) / ? AS INT)",
                        (number, step_s, since, begin, width),
                    ).fetchall()
                    since = rows[-1][5] + step_s if rows else since
                if rows:
                    at, num, total, low, high, _ = np.array(rows, dtype=float).T
                    series = Series(
                        source=source, name=name, title=name, x=at.tolist(),
                        low=rounded(low), mid=rounded(total / num), high=rounded(high),
                    )  # fmt: skip
                    page.series.append(series)
        return page


def steady_samples(noise: list[dict[str, dict[str, float]]]) -> list[dict[str, dict[str, float]]]:
    """Return realistic samples: memory changes now and then, other values little."""
    drawn = random.Random(5)
    memory: dict[tuple[str, str], float] = {}
    samples = []
    for sample in noise:
        samples.append({source: dict(values) for source, values in sample.items()})
        for source, values in samples[-1].items():
            for name in values:
                if "memory" in name:
                    before = memory.setdefault((source, name), 4096.0 * drawn.randrange(10**7))
                    memory[source, name] += 4096 * drawn.randrange(50) * (drawn.random() < 0.2)
                    values[name] = before
                elif name.startswith(("num_", "gpu_throttled")):
                    values[name] = 12.0
                elif name.startswith(("gpu_", "cpu_")):
                    values[name] = float(drawn.randrange(60, 100))
    return samples


def main() -> None:
    """Measure both, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--noise", action="store_true")
    given = parser.parse_args()
    noise = [
        {source: {n: round(v, 2) for n, v in values.items()} for source, values in sample.items()}
        for sample in drawn_samples()
    ]
    samples = noise if given.noise else steady_samples(noise)
    num_numbers = sum(map(len, samples[0].values()))
    num_samples = int(3600 * given.hours)
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        stores = (Ours(Path(folder) / "ours"), OneTable(Path(folder) / "one_table"))
        results: list[dict[str, float]] = []
        for store in stores:
            intake_s = chores_s = 0.0
            written = process.io_counters().write_chars
            for index in range(num_samples):
                values = samples[index % len(samples)]
                began = time.process_time()
                store.add(SystemSample.model_construct(at=_START + index, values=values))
                intake_s += time.process_time() - began
                if index % _CHORES == _CHORES - 1:
                    began = time.process_time()
                    store.do_chores(index)
                    chores_s += time.process_time() - began
            written = process.io_counters().write_chars - written
            store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            free = 4096 * store.db.execute("PRAGMA freelist_count").fetchone()[0]
            num_bytes = store.path.stat().st_size - free
            results.append({
                "MB": num_bytes / 1e6,
                "bytes per number": num_bytes / num_samples / num_numbers,
                "MB written": written / 1e6,
                "CPU ms of a sample's intake": 1e3 * intake_s / num_samples,
                "CPU ms of chores, each sample": 1e3 * chores_s / num_samples,
                "CPU ms of a chore's transaction, 99th percentile": 1e3
                * sorted(store.held_s)[int(0.99 * len(store.held_s))],
            })  # fmt: skip
            end = _START + num_samples
            gpus = [f"gpu:GPU-{index}" for index in range(NUM_GPUS)]
            for name, query in {
                "all of the time, one name": SeriesQuery(of="system", names=["gpu_util"]),
                "all of the time, 8 GPUs": SeriesQuery(of="system", sources=gpus),
                "last hour, 8 GPUs": SeriesQuery(of="system", sources=gpus, since=end - 3600),
            }.items():
                taken = []
                for _ in range(4):
                    began = time.process_time()
                    store.read(query, end).model_dump_json()
                    taken.append(time.process_time() - began)
                results[-1][f"CPU ms to read: {name}"] = 1e3 * sorted(taken)[1]
    print(f"{'':46} {'ours':>10} {'one table':>10}")
    for name, value in results[0].items():
        print(f"{name:46} {value:10.4g} {results[1][name]:10.4g}")


if __name__ == "__main__":
    main()
