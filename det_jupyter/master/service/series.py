"""Measured numbers over time: what agents sample, and where the time of ranks goes.

    series_rows      a row for each sample of an owner, each interval of a rank; JSON, as they came
    series_chunks    what was packed of them (series_packing.py)
    series_missing   why a name of a source has no values
    series_runs      when a trial ran, and on which devices of which agents
    series_cuts      from which step on a trial trained again after a run

Samples of a machine belong to its agent, those of a rank and of its loader workers to the trial.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from pydantic_core import to_json

from det_jupyter.contract.messages import SystemSample, SystemSampled
from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.contract.values.json_numbers import json_ready
from det_jupyter.contract.values.measures import PARTS, SYSTEM
from det_jupyter.master.service.database import delete_in_parts, transaction

Values = dict[str, dict[str, float]]  # by source and name
TrialOf = Callable[[str, int], tuple[int, int] | None]  # trial and run of an allocation's rank

_CLOCK_STEP_S = 60.0  # a sample so much older than the last one comes from a clock set back
_MAX_SOURCES = 2048  # of a sample
_MAX_OWN = 100  # of a user's sections, and of counters
_MAX_NAME = 200  # characters
_MAX_VALUE = 1e30  # float32, as which they are kept, ends soon after


class Key(NamedTuple):
    """Of what a row or chunk is: rows of the system have all sources, "", in one."""

    owner: str
    kind: str
    run: int
    source: str


_AGENT = "agent:"


def owner_of_agent(agent_id: str) -> str:
    return _AGENT + agent_id


def agent_of(owner: str) -> str | None:
    """Return the agent that an owner is; None of a trial."""
    return owner.removeprefix(_AGENT) if owner.startswith(_AGENT) else None


def owner_of_trial(trial_id: int) -> str:
    return f"trial:{trial_id}"


class SeriesRows:
    """What has come in and is not packed, and what is known of sources and runs."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add_samples(
        self, now: float, agent_id: str, report: SystemSampled, trial_of: TrialOf
    ) -> None:
        """Store samples of an agent's machine and of the processes of its ranks.

        What an owner has of this moment or a later one is left out: it came twice, or the clock
        went back a little.
        """
        machine = Key(owner_of_agent(agent_id), "system", 0, "")
        rows: dict[Key, list[tuple[float, Values]]] = {}
        for sample in report.samples:
            for key, values in _by_key(machine, sample, trial_of).items():
                rows.setdefault(key, []).append((sample.at, values))
        for key, own in rows.items():
            last = self._last_of(key)
            for at, values in own:
                if last is None or at > last or at < last - _CLOCK_STEP_S:
                    self._add(now, key, at, to_json(values).decode())
                    last = at
            self._note_present(key.owner, own[-1][1])
        self._note_missing(machine.owner, report.missing, trial_of)

    def _last_of(self, key: Key) -> float | None:
        which = "owner = ? AND kind = ? AND run = ?"
        row: tuple[float] | None = self._db.execute(
            f"SELECT at FROM series_rows WHERE {which} AND source = ? ORDER BY id DESC LIMIT 1",
            key,
        ).fetchone()
        if row is None:
            row = self._db.execute(
                f"SELECT ends FROM series_chunks WHERE {which} AND step_s = 0 "
                "ORDER BY id DESC LIMIT 1",
                key[:3],
            ).fetchone()
        return row[0] if row else None

    def _add(self, now: float, key: Key, at: float, text: str) -> None:
        self._db.execute(
            "INSERT INTO series_rows (owner, kind, run, source, at, stored_at, json) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key, at, now, text),
        )

    def _note_present(self, owner: str, values: Values) -> None:
        """Forget why something was missing that has values again."""
        query = "SELECT source, name FROM series_missing WHERE owner = ?"
        for source, name in self._db.execute(query, (owner,)).fetchall():
            if name in values.get(source, {}):
                self._db.execute(
                    "DELETE FROM series_missing WHERE owner = ? AND source = ? AND name = ?",
                    (owner, source, name),
                )

    def _note_missing(
        self, owner: str, missing: Mapping[str, Mapping[str, str]], trial_of: TrialOf
    ) -> None:
        for source, reasons in list(missing.items())[:_MAX_SOURCES]:
            key = _key_of(Key(owner, "system", 0, ""), source, trial_of)
            if key is None:
                continue
            self._db.executemany(
                "INSERT OR REPLACE INTO series_missing VALUES (?, ?, ?, ?)",
                [
                    (key[0].owner, key[1], name, why)
                    for name, why in reasons.items()
                    if name in SYSTEM
                ],
            )

    def add_times(self, now: float, trial_id: int, run: int, rank: int, record: StepTimes) -> None:
        """Store where the time of a rank went in an interval."""
        own = [name for name in record.parts if name not in PARTS and len(name) <= _MAX_NAME]
        kept = {*PARTS, *own[:_MAX_OWN]}
        counters = [c for c in record.counters.items() if len(c[0]) <= _MAX_NAME]
        row = {
            "at": record.at,
            "first": record.first,
            "batches": record.batches,
            "samples": record.samples,
            "seconds": record.seconds,
            "parts": {
                name: tuple(map(float, times))
                for name, times in record.parts.items()
                if name in kept and all(map(_is_kept, times))
            },
            "counters": {n: v for n, v in counters[:_MAX_OWN] if _is_kept(v)},
        }
        key = Key(owner_of_trial(trial_id), "timings", run, f"rank:{rank}")
        self._add(now, key, record.at, json.dumps(json_ready(row), separators=(",", ":")))

    # runs of trials

    def begin_run(
        self, trial_id: int, run: int, at: float, devices: Mapping[str, Sequence[str]]
    ) -> None:
        """Note where a run of a trial is: the UUIDs of its devices, by agent."""
        self._db.execute(
            "INSERT OR IGNORE INTO series_runs VALUES (?, ?, ?, NULL, ?)",
            (trial_id, run, at, json.dumps(devices)),
        )

    def end_run(self, trial_id: int, run: int, at: float) -> None:
        """Note when a run of a trial ended."""
        self._db.execute(
            "UPDATE series_runs SET ended_at = ? WHERE trial_id = ? AND run = ? "
            "AND ended_at IS NULL",
            (at, trial_id, run),
        )

    def cut(self, trial_id: int, steps_completed: int) -> None:
        """Note that a trial trains again after that step: its runs so far went on for nothing."""
        self._db.execute(
            "INSERT INTO series_cuts (trial_id, run, steps_completed) "
            "SELECT ?, max(run), ? FROM series_runs WHERE trial_id = ? HAVING max(run) NOTNULL",
            (trial_id, steps_completed, trial_id),
        )

    def delete(self, trial_ids: Sequence[int]) -> Iterator[None]:
        """Delete what belongs to trials: a part of it at each step, a transaction each."""
        owners = [owner_of_trial(trial_id) for trial_id in trial_ids]
        marks = ", ".join("?" * len(owners))
        for table in ("series_rows", "series_chunks"):
            yield from delete_in_parts(self._db, table, "id", f"owner IN ({marks})", owners)
        with transaction(self._db):
            self._db.execute(f"DELETE FROM series_missing WHERE owner IN ({marks})", owners)
            for table in ("series_runs", "series_cuts"):
                self._db.execute(f"DELETE FROM {table} WHERE trial_id IN ({marks})", trial_ids)
        yield


