"""The history of events and snapshots, and what is kept apart: two tables, in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.errors import NotFound
from det_jupyter.master.service.storing import quarantine as module
from det_jupyter.master.service.storing.quarantine import Quarantine, is_system_error
from det_jupyter.master.service.storing.store import History, Store


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(":memory:")
    db.executescript(
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL NOT NULL, json TEXT NOT NULL);"
        "CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, json TEXT NOT NULL);"
        "CREATE TABLE numbers (seq INTEGER PRIMARY KEY, last_experiment_id INTEGER NOT NULL, "
        "last_trial_id INTEGER NOT NULL);"
        "CREATE TABLE quarantine (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, "
        "experiment_id INTEGER, source TEXT NOT NULL, content TEXT NOT NULL, "
        "error TEXT NOT NULL);"
    )
    yield db
    db.close()


def test_two_snapshots_are_kept_the_newest_first(db: sqlite3.Connection) -> None:
    history = History(db)
    assert (history.snapshot_seq, history.snapshots()) == (0, [])
    for seq in (3, 9, 6):
        history.add_snapshot(seq, f"state {seq}")
    assert history.snapshots() == [(9, "state 9"), (6, "state 6")]
    assert history.snapshot_seq == 9
    history.add_snapshot(9, "again")
    assert history.snapshots()[0] == (9, "again")
    history.drop_snapshot(9)
    assert (history.snapshot_seq, history.snapshots()) == (6, [(6, "state 6")])


def test_the_events_after_a_snapshot_come_in_order_and_one_may_be_replaced(
    db: sqlite3.Connection,
) -> None:
    history = History(db)
    for seq in (2, 1, 3):
        history.add_event(seq, seq / 2, f"event {seq}")
    history.replace_event(3, "nothing")
    assert history.events_after(1) == [(2, 1.0, "event 2"), (3, 1.5, "nothing")]
    assert history.events_after(3) == []
    with pytest.raises(sqlite3.IntegrityError):
        history.add_event(3, 9.0, "another event 3")


def test_numbers_are_those_of_the_last_event_that_had_any(db: sqlite3.Connection) -> None:
    history = History(db)
    assert (history.numbers_after(9), history.last_numbers()) == ((0, 0), (0, 0))
    history.add_numbers(4, 2, 7)
    history.add_numbers(8, 3, 9)
    found = [history.numbers_after(seq) for seq in (3, 4, 7, 8, 99)]
    assert found == [(0, 0), (2, 7), (2, 7), (3, 9), (3, 9)]
    history.add_numbers(9, 1, 12)  # a damaged row
    assert history.last_numbers() == (3, 12)


def test_numbers_that_are_damaged_are_read_as_numbers(db: sqlite3.Connection) -> None:
    History(db).add_numbers(1, "5 and more", b"\xff")  # type: ignore[arg-type]
    assert History(db).last_numbers() == (5, 0)


def kept(db: sqlite3.Connection, content: object, experiment_id: int | None = 1) -> str:
    """Set content aside and return it as it was stored."""
    quarantine = Quarantine(db)
    quarantine.add(
        1.0, source="event", content=content, error=ValueError("no"), experiment_id=experiment_id
    )
    return quarantine.rows()[-1][2]


@pytest.mark.parametrize(
    ("content", "text"),
    [("plain", "plain"), (b"\xff", "b'\\xff'"), (3, "3"), ("\ud800", "?")],
)
def test_whatever_a_row_held_is_kept_as_text(
    db: sqlite3.Connection, content: object, text: str
) -> None:
    assert kept(db, content) == text


def test_what_is_kept_is_bounded_in_length_and_number(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT", 3)
    assert len(kept(db, "x" * 70_000)) == 65536
    for number in range(5):
        kept(db, number, experiment_id=None if number % 2 else number)
    rows = Quarantine(db).rows()
    assert [row[:3] for row in rows] == [
        (2, "event", "2"),
        (None, "event", "3"),
        (4, "event", "4"),
    ]
    assert "ValueError: no" in rows[0][3]


def chained(cause: BaseException | None) -> Exception:
    error = ValueError("about it")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_so"),
    [
        (OSError(28, "No space left"), True),
        (MemoryError(), True),
        (KeyboardInterrupt(), True),
        (ValueError(), False),
        (chained(OSError()), True),
        (chained(chained(MemoryError())), True),
        (chained(KeyError()), False),
        (sqlite3.OperationalError("made by hand"), False),
    ],
)
def test_the_computer_s_failures_are_told_from_those_of_what_was_said(
    error: BaseException, is_so: bool
) -> None:
    assert is_system_error(error) is is_so


@pytest.mark.parametrize(
    ("code", "is_so"),
    [
        (sqlite3.SQLITE_FULL, True),
        (sqlite3.SQLITE_BUSY, True),
        (sqlite3.SQLITE_IOERR_FSYNC, True),  # an extended code of SQLITE_IOERR
        (sqlite3.SQLITE_CONSTRAINT, False),
        (sqlite3.SQLITE_CONSTRAINT_NOTNULL, False),
        (sqlite3.SQLITE_TOOBIG, False),
    ],
)
def test_errors_of_the_database_are_told_apart_by_their_code(code: int, is_so: bool) -> None:
    error = sqlite3.OperationalError("made by hand")
    error.sqlite_errorcode = code
    assert is_system_error(error) is is_so


@pytest.mark.parametrize(("num", "end"), [(11, "t09 and t10"), (12, "t09 and 2 more")])
def test_a_template_that_does_not_exist_is_refused_with_the_names_of_ten(
    tmp_path: Path, num: int, end: str
) -> None:
    store = Store(tmp_path / "det.sqlite3")
    with store.transaction():
        for number in reversed(range(num)):
            store.set_template(1.0, f"t{number:02}", "{}")
    assert store.template("t07").config == {}
    with pytest.raises(NotFound) as refused:
        store.template("zebra")
    assert str(refused.value) == (
        "there is no template 'zebra'; there are "
        f"t00, t01, t02, t03, t04, t05, t06, t07, t08, {end}"
    )
    store.close()
