"""What ranks print, as a terminal would leave it, and the levels of its lines."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from tqdm import tqdm

from det_jupyter.contract.run.output_lines import MAX_LINE, levels_of, parse_printed


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\n", ["a", "b"]),
        ("\n", [""]),
        ("a\n\n", ["a", ""]),
        ("a\r\nb\r\n", ["a", "b"]),
        (" 1%\r 50%\r100%\n", ["100%"]),
        ("100%\r\r\nb\n", ["100%", "b"]),
        ("a\u2028b\tc\n", ["a\u2028b\tc"]),
        ("x" * (MAX_LINE + 1) + "\n", ["x" * MAX_LINE + "…"]),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07\n", ["red "]),
        ("a\x07\x1b\n", ["a\ufffd\ufffd"]),
    ],
)
def test_printed_lines_are_as_a_terminal_leaves_them(text: str, lines: list[str]) -> None:
    assert parse_printed(text) == (lines, None)


def test_a_progress_bar_is_one_line_however_it_is_cut() -> None:
    lines, bar = parse_printed("begin\n\r 10%\r 20%\r")
    assert (lines, bar) == (["begin"], " 20%")
    assert parse_printed(" 30%\r", bar) == ([], " 30%")
    assert parse_printed(" 99%\r100%\nend\n", bar) == (["100%", "end"], None)
    assert parse_printed("\n", bar) == ([" 20%"], None)  # a line end that was "\r\n"


def test_a_bar_that_is_cleared_at_its_end_leaves_no_line() -> None:
    lines, bar = parse_printed("\r100%\r    \r")
    assert lines == []
    assert parse_printed("done\n", bar) == (["done"], None)


def test_bars_below_one_another_are_a_line_each_however_often_they_are_sent() -> None:
    out = StringIO()
    parts = []

    def part() -> None:
        parts.append(out.getvalue())
        out.seek(0)
        out.truncate()

    bars: dict[str, Any] = {
        "file": out,
        "mininterval": 0,
        "ascii": True,
        "bar_format": "{desc} {n}",
    }
    for epoch in tqdm(range(3), desc="epochs", **bars):
        for _ in tqdm(range(4), desc="batches", leave=False, **bars):
            part()  # the cursor is at the first bar
        if epoch == 1:
            tqdm.write("half", file=out)
    part()
    lines: list[str] = []
    bar = None
    for text in parts:
        printed = parse_printed(text, bar)
        lines, bar = [*lines, *printed.lines], printed.open
        assert bar is None or bar.split(" ")[0] in ("", "epochs")
    assert (lines, bar) == (["half", "epochs 3"], None)


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("ERROR:root:no more memory", 40),
        ("2026-11-22 13:25:01,123 - train - WARNING - slow", 30),
        ("[2026-11-22 13:25:01] [INFO] epoch 1", 20),
        ("2026-11-22 13:25:01.123 | DEBUG    | __main__:f:3 - x", 10),
        ("host:12:34 [0] NCCL INFO Bootstrap", 20),
        ("[rank1]:[W1122 13:25:01.123456 ProcessGroup.cpp:1] late", 30),
        ("E1122 13:25:01.123456  123 file.cc:3] wrong", 40),
        ("/a/b.py:12: UserWarning: take care", 30),
        ("torch.OutOfMemoryError: CUDA out of memory", 40),
        ("KeyboardInterrupt", 40),
        ("CRITICAL: over", 50),
        ("error: no such file", 40),
        ("loss 0.5, error 0.1", 0),
        ("ERRORS were found", 0),
        ("information", 0),
        ("", 0),
        ("x" * 150 + " ERROR", 0),
    ],
)
def test_levels_are_recognised_as_loggers_write_them(line: str, level: int) -> None:
    assert list(levels_of([line])) == [level]


def test_all_lines_of_a_traceback_are_errors() -> None:
    lines = [
        "fine",
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "    g()",
        "ValueError: INFO is no number",
        "  indented, and fine",
    ]
    assert list(levels_of(lines)) == [0, 40, 40, 40, 40, 0]
