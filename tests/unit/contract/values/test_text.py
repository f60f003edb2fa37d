"""Text from elsewhere, made fit to be shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import det_jupyter
from det_jupyter.contract.values.text import (
    clock,
    count,
    date,
    duration,
    error_line,
    error_text,
    experiment_title,
    hparam_text,
    length,
    listed,
    number,
    one_line,
    percent,
    printable,
    rough_duration,
    short_time,
    shortened,
    singular_unit,
    size,
)

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
        (-299.9, "Dec 9, 14:24"),
        (-300.0, "Dec 9 2023, 12:00"),
        (-300.002, "Dec 9 2023, 11:57"),
        (300.0, "Jul 31 2025, 12:00"),
        (-400.0, "Aug 31 2023, 12:00"),
    ],
)
def test_a_time_that_is_not_todays_has_a_date(days: float, words: str) -> None:
    assert short_time(NOON + 86_400 * days, NOON, UTC) == words


def test_times_are_told_in_the_readers_zone() -> None:
    assert short_time(NOON, NOON, timezone(timedelta(hours=5, minutes=30))) == "17:30"


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 B"), (1, "1 B"), (9, "9 B"), (999.4, "999 B"), (999.5, "1.0 kB"), (9949, "9.9 kB"),
        (9950, "10 kB"), (300_000_000, "300 MB"), (1_500_000_000, "1.5 GB"), (80e9, "80 GB"),
        (2e12, "2.0 TB"), (3e15, "3.0 PB"), (4e18, "4000 PB"),
    ],
)  # fmt: skip
def test_memory_has_a_unit(num_bytes: float, words: str) -> None:
    assert size(num_bytes) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (40, "40 s"),
        (89.4, "89 s"),
        (90, "1.5 min"),
        (596, "9.9 min"),
        (597, "10 min"),
        (600, "10 min"),
        (5399, "90 min"),
        (5400, "1.5 h"),
        (7300, "2 h"),
        (9000, "2.5 h"),
        (100_000, "28 h"),
        (35_820, "10 h"),
        (172_799, "48 h"),
        (172_800, "2 days"),
        (859_680, "10 days"),
        (2e5, "2.3 days"),
    ],
)
def test_a_span_is_told_in_its_largest_unit(seconds: float, words: str) -> None:
    assert rough_duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "NaN"), (float("nan"), "NaN"), (float("-inf"), "NaN"), (0.0, "0"), (-0.0, "0"),
        (9.99e-4, "9.99e-4"), (0.001, "0.001000"), (-0.5, "-0.5000"), (1.0, "1.000"),
        (9.5, "9.500"), (10.0, "10.00"), (1000.0, "1000"), (99999.5, "100000"),
        (999_999, "999999"), (1e6, "1.00e+6"), (-2e-10, "-2.00e-10"),
    ],
)  # fmt: skip
def test_a_metric_has_four_digits(value: float | None, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0:00"), (0.9, "0:00"), (59, "0:59"), (60, "1:00"), (3599, "59:59"),
        (3600, "1:00:00"), (86_399, "23:59:59"), (86_400, "1 d 0:00:00"),
    ],
)  # fmt: skip
def test_a_span_is_shown_as_by_a_clock(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("fraction", "words"),
    [
        (0.0, "0 %"),
        (0.01, "1 %"),
        (0.57, "57 %"),
        (0.5799, "57 %"),
        (0.9999, "99 %"),
        (1, "100 %"),
    ],
)
def test_percents_are_rounded_down(fraction: float, words: str) -> None:
    assert percent(fraction) == words


@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        ({}, ""), ({"records": 1}, "1 record"), ({"records": 0}, "0 records"),
        ({"batches": 1.0}, "1 batch"), ({"epochs": 1.5}, "1.5 epochs"),
        ({"records": 12345}, "12,345 records"), ({"seconds": 1}, "1 seconds"),
        ({"epochs": 2, "batches": 1}, "2 epochs 1 batch"),
    ],
)  # fmt: skip
def test_an_amount_of_training_has_its_unit(amounts: dict[str, float], words: str) -> None:
    assert length(amounts) == words


def test_one_of_a_unit() -> None:
    assert [singular_unit(unit) for unit in ("batches", "records", "epochs", "steps")] == [
        "batch", "record", "epoch", "steps",
    ]  # fmt: skip


def test_times_of_day_and_dates_are_the_readers() -> None:
    there = datetime(2024, 1, 5, 7, 8, 9).timestamp()
    assert clock(there) == "07:08:09"
    assert date(there) == "2024-01-05 07:08:09"


def test_floats_among_settings_have_four_digits() -> None:
    assert [hparam_text(value) for value in (0.123456, 3, "adam", True)] == [
        "0.1235", "3", "adam", "True",
    ]  # fmt: skip


def test_an_experiment_is_named_by_number_and_name() -> None:
    assert experiment_title(4, "") == "experiment 4"
    assert experiment_title(4, "n" * 40) == f"experiment 4 “{'n' * 40}”"
    assert experiment_title(4, "n" * 41) == f"experiment 4 “{'n' * 39}…”"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("abcd", "abcd"), ("abcde", "abc…"), ("ab cde", "ab…"), (" a\n\tb ", "a b"), ("", ""),
    ],
)  # fmt: skip
def test_a_long_text_is_cut(text: str, words: str) -> None:
    assert shortened(text, 4) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"), ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link", "link"), ("a\x08b", "a\ufffdb"), ("a\x1bb", "a\ufffdb"),
        ("a\r\nb", "a\nb"), ("a\rb", "a\ufffdb"), ("a\tb\nc", "a\tb\nc"), ("\u202e", "\ufffd"),
        ("\ud800", "\ufffd"), ("é 日本", "é 日本"),
    ],
)  # fmt: skip
def test_nothing_that_a_terminal_obeys_is_left(text: str, words: str) -> None:
    assert printable(text) == words


def test_lines_become_one() -> None:
    assert one_line(" two\n lines\x07 ") == "two lines\ufffd"


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and d"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
        (["a"] * 100, "a, a, a and 97 more"),
    ],
)
def test_a_long_list_says_how_many_more(items: list[str], words: str) -> None:
    assert listed(items, most=3) == words


def test_a_choice_is_listed_with_or() -> None:
    assert listed(["8", "16"], last="or") == "8 or 16"
    assert listed([*"abcdef"], most=2, last="or") == "a, b and 4 more"
