"""Printed lines: fetched, followed, and as text."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.following.log_lines import LogLines, query_of
from det_jupyter.client.requests import to_moment
from det_jupyter.contract.messages import LogLine, LogPage, LogQuery
from det_jupyter.errors import ConfigError, MasterUnreachable, UsageError
from det_jupyter.front.notebook.complete.magic_parsers import line_parser
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.magics import run_line

NOON = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))


def line(number: int, text: str, *, rank: int = 0, is_open: bool = False) -> LogLine:
    return LogLine(
        id=number, at=NOON + number, trial_id=3, run=1, rank=rank, text=text, is_open=is_open
    )


class Master:
    """Answers with pages one after the other, and remembers what it was asked for."""

    def __init__(self, *pages: LogPage | BaseException) -> None:
        self.watching = self
        self.pages = list(pages)
        self.asked: list[tuple[LogQuery, int | None]] = []

    def experiment_logs(
        self, experiment_id: int, query: LogQuery, *, trial_id: int | None = None
    ) -> LogPage:
        self.asked.append((query, trial_id))
        page = self.pages.pop(0)
        if isinstance(page, BaseException):
            raise page
        return page

    def as_client(self) -> Client:
        return cast("Client", self)


def page(*lines: LogLine, total: int | None = None, is_over: bool = False) -> LogPage:
    last = lines[-1].id if lines else 0
    total = len(lines) if total is None else total
    return LogPage(lines=list(lines), total=total, last_id=last, is_over=is_over)


Run = Callable[..., tuple[str, Master]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Carry out a line against these pages; return what it printed, and the master."""

    def run(words: str, *pages: LogPage | BaseException) -> tuple[str, Master]:
        master = Master(*pages)
        monkeypatch.setattr(connection, "client", master.as_client)
        run_line(line_parser(), words)
        return capsys.readouterr().out, master

    return run


def test_each_line_says_time_trial_and_rank_and_the_first_how_many_there_are(run: Run) -> None:
    answer = page(line(1, "one"), line(2, "two", rank=1), total=4312)
    printed, master = run(
        "logs 40 --trial 3 --rank 1 --tail 2 --level error --search '/a b/'", answer
    )
    assert printed == (
        "2 of 4,312 lines (--tail N prints more)\n"
        "11-22 12:00:01 trial=3 rank=0 | one\n"
        "11-22 12:00:02 trial=3 rank=1 | two\n"
    )
    assert master.asked == [(LogQuery(tail=2, rank=1, level="error", search="/a b/"), 3)]


def test_silence_is_told(run: Run) -> None:
    assert run("logs 7", page())[0] == "Experiment 7: its ranks have printed nothing yet.\n"
    assert run("logs 7 --rank 3", page())[0] == (
        "Experiment 7: no printed line matches these options.\n"
    )


def test_following_prints_new_lines_and_survives_a_restart_of_the_master(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_jupyter.client.following.log_lines._AGAIN_S", 0.0)
    printed, master = run(
        "logs 7 --follow --tail 1",
        page(line(1, "one"), total=9),
        MasterUnreachable("gone"),
        page(line(2, " 10%", is_open=True)),
        page(line(3, "100%"), line(4, "two")),
        page(is_over=True),
    )
    bar = "11-22 12:00:02 trial=3 rank=0 |  10%"
    assert printed == (
        "1 of 9 lines\n"
        "11-22 12:00:01 trial=3 rank=0 | one\n"
        f"{bar}\r{' ' * len(bar)}\r"
        "11-22 12:00:03 trial=3 rank=0 | 100%\n"
        "11-22 12:00:04 trial=3 rank=0 | two\n"
        "It has ended: no more lines will come.\n"
    )
    assert [(query.tail, query.after) for query, _ in master.asked] == [
        (1, 0), (None, 1), (None, 1), (None, 2), (None, 4)
    ]  # fmt: skip


def test_an_interrupt_ends_the_following_and_nothing_else(run: Run) -> None:
    printed, _ = run("logs 7 -f", page(line(1, "one")), KeyboardInterrupt())
    assert printed.endswith("| one\nStopped following. Experiment 7 goes on.\n")


def test_lines_that_are_followed_in_python_come_once_and_whole() -> None:
    master = Master(
        page(line(1, " 10%", is_open=True), line(2, "other", rank=1)),
        page(line(3, "100%"), line(4, " 5%", rank=1, is_open=True)),
        page(is_over=True),
    )
    lines = Experiment(master.as_client(), 7).logs(follow=True, trial=3)
    assert [one.text for one in lines] == ["other", "100%", " 5%"]
    assert master.asked[0][1] == 3


def test_all_lines_end_though_other_trials_go_on_printing() -> None:
    others = [LogPage(lines=[], total=0, last_id=number, is_over=False) for number in (9, 12)]
    master = Master(page(line(1, "one"), line(2, "two")), *others)
    lines = Experiment(master.as_client(), 7).logs(trial=3, tail=None)
    assert [one.text for one in lines] == ["one", "two"]
    assert [query.after for query, _ in master.asked] == [0, 2]


def test_lines_show_themselves() -> None:
    shown = repr(LogLines([line(1, "outer\ninner")], 5))
    assert shown == (
        "1 of 5 lines\n"
        "11-22 12:00:01 trial=3 rank=0 | outer\n"
        "11-22 12:00:01 trial=3 rank=0 | inner"
    )


def test_levels_are_written_in_any_case_and_times_as_ages_too() -> None:
    assert query_of(since=12.5, level="ERROR") == LogQuery(since=12.5, level="error")
    assert to_moment("since", "90s", now=100.0) == 10.0
    assert to_moment("since", "2026-11-22T12:00", now=0.0) == NOON


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"since": "soon"}, "since: got 'soon', expected a date such as 2026-01-31 or"),
        ({"level": "loud"}, "level: got 'loud', expected one of debug, info, warning, error"),
        ({"rank": "x"}, "rank: got 'x', expected a whole number"),
        ({"search": "x" * 2000}, "search: got 'xxx"),
    ],
)
def test_what_is_no_filter_is_refused_in_a_sentence(given: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        query_of(**given)
    assert str(refused.value).startswith(problem)


def test_a_level_that_is_none_is_told_at_the_line(run: Run) -> None:
    with pytest.raises(UsageError, match="invalid choice: 'errr'; did you mean error"):
        run("logs 7 --level errr")
