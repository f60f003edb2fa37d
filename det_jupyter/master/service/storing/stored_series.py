"""Stores measured numbers over time: samples of agents, and the times of ranks' parts.

    series_rows      a row of JSON for each sample of an owner and each interval of a rank
    series_chunks    rows packed into compressed columns (series_packing.py)
    series_missing   reasons why a name of a source has no values
    series_runs      when a trial ran, and on which devices of which agents
    series_cuts      the step from which a trial trained again after a run

Samples of a computer belong to its agent; those of ranks and loader workers belong to the trial.

Rows are packed, and chunks are rolled up into longer steps of time:

    rows (JSON)  ──►  as measured  ──►  10 s  ──►  1 min  ──►  10 min  ──►  1 h
                       a chunk of about 300 rows each

A chunk that was rolled up refers to the chunk of the next step that contains its rows
(`rolled_into`). Both are kept for a while: a picture of a long time reads the coarse one, a
picture of a short time the fine ones. For each step, a minimum number of the newest rows is kept
(LEVELS); rows of the last step are kept for ever. The rules do not depend on ages, so a jump of
the clock has no effect.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import NamedTuple

from pydantic_core import to_json

from det_jupyter.contract.messages import SystemSample, SystemSampled
from det_jupyter.contract.run.journal import StepTimes, to_line
from det_jupyter.contract.values.measures import PARTS, SYSTEM
from det_jupyter.master.service.storing.database import delete_in_parts, transaction

Values = dict[str, dict[str, float]]  # by source and name
TrialOf = Callable[[str, int], tuple[int, int] | None]  # trial and run of an allocation's rank

MEASURED = 0.0  # the step of rows that are not rolled up
LAST_STEP_S = 3600.0
_CLOCK_STEP_S = 60.0  # a sample older than the last one by this much means that the clock was set
_MAX_SOURCES = 2048  # sources in one sample
_MAX_OWN = 100  # most sections, and most counters, that a user may name
_MAX_NAME = 200  # characters of a name
_MAX_VALUE = 1e30  # greatest value: values are packed as float32, whose range ends at 3e38
_AGENT = "agent:"
OF_KEY = "owner = ? AND kind = ? AND run = ? AND source = ?"


@dataclass(frozen=True, slots=True)
class Level:
    """A step of time, how many of its rows are rolled up together, and how many are kept."""

    step_s: float
    num_rolled: int
    num_kept: int


LEVELS = (
    Level(MEASURED, 3_600, 3_600),  # an hour, with a sample per second
    Level(10.0, 2_160, 8_640),  # a day
    Level(60.0, 3_600, 10_080),  # a week
    Level(600.0, 2_160, 8_640),  # two months
)


class Key(NamedTuple):
    """Identifies the content of a row or chunk; `source` "" stands for all (rows of samples)."""

    owner: str
    kind: str
    run: int
    source: str


@dataclass(frozen=True, slots=True)
class SeriesChunk:
    """A packed table of one source, and the ids of the chunks that were rolled up into it."""

    key: Key
    step_s: float
    begins: float
    ends: float
    num: int
    blob: bytes
    children: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The ids of rows, and the chunks into which they were packed."""

    ids: list[int]
    chunks: list[SeriesChunk]


def owner_of_agent(agent_id: str) -> str:
    return _AGENT + agent_id


def agent_of(owner: str) -> str | None:
    """Return the agent's id; None if the owner is a trial."""
    return owner.removeprefix(_AGENT) if owner.startswith(_AGENT) else None


def owner_of_trial(trial_id: int) -> str:
    return f"trial:{trial_id}"


