"""Text from elsewhere, made fit to be shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import det_jupyter
from det_jupyter.words import count, error_line, error_text, lasting, moment, size

NOON = datetime(2024, 10, 4, 12, tzinfo=UTC).timestamp()
_BY_HAND = re.compile(r"type\((\w+)\)\.__name__\}: \{(\1|said_by\(\1\))\}")


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_the_text_of_an_error_is_its_type_and_its_message() -> None:
    assert error_text(OSError("gone\nfor good")) == "OSError: gone\nfor good"
    assert error_line(OSError("gone\nfor good")) == "OSError: gone"
    assert error_text(TimeoutError()) == error_line(TimeoutError()) == "TimeoutError"
    assert error_text(_Unspeakable()) == "_Unspeakable: <its __str__ raised ValueError>"


def test_no_other_module_puts_the_text_of_an_error_together() -> None:
    root = Path(det_jupyter.__file__).parent
    errors = root / "errors.py"  # says what our own errors say, which can always be said
    others = [
        f"{path.relative_to(root)}: {found[0]}"
        for path in sorted(root.rglob("*.py"))
        if path != errors
        for found in _BY_HAND.finditer(path.read_text(encoding="utf-8"))
    ]
    assert others == []


@pytest.mark.parametrize(
    ("amount", "words"), [(0, "0 slots"), (1, "1 slot"), (2, "2 slots"), (1000, "1,000 slots")]
)
def test_things_are_counted(amount: int, words: str) -> None:
    assert count(amount, "slot") == words


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (0.0, "12:00"),
        (0.4, "21:36"),
        (0.5, "Oct 5, 00:00"),
        (-1.0, "Oct 3, 12:00"),
        (-400.0, "Aug 31 2023, 12:00"),
    ],
)
def test_a_time_that_is_not_todays_has_a_date(days: float, words: str) -> None:
    assert moment(NOON + 86_400 * days, NOON, UTC) == words


def test_times_are_told_in_the_readers_zone() -> None:
    assert moment(NOON, NOON, timezone(timedelta(hours=5, minutes=30))) == "17:30"


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [(0, "0 B"), (300_000_000, "300 MB"), (1_500_000_000, "1.5 GB"), (80e9, "80 GB")],
)
def test_memory_has_a_unit(num_bytes: int, words: str) -> None:
    assert size(int(num_bytes)) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (40, "40 s"),
        (600, "10 min"),
        (7300, "2 h"),
        (9000, "2.5 h"),
        (100_000, "28 h"),
        (2e5, "2.3 days"),
    ],
)
def test_a_span_is_told_in_its_largest_unit(seconds: float, words: str) -> None:
    assert lasting(seconds) == words
