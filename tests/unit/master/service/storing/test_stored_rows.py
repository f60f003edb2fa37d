"""Rows of the store: damaged ones are skipped, and records are cut at a step."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from det_jupyter.master.service.storing.stored_rows import (
    as_text,
    as_timings,
    readable,
    trimmed,
    truncate_rows,
)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"first": 1}', "1" + "0" * 5000, "[" * 100_000, ""]
)
def test_a_row_that_cannot_be_read_is_skipped_alone(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = json.dumps({"first": 3, "records": [8], "durations_ns": {"forward": [5]}})
    rows = [(1, good), (2, text), (3, good)]
    assert [timings.id for timings in readable(rows, as_timings)] == [1, 3]
    assert "is passed over" in caplog.text


def test_text_that_is_no_utf_8_is_not_fatal() -> None:
    with closing(sqlite3.connect(":memory:")) as db, db:
        db.text_factory = as_text
        (text,) = db.execute("SELECT CAST(x'61ff62' AS TEXT)").fetchone()
    assert text == "a\udcffb"


METRICS = {"kind": "batch_metrics", "first": 11, "values": {"loss": [1.0, 2.0, 3.0], "b": [4.0]}}
TIMINGS = {"first": 11, "records": [8, 8, 4], "durations_ns": {"forward": [1, 2, 3]}}


def test_a_record_loses_the_batches_after_a_step() -> None:
    kept = json.loads(trimmed(12, json.dumps(METRICS)))
    assert kept == {**METRICS, "values": {"loss": [1.0, 2.0], "b": [4.0]}}
    kept = json.loads(trimmed(11, json.dumps(TIMINGS)))
    assert kept == {"first": 11, "records": [8], "durations_ns": {"forward": [1]}}


def test_rows_after_a_step_are_deleted_and_the_one_that_contains_it_is_cut() -> None:
    with closing(sqlite3.connect(":memory:")) as db, db:
        db.execute("CREATE TABLE timings (id, trial_id, first_step, last_step, json)")
        rows = [
            (1, 1, 8, 10, "kept as it is"),
            (2, 1, 11, 13, json.dumps(TIMINGS)),
            (3, 1, 14, 15, "deleted"),
            (4, 2, 14, 15, "of another trial"),
            (5, 1, 11, 13, "damaged"),
            (6, 1, 12, 14, json.dumps({**TIMINGS, "first": 12})),
        ]
        db.executemany("INSERT INTO timings VALUES (?, ?, ?, ?, ?)", rows)
        truncate_rows(db, "timings", "id", which="1", trial_id=1, after_step=12)
        left = db.execute("SELECT id, last_step, json FROM timings ORDER BY id").fetchall()
    assert [row[:2] for row in left] == [(1, 10), (2, 12), (4, 15), (6, 12)]
    assert json.loads(left[1][2])["records"] == [8, 8]