class StoredSeries:
    """The tables of measured numbers. Methods that add are called within a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add_samples(
        self, now: float, agent_id: str, report: SystemSampled, trial_of: TrialOf
    ) -> None:
        """Store samples of an agent's computer and of the processes of its ranks.

        A sample that is not newer than the owner's last one is dropped: it was sent twice, or the
        clock went back a little.
        """
        computer = Key(owner_of_agent(agent_id), "system", 0, "")
        rows: dict[Key, list[tuple[float, Values]]] = {}
        for sample in report.samples:
            for key, values in _by_key(computer, sample, trial_of).items():
                rows.setdefault(key, []).append((sample.at, values))
        for key, own in rows.items():
            last = self._last_of(key)
            for at, values in own:
                if last is None or at > last or at < last - _CLOCK_STEP_S:
                    self._add_row(now, key, at, to_json(values).decode())
                    last = at
            self._delete_reasons(key.owner, own[-1][1])
        self._add_reasons(computer.owner, report.missing, trial_of)

    def _last_of(self, key: Key) -> float | None:
        """Return the time of the newest sample, in rows or chunks."""
        row: tuple[float] | None = self._db.execute(
            f"SELECT at FROM series_rows WHERE {OF_KEY} ORDER BY id DESC LIMIT 1", key
        ).fetchone()
        if row is None:
            row = self._db.execute(
                "SELECT ends FROM series_chunks WHERE owner = ? AND kind = ? AND run = ? "
                "AND step_s = 0 ORDER BY id DESC LIMIT 1",
                key[:3],
            ).fetchone()
        return row[0] if row else None

    def _add_row(self, now: float, key: Key, at: float, text: str) -> None:
        self._db.execute(
            "INSERT INTO series_rows (owner, kind, run, source, at, stored_at, json) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key, at, now, text),
        )

    def _delete_reasons(self, owner: str, values: Values) -> None:
        """Delete the reasons for missing values of names that now have values."""
        query = "SELECT source, name FROM series_missing WHERE owner = ?"
        for source, name in self._db.execute(query, (owner,)).fetchall():
            if name in values.get(source, {}):
                self._db.execute(
                    "DELETE FROM series_missing WHERE owner = ? AND source = ? AND name = ?",
                    (owner, source, name),
                )

    def _add_reasons(
        self, owner: str, missing: Mapping[str, Mapping[str, str]], trial_of: TrialOf
    ) -> None:
        for source, reasons in list(missing.items())[:_MAX_SOURCES]:
            found = _key_of(Key(owner, "system", 0, ""), source, trial_of)
            if found is None:
                continue
            key, own_source = found
            self._db.executemany(
                "INSERT OR REPLACE INTO series_missing VALUES (?, ?, ?, ?)",
                [
                    (key.owner, own_source, name, why)
                    for name, why in reasons.items()
                    if name in SYSTEM
                ],
            )

    def add_times(self, now: float, trial_id: int, run: int, rank: int, record: StepTimes) -> None:
        """Store the times of a rank's parts in an interval."""
        own = [name for name in record.parts if name not in PARTS and len(name) <= _MAX_NAME]
        kept = {*PARTS, *own[:_MAX_OWN]}
        counters = [c for c in record.counters.items() if len(c[0]) <= _MAX_NAME]
        record = replace(
            record,
            parts={
                name: times
                for name, times in record.parts.items()
                if name in kept and all(map(_is_in_range, times))
            },
            counters={n: v for n, v in counters[:_MAX_OWN] if _is_in_range(v)},
        )
        key = Key(owner_of_trial(trial_id), "timings", run, f"rank:{rank}")
        self._add_row(now, key, record.at, to_line(record).rstrip("\n"))

    # runs of trials

    def begin_run(
        self, trial_id: int, run: int, at: float, devices: Mapping[str, Sequence[str]]
    ) -> None:
        """Store the start of a run, and the UUIDs of its devices by agent."""
        self._db.execute(
            "INSERT OR IGNORE INTO series_runs VALUES (?, ?, ?, NULL, ?)",
            (trial_id, run, at, json.dumps(devices)),
        )

    def end_run(self, trial_id: int, run: int, at: float) -> None:
        """Store the end of a run."""
        self._db.execute(
            "UPDATE series_runs SET ended_at = ? WHERE trial_id = ? AND run = ? "
            "AND ended_at IS NULL",
            (at, trial_id, run),
        )

    def cut(self, trial_id: int, run: int, steps_completed: int) -> None:
        """Record that a run begins after this step, so that later steps of earlier runs are void.

        Earlier runs may have rows although their start was not reported, because their agent was
        lost.
        """
        self._db.execute(
            "INSERT INTO series_cuts (trial_id, run, steps_completed) VALUES (?, ?, ?)",
            (trial_id, run - 1, steps_completed),
        )

    def delete(self, trial_ids: Sequence[int]) -> Iterator[None]:
        """Delete all data of these trials: some in each step, each step in a transaction."""
        owners = [owner_of_trial(trial_id) for trial_id in trial_ids]
        marks = ", ".join("?" * len(owners))
        for table in ("series_rows", "series_chunks"):
            yield from delete_in_parts(self._db, table, "id", f"owner IN ({marks})", owners)
        with transaction(self._db):
            self._db.execute(f"DELETE FROM series_missing WHERE owner IN ({marks})", owners)
            for table in ("series_runs", "series_cuts"):
                self._db.execute(f"DELETE FROM {table} WHERE trial_id IN ({marks})", trial_ids)
        yield

    # chunks

    def has_rows(self) -> bool:
        """Whether there are rows that are not packed."""
        return self._db.execute("SELECT 1 FROM series_rows LIMIT 1").fetchone() is not None

    def replace_rows(self, packed: PackedRows) -> None:
        """Replace rows by the chunks into which they were packed, in a transaction."""
        with transaction(self._db):
            marks = ", ".join("?" * len(packed.ids))
            found = self._db.execute(
                f"DELETE FROM series_rows WHERE id IN ({marks})", packed.ids
            ).rowcount
            if found == len(packed.ids):  # else the trial was deleted meanwhile
                for chunk in packed.chunks:
                    self._add_chunk(chunk)

    def _add_chunk(self, chunk: SeriesChunk) -> int:
        cursor = self._db.execute(
            "INSERT INTO series_chunks "
            "(owner, kind, run, source, step_s, begins, ends, num, blob) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*chunk.key, chunk.step_s, chunk.begins, chunk.ends, chunk.num, chunk.blob),
        )
        return cursor.lastrowid or 0

    def add_rolled(self, chunk: SeriesChunk) -> None:
        """Add a rolled up chunk, and delete old chunks of the step below, in a transaction."""
        level = max(
            (each for each in LEVELS if each.step_s < chunk.step_s), key=lambda e: e.step_s
        )
        marks = ", ".join("?" * len(chunk.children))
        with transaction(self._db):
            number = self._add_chunk(chunk)
            found = self._db.execute(
                f"UPDATE series_chunks SET rolled_into = ? WHERE id IN ({marks})",
                (number, *chunk.children),
            ).rowcount
            if found != len(chunk.children):  # the trial was deleted meanwhile
                self._db.execute("DELETE FROM series_chunks WHERE id = ?", (number,))
                return
            parents = self._db.execute(
                f"SELECT rolled_into, sum(num) FROM series_chunks WHERE {OF_KEY} AND step_s = ? "
                "GROUP BY rolled_into ORDER BY max(id)",
                (*chunk.key, level.step_s),
            ).fetchall()
            spare = sum(num for _, num in parents) - level.num_kept
            for parent, num in parents:
                spare -= num
                if spare < 0 or parent is None:
                    break
                self._db.execute("DELETE FROM series_chunks WHERE rolled_into = ?", (parent,))


