"""Reads what rows of the store say. A row that cannot be read is passed over, the others are not.

A file may be damaged, or written by a version that is no more; see also quarantine.py.
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

_KEYS = {  # of what is stored as metrics
    "batch_metrics": {"first", "values"},
    "metrics": {"group", "metrics", "steps_completed"},
}
# A damaged file has text that is no UTF-8. This way its row alone cannot be read, not all of them.
as_text = partial(str, encoding="utf-8", errors="surrogateescape")
Row = TypeVar("Row")
Read = TypeVar("Read")


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for another thread, with one state of it for all that is read."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        db.text_factory = as_text
        db.execute("BEGIN")
        yield db


def readable(rows: Iterable[Row], read: Callable[[Row], Read]) -> Iterator[Read]:
    """Yield what the rows say; one that cannot be read is logged and passed over."""
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
    row_id, text = row
    record = json.loads(text)
    return TimingsView(
        id=row_id, **{name: record[name] for name in ("first", "records", "durations_ns")}
    )


def read_metrics(path: Path, experiment_id: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield trial and record of each metrics row of an experiment, oldest first. In any thread."""
    return _read_metrics(path, "experiment_id = ?", [experiment_id])


def read_metrics_of(
    path: Path, trial_id: int, query: SeriesQuery
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what `read_metrics` does, of one trial and the part of the axis that is asked for."""
    which, values = "trial_id = ? AND kind = 'metrics'", [float(trial_id)]
    first, last = ("at", "at") if query.axis == "time" else ("first_step", "last_step")
    if query.since is not None:
        which, values = f"{which} AND {last} >= ?", [*values, query.since]
    if query.until is not None:
        which, values = f"{which} AND {first} <= ?", [*values, query.until]
    # Numbers are put in order, and not the rows: that would copy all of them.
    return _read_metrics(path, f"seq IN (SELECT seq FROM feed WHERE {which})", values)


def _read_metrics(
    path: Path, which: str, values: Sequence[float]
) -> Iterator[tuple[int, dict[str, Any]]]:
    with read_only(path) as db:
        rows = db.execute(
            f"SELECT trial_id, json FROM feed WHERE {which} AND kind = 'metrics' ORDER BY seq",
            values,
        )
        yield from readable(rows, _metrics)


def _metrics(row: tuple[int, str]) -> tuple[int, dict[str, Any]]:
    trial_id, text = row
    record: dict[str, Any] = from_json(text)
    if missing := _KEYS[record["kind"]] - record.keys():
        raise ValueError(f"got a record without {', '.join(sorted(missing))}")
    return trial_id, record


def truncate_rows(
    db: sqlite3.Connection, table: str, key: str, *, which: str, trial_id: int, after_step: int
) -> None:
    """Delete what a trial's rows say of later steps; a row that straddles the step is cut."""
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
    """Return a record of metrics or timings by batch without the batches after that step."""
    record = json.loads(text)
    num_kept = steps_completed - record["first"] + 1
    columns = "values" if "values" in record else "durations_ns"
    record[columns] = {name: values[:num_kept] for name, values in record[columns].items()}
    if "records" in record:
        record["records"] = record["records"][:num_kept]
    return json.dumps(record, separators=(",", ":"))
