"""Reads measured numbers for a picture, in the resolution of its columns.

Runs in another thread than the event loop, with connections of its own.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from det_jupyter.contract.messages import Series, SeriesPage, SeriesQuery
from det_jupyter.contract.values.measures import measure_of
from det_jupyter.master.service.storing.series_packing import tables_of
from det_jupyter.master.service.storing.stored_rows import read_metrics_of, read_only, readable
from det_jupyter.master.service.storing.stored_series import (
    Key,
    agent_of,
    owner_of_agent,
    owner_of_trial,
)
from det_jupyter.master.views.metric_curves import to_tables
from det_jupyter.master.views.series_pages import fitting, superseded, to_series
from det_jupyter.master.views.series_tables import Table, from_bytes, joined

Times = tuple[float, float]
EVER = (0.0, float("inf"))


@dataclass(frozen=True, slots=True)
class Found:
    """Tables of an owner by run and source, and the longest step of the chunks they are from."""

    tables: dict[tuple[int, str], Table]
    step_s: float

    def by_source(self) -> list[tuple[str, Table]]:
        """Return each source with a table of the rows of all runs."""
        parts: dict[str, list[Table]] = {}
        for (_, source), table in self.tables.items():
            parts.setdefault(source, []).append(table)
        return [(source, joined(tables)) for source, tables in parts.items()]

    @property
    def interval_s(self) -> float:
        """The usual time between two rows."""
        longest = max(self.tables.values(), key=lambda table: len(table.at), default=None)
        if longest is None or len(longest.at) < 2:
            return max(self.step_s, 1.0)
        return max(self.step_s, round(float(np.median(np.diff(np.sort(longest.at)))), 3))


@dataclass(frozen=True, slots=True)
class RunSpan:
    """Begin and end of a run of a trial, and its devices by agent."""

    began_at: float
    ended_at: float
    devices: Mapping[str, Sequence[str]]


def read_agent(path: Path, agent_id: str, query: SeriesQuery) -> SeriesPage:
    """Return the series of an agent's computer."""
    with read_only(path) as db:
        owner = owner_of_agent(agent_id)
        found = read_tables(db, owner, query, _times_of(query))
        began: float | None = db.execute(
            "SELECT min(begins) FROM (SELECT min(begins) AS begins FROM series_chunks "
            "WHERE owner = ? UNION ALL SELECT min(at) FROM series_rows WHERE owner = ?)",
            (owner, owner),
        ).fetchone()[0]
        page = partial(_page, db, query, began_at=began, interval_s=found.interval_s)
        return page(found.by_source(), {owner: None})


def read_trial(
    path: Path, trial_id: int, query: SeriesQuery, *, ended_at: float | None
) -> SeriesPage:
    """Return a trial's series: its metrics, the timings of its ranks, or samples of the system.

    Samples of the system are those of its ranks' processes, and those of the computers and GPUs of
    its runs while they ran.
    """
    with read_only(path) as db:
        first = "SELECT min(began_at) FROM series_runs WHERE trial_id = ?"
        began: float | None = db.execute(first, (trial_id,)).fetchone()[0]
        page = partial(_page, db, query, began_at=began, ended_at=ended_at)
        if query.of == "metrics":
            return page(to_tables(read_metrics_of(path, trial_id, query), query), {})
        own = owner_of_trial(trial_id)
        if query.of == "system":
            found, owners = _read_system(db, own, _runs(db, trial_id, ended_at), query)
        else:
            found, owners = _read_timings(db, own, trial_id, query), {}
        return page(found.by_source(), owners, interval_s=found.interval_s)


def _page(
    db: sqlite3.Connection,
    query: SeriesQuery,
    tables: Iterable[tuple[str, Table]],
    owners: Mapping[str, set[str] | None],
    *,
    began_at: float | None,
    ended_at: float | None = None,
    interval_s: float = 1.0,
) -> SeriesPage:
    """Return the page of series from `tables`, with the reasons why series have no values."""
    series = to_series(tables, query)
    series += _missing(db, owners, series, query)
    return SeriesPage(
        series=fitting(series, query),
        began_at=began_at,
        ended_at=ended_at,
        interval_s=interval_s,
    )


