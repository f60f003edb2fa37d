"""Parses rows of the store. Rows that cannot be parsed are skipped.

The file may be damaged, or written by another version; see also quarantine.py.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic_core import from_json

from det_jupyter.contract.messages import FeedItem, SeriesQuery, TemplateView, TimingsView

logger = logging.getLogger(__name__)

_KEYS = {  # required keys of metrics records, by kind
    "batch_metrics": {"first", "values"},
    "metrics": {"group", "metrics", "steps_completed"},
}
# A damaged file may contain text that is not UTF-8; then only its row cannot be parsed.
as_text = partial(str, encoding="utf-8", errors="surrogateescape")
Row = TypeVar("Row")
Read = TypeVar("Read")


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for another thread, within one read transaction."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        db.text_factory = as_text
        db.execute("BEGIN")
        yield db


def readable(rows: Iterable[Row], read: Callable[[Row], Read]) -> Iterator[Read]:
    """Yield `read(row)` for each row; rows for which it raises are logged and skipped."""
    for row in rows:
        try:
            yield read(row)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            logger.exception("a stored row cannot be read, and is passed over: %.200r", row)


def as_item(row: tuple[int, float, str, int, int | None, str]) -> FeedItem:
    *values, text = row
    names = ("seq", "at", "kind", "experiment_id", "trial_id")
    fields = dict(zip(names, values, strict=True))
    return FeedItem.model_validate({**fields, "data": json.loads(text)})


def as_template(row: tuple[str, float, float, str]) -> TemplateView:
    name, created_at, updated_at, text = row
    return TemplateView(
        name=name, created_at=created_at, updated_at=updated_at, config=json.loads(text)
    )


def as_timings(row: tuple[int, str]) -> TimingsView:
    record = {**json.loads(row[1]), "id": row[0]}
    return TimingsView(**{name: record[name] for name in TimingsView.model_fields})


def read_metrics(path: Path, experiment_id: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield trial and record of an experiment's metrics, oldest first. Usable in any thread."""
    return _read_metrics(path, "experiment_id = ?", [experiment_id])


def read_metrics_of(
    path: Path, trial_id: int, query: SeriesQuery
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield trial and record of a trial's metrics in the query's part of the axis."""
    which, values = "trial_id = ? AND kind = 'metrics'", [float(trial_id)]
    first, last = ("at", "at") if query.axis == "time" else ("first_step", "last_step")
    if query.since is not None:
        which, values = f"{which} AND {last} >= ?", [*values, query.since]
    if query.until is not None:
        which, values = f"{which} AND {first} <= ?", [*values, query.until]
    # The query sorts the numbers, not the rows: that would copy all rows.
    return _read_metrics(path, f"seq IN (SELECT seq FROM feed WHERE {which})", values)


def _read_metrics(
    path: Path, which: str, values: Sequence[float]
) -> Iterator[tuple[int, dict[str, Any]]]:
    with read_only(path) as db:
        rows = db.execute(
            f"SELECT trial_id, json FROM feed WHERE {which} AND kind = 'metrics' ORDER BY seq",
            values,
        )
        yield from readable(rows, _metrics_record)


def _metrics_record(row: tuple[int, str]) -> tuple[int, dict[str, Any]]:
    trial_id, text = row
    return trial_id, _checked(from_json(text))


def as_change_of_curves(row: tuple[int, int, str, str]) -> tuple[int, int, dict[str, Any]]:
    """Return number, trial and record of a row of the feed that changes the trial's curves.

    The record of a truncation has the kind `truncated`, and the step after which metrics were
    deleted.
    """
    number, trial_id, kind, text = row
    record = from_json(text)
    if kind == "metrics":
        return number, trial_id, _checked(record)
    return number, trial_id, {"kind": kind, "steps_completed": int(record["steps_completed"])}


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    if missing := _KEYS[record["kind"]] - record.keys():
        raise ValueError(f"got a record without {', '.join(sorted(missing))}")
    return record


def truncate_rows(
    db: sqlite3.Connection, table: str, key: str, *, which: str, trial_id: int, after_step: int
) -> None:
    """Delete a trial's rows after this step, and the later batches of a row that contains it."""
    of_trial = f"{which} AND trial_id = ?"
    where = (trial_id, after_step)
    db.execute(f"DELETE FROM {table} WHERE {of_trial} AND first_step > ?", where)
    straddling = f"SELECT {key}, json FROM {table} WHERE {of_trial} AND last_step > ?"
    for number, text in db.execute(straddling, where).fetchall():
        kept = next(readable([text], partial(trimmed, after_step)), None)
        if kept is None:
            db.execute(f"DELETE FROM {table} WHERE {key} = ?", (number,))
            continue
        db.execute(
            f"UPDATE {table} SET last_step = ?, json = ? WHERE {key} = ?",
            (after_step, kept, number),
        )


def trimmed(steps_completed: int, text: str) -> str:
    """Return a record (JSON) of metrics or timings without the batches after this step."""
    record = json.loads(text)
    num_kept = steps_completed - record["first"] + 1
    for name, value in record.items():
        if isinstance(value, list):
            record[name] = value[:num_kept]
        elif isinstance(value, dict):
            record[name] = {column: values[:num_kept] for column, values in value.items()}
    return json.dumps(record, separators=(",", ":"))