def _is_in_range(value: float) -> bool:
    return isfinite(value) and abs(value) <= _MAX_VALUE


def _by_key(computer: Key, sample: SystemSample, trial_of: TrialOf) -> dict[Key, Values]:
    """Return the sample's values by owner; unknown names are left out."""
    found: dict[Key, Values] = {}
    for source, values in list(sample.values.items())[:_MAX_SOURCES]:
        known = {n: v for n, v in values.items() if n in SYSTEM and _is_in_range(v)}
        place = _key_of(computer, source, trial_of)
        if known and place is not None:
            key, own_source = place
            found.setdefault(key, {})[own_source] = known
    return found


def _key_of(computer: Key, source: str, trial_of: TrialOf) -> tuple[Key, str] | None:
    """Return the owner of a source, and the source's name for that owner.

    None if the source is a process of a run that is unknown or over.
    """
    kind, _, rest = source.partition(":")
    if kind not in ("rank", "workers"):
        return (computer, source) if len(source) <= _MAX_NAME else None
    allocation_id, _, rank = rest.rpartition(":")
    if not (rank.isascii() and rank.isdecimal() and len(rank) < 8):
        return None
    found = trial_of(allocation_id, int(rank))
    if found is None:
        return None
    trial_id, run = found
    return Key(owner_of_trial(trial_id), "system", run, ""), f"{kind}:{int(rank)}"