def _runs(db: sqlite3.Connection, trial_id: int, ended_at: float | None) -> list[RunSpan]:
    """Return a trial's runs; a run without a stored end lasts until the next run begins."""
    rows = db.execute(
        "SELECT began_at, ended_at, json FROM series_runs WHERE trial_id = ? ORDER BY run",
        (trial_id,),
    ).fetchall()
    next_began = [*(row[0] for row in rows[1:]), ended_at or EVER[1]]
    return [
        RunSpan(began, following if ended is None else ended, json.loads(text))
        for (began, ended, text), following in zip(rows, next_began, strict=False)
    ]


def _read_timings(db: sqlite3.Connection, owner: str, trial_id: int, query: SeriesQuery) -> Found:
    if query.axis == "time":
        return read_tables(db, owner, query, _times_of(query))
    found = read_tables(db, owner, query, EVER)
    cuts = db.execute(
        "SELECT run, steps_completed FROM series_cuts WHERE trial_id = ?", (trial_id,)
    ).fetchall()
    tables = {
        (run, source): superseded(table, [steps for last, steps in cuts if run <= last])
        for (run, source), table in found.tables.items()
    }
    return Found(tables, found.step_s)


def _read_system(
    db: sqlite3.Connection, owner: str, runs: Sequence[RunSpan], query: SeriesQuery
) -> tuple[Found, dict[str, set[str] | None]]:
    """Return the tables of a trial's processes and computers, and the sources of each owner.

    With several agents, the source `host` of each is named `host:AGENT`. None instead of sources
    means all sources of an owner.
    """
    found = read_tables(db, owner, query, _times_of(query))
    tables, step_s = dict(found.tables), found.step_s
    owners: dict[str, set[str] | None] = {owner: None}
    agents = {agent_id for run in runs for agent_id in run.devices}
    for run in runs:
        for agent_id, uuids in run.devices.items():
            computer = owner_of_agent(agent_id)
            times = _overlap(_times_of(query), (run.began_at, run.ended_at))
            sources = {"host", *(f"{kind}:{uuid}" for kind in ("gpu", "mig") for uuid in uuids)}
            owners[computer] = sources | (owners.get(computer) or set())
            of_computer = read_tables(db, computer, query, times, sources)
            step_s = max(step_s, of_computer.step_s)
            for (_, source), table in of_computer.tables.items():
                name = _display_name(source, computer, len(agents))
                inside = table.where((table.at >= times[0]) & (table.at <= times[1]))
                key = (0, name)
                tables[key] = joined([tables[key], inside]) if key in tables else inside
    return Found(tables, step_s), owners


def _times_of(query: SeriesQuery) -> Times:
    if query.axis != "time":
        return EVER
    return (query.since or 0.0, EVER[1] if query.until is None else query.until)


def _overlap(one: Times, other: Times) -> Times:
    return max(one[0], other[0]), min(one[1], other[1])


def read_tables(
    db: sqlite3.Connection,
    owner: str,
    query: SeriesQuery,
    times: Times,
    sources: set[str] | None = None,
) -> Found:
    """Return the tables by run and source, and the longest step of their rows in seconds.

    The tables may include rows outside `times`.

    Args:
        owner: The trial, or the computer of an agent, whose samples these are.
        sources: Sources to read; None: all.
    """
    parts: dict[tuple[int, str], list[Table]] = {}
    width_s = _column_width(db, owner, query, times)
    step_s = 0.0
    for number, run, source, step in _chosen(db, owner, query.of, times, width_s):
        if sources is None or source in sources:
            blob = db.execute("SELECT blob FROM series_chunks WHERE id = ?", (number,)).fetchone()
            parts.setdefault((run, source), []).extend(readable(blob, from_bytes))
            step_s = max(step_s, step)
    rows: dict[Key, list[tuple[float, str]]] = {}
    for run, source, at, text in db.execute(
        "SELECT run, source, at, json FROM series_rows WHERE owner = ? AND kind = ? "
        "AND at >= ? ORDER BY id",
        (owner, query.of, times[0]),
    ):
        rows.setdefault(Key(owner, query.of, run, source), []).append((at, text))
    for key, own in rows.items():
        for source, table in tables_of(key, own).items():
            if sources is None or source in sources:
                parts.setdefault((key.run, source), []).append(table)
    only = partial(_with_names, query.names)
    return Found({place: joined(map(only, tables)) for place, tables in parts.items()}, step_s)


