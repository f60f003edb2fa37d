"""Printed lines in the master: stored with their levels, and found by what is asked for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from det_jupyter.contract.messages import LogPage, LogQuery
from det_jupyter.contract.run.output_lines import OutputLines
from det_jupyter.errors import ConfigError
from det_jupyter.master.service.storing import stored_logs
from det_jupyter.master.service.storing.database import open_database
from det_jupyter.master.service.storing.stored_logs import read_page
from tests.integration.master_support import AGENT, Bench, bench_with_trial, make_text_chunk


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a master whose first trial has just been started."""
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        yield bench


def texts(page: LogPage) -> list[str]:
    return [line.text for line in page.lines]


def test_lines_are_found_by_rank_level_time_and_text(bench: Bench) -> None:
    bench.report(
        make_text_chunk("one\nERROR: 50% lost\n", stream="output-0"),
        make_text_chunk("One more\nWARNING: two\n", stream="output-1"),
    )
    at = bench.log_page().lines[0].at
    assert texts(bench.log_page()) == ["one", "ERROR: 50% lost", "One more", "WARNING: two"]
    assert texts(bench.log_page(rank=1)) == ["One more", "WARNING: two"]
    assert texts(bench.log_page(level="warning")) == ["ERROR: 50% lost", "WARNING: two"]
    assert texts(bench.log_page(level="error", rank=1)) == []
    assert {line.agent for line in bench.log_page().lines} == {AGENT}
    assert texts(bench.log_page(agent=AGENT, rank=1)) == ["One more", "WARNING: two"]
    assert texts(bench.log_page(agent="other")) == []
    assert texts(bench.log_page(since=at)) == texts(bench.log_page())
    assert texts(bench.log_page(since=at + 1)) == []
    assert texts(bench.log_page(search="one")) == ["one", "One more"]
    assert texts(bench.log_page(search="0% l")) == ["ERROR: 50% lost"]
    assert texts(bench.log_page(search="5_%")) == []
    assert texts(bench.log_page(search="/^[oO]ne$/")) == ["one"]
    assert [line.level for line in bench.log_page().lines] == [None, "error", None, "warning"]


def test_a_page_says_how_many_lines_fit_and_where_to_go_on(bench: Bench) -> None:
    text = "".join(f"step {i}\n" for i in range(500))
    bench.report(make_text_chunk(text, stream="output-0"))
    page = bench.log_page(tail=3, search="step")
    assert (texts(page), page.total) == (["step 497", "step 498", "step 499"], 500)
    assert bench.log_page(after=page.last_id).lines == []
    assert bench.log_page(tail=0).total == 500
    bench.report(make_text_chunk("other\nstep 500\n", stream="output-0", offset=len(text)))
    news = bench.log_page(after=page.last_id, search="step")
    assert (texts(news), news.total) == (["step 500"], 1)


def test_lines_of_many_trials_are_in_their_order(bench: Bench) -> None:
    bench.report(make_text_chunk("one\n", stream="output-0"))
    logs = bench.store.logs
    with bench.store.transaction():
        for trial_id, text in ((7, "two"), (1, "three"), (9, "of another experiment")):
            logs.add(1.0, trial_id=trial_id, run=1, rank=0, printed=OutputLines([text], None))
    page = read_page(bench.store.path, [1, 7], LogQuery(tail=2), is_over=False)
    assert (texts(page), page.total) == (["two", "three"], 3)


def test_a_progress_bar_stays_one_line_while_it_is_rewritten(bench: Bench) -> None:
    offset = 0
    for text in ("begin\n\r 10%\r", " 20%\r", " 30%\r"):
        chunk = make_text_chunk(text, stream="output-0", offset=offset)
        bench.report(chunk)
        offset += chunk.size_bytes
    assert bench.logs() == ["begin", " 30%"]
    seen = bench.log_page()
    assert [line.is_open for line in seen.lines] == [False, True]
    bench.report(make_text_chunk("100%\nend\n", stream="output-0", offset=offset))
    assert bench.logs() == ["begin", "100%", "end"]
    # A follower gets the line again, under a new number.
    news = bench.log_page(after=seen.last_id)
    assert texts(news) == ["100%", "end"]
    assert not any(line.is_open for line in news.lines)
    sizes = bench.store._db.execute("SELECT bytes FROM log_sizes").fetchall()
    assert sizes == [(len("begin100%end") + 3 * 40,)]


def test_a_search_that_takes_too_long_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.report(make_text_chunk("a" * 5000 + "!\n", stream="output-0"))
    monkeypatch.setattr(stored_logs, "SEARCH_S", 0.2)
    with pytest.raises(ConfigError, match=r"search: /\(a\+\)\+\$/ took more than 0.2 s; search"):
        bench.log_page(search="/(a+)+$/")
    with pytest.raises(ConfigError, match=r"got /\(/, expected a regular expression"):
        bench.log_page(search="/(/")


def test_a_database_from_before_there_were_levels_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite3"
    open_database(path).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(
            "DROP INDEX logs_found; DROP INDEX logs_open; ALTER TABLE logs DROP COLUMN level; "
            "ALTER TABLE logs DROP COLUMN is_open;"
            "CREATE INDEX logs_of_trial ON logs (trial_id, id);"
            "INSERT INTO logs (at, trial_id, run, rank, text) VALUES (1, 1, 1, 0, 'ERROR: x')"
        )
    db.close()
    open_database(path).close()
    page = read_page(path, [1], LogQuery(tail=1), is_over=True)
    assert [(line.text, line.level) for line in page.lines] == [("ERROR: x", None)]