def _is_kept(value: float) -> bool:
    return isfinite(value) and abs(value) <= _MAX_VALUE


def _by_key(machine: Key, sample: SystemSample, trial_of: TrialOf) -> dict[Key, Values]:
    """Return the sample's values by whose they are; names that we do not know are left out."""
    found: dict[Key, Values] = {}
    for source, values in list(sample.values.items())[:_MAX_SOURCES]:
        known = {n: v for n, v in values.items() if n in SYSTEM and _is_kept(v)}
        place = _key_of(machine, source, trial_of)
        if known and place is not None:
            key, own_source = place
            found.setdefault(key, {})[own_source] = known
    return found


def _key_of(machine: Key, source: str, trial_of: TrialOf) -> tuple[Key, str] | None:
    """Return whose a source is, and its name there; None of a run that is unknown, or over."""
    kind, _, rest = source.partition(":")
    if kind not in ("rank", "workers"):
        return (machine, source) if len(source) <= _MAX_NAME else None
    allocation_id, _, rank = rest.rpartition(":")
    if not (rank.isascii() and rank.isdecimal() and len(rank) < 8):
        return None
    found = trial_of(allocation_id, int(rank))
    if found is None:
        return None
    trial_id, run = found
    return Key(owner_of_trial(trial_id), "system", run, ""), f"{kind}:{int(rank)}"