def _with_names(names: Sequence[str] | None, table: Table) -> Table:
    """Return the table with only the columns that these series need; None: all columns."""
    if names is None:
        return table
    kept = {"", *names, *(name.rpartition(".")[0] for name in names)}  # "forward.p95" too
    return Table(table.at, {c: values for c, values in table.columns.items() if c[0] in kept})


def _column_width(db: sqlite3.Connection, owner: str, query: SeriesQuery, times: Times) -> float:
    """Return the seconds per column of a picture of all chunks within `times`; 0.0 if none are."""
    low, high = db.execute(
        "SELECT min(begins), max(ends) FROM series_chunks WHERE owner = ? AND kind = ? "
        "AND begins <= ? AND ends >= ?",
        (owner, query.of, times[1], times[0]),
    ).fetchone()
    if low is None:
        return 0.0
    begin, end = _overlap(times, (low, high))
    return max(0.0, end - begin) / query.columns


def _chosen(
    db: sqlite3.Connection, owner: str, kind: str, times: Times, width_s: float
) -> list[tuple[int, int, str, float]]:
    """Return id, run, source and step of the chunks to read; together they have each number once.

    A chunk whose step is longer than a column is replaced by those that were rolled up into it, if
    they are kept.
    """
    rows = db.execute(
        "SELECT id, run, source, step_s, begins, ends, rolled_into FROM series_chunks "
        "WHERE owner = ? AND kind = ?",
        (owner, kind),
    ).fetchall()
    children: dict[int | None, list[tuple[int, int, str, float, float, float, int | None]]] = {}
    for row in rows:
        children.setdefault(row[6], []).append(row)
    chosen = []
    todo = children.get(None, [])
    while todo:
        number, run, source, step, begins, ends, _ = todo.pop()
        if begins > times[1] or ends + step < times[0]:
            continue
        if step > width_s and number in children:
            todo += children[number]
        else:
            chosen.append((number, run, source, step))
    return sorted(chosen)


def _missing(
    db: sqlite3.Connection,
    owners: Mapping[str, set[str] | None],
    series: Sequence[Series],
    query: SeriesQuery,
) -> list[Series]:
    """Return series without points, each with the reason.

    Args:
        owners: The sources of each owner; None: all sources.
        series: The series that have points.
    """
    num_agents = sum(agent_of(owner) is not None for owner in owners)
    unknown = {}
    for owner, sources in owners.items():
        for source, name, why in db.execute(
            "SELECT source, name, why FROM series_missing WHERE owner = ?", (owner,)
        ):
            shown = _display_name(source, owner, num_agents)
            is_own = sources is None or source in sources or ":" not in source
            is_requested = query.sources is None or shown in query.sources
            if is_own and is_requested and (query.names is None or name in query.names):
                unknown[shown, name] = why
    for one in series:
        unknown.pop((one.source, one.name), None)
    return [
        Series(source=source, name=name, title=of.title, unit=of.unit, missing=why)
        for (source, name), why in unknown.items()
        for of in [measure_of(name)]
    ]


def _display_name(source: str, owner: str, num_agents: int) -> str:
    """Return a source's name in a page; it contains the agent if there are several."""
    return f"host:{agent_of(owner)}" if source == "host" and num_agents > 1 else source
