"""Lists of experiments: queries, columns, and names in place of numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import date, datetime
from typing import Any, cast

import pytest

import det_jupyter
from det_jupyter.client import Client
from det_jupyter.client.handles.queries import find_by_name, make_query
from det_jupyter.client.requests import to_moment
from det_jupyter.contract.messages import ExperimentQuery, ExperimentRow, ExperimentRows
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.contract.values.sizes import Sizes
from det_jupyter.contract.values.text import date as date_text
from det_jupyter.errors import ConfigError, Conflict, NotFound, UsageError
from det_jupyter.front.notebook.complete.magic_parsers import line_parser
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.magics import run_line
from det_jupyter.front.verbs.grammar import parse
from tests.unit.front.verbs.finding_samples import CREATED_AT, row, rows_found

NOW = datetime(2026, 1, 31, 14, 0).timestamp()


class Master:
    """Answers each query with the same rows, and remembers it."""

    def __init__(self, found: ExperimentRows) -> None:
        self.found = found
        self.queries: list[ExperimentQuery] = []

    def find(self, query: ExperimentQuery) -> ExperimentRows:
        self.queries.append(query)
        return self.found


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    master = Master(rows_found(9, 7))
    monkeypatch.setattr(connection, "client", lambda: cast("Client", master))
    return master


def listed(capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    run_line(line_parser(), line)
    return capsys.readouterr().out.splitlines()


def test_a_list_is_a_table_with_the_best_value_and_what_it_is_found_by(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    master.found.rows[1].labels = ["good", "wide"]
    master.found.rows[1].slots_per_trial = Sizes(1, 4)
    lines = listed(capsys, "list")
    assert lines[0].split() == [
        "id", "name", "state", "progress", "best", "slots", "started", "labels", "notebook"
    ]  # fmt: skip
    started = date_text(CREATED_AT)
    assert lines[1:] == [
        f"9   digits  Queued  50%       error 0.25  2       {started}  -           train.ipynb",
        f"7   digits  Queued  50%       error 0.25  1 to 4  {started}  good, wide  train.ipynb",
    ]
    assert master.queries == [ExperimentQuery(limit=20)]


@pytest.mark.parametrize(
    ("line", "query"),
    [
        ("", {"limit": 20}),
        ("wide nets", {"text": "wide nets", "limit": 20}),
        ("-a", {"archived": True}),
        ("--limit 3 --sort metric", {"limit": 3, "sort": "metric"}),
        ("--name dig* --notebook train.ipynb", {"name": "dig*", "notebook": "train.ipynb",
                                                "limit": 20}),
        ("--label good --label wide", {"label": ["good", "wide"], "limit": 20}),
        ("--state running,queued --state paused", {"state": ["running", "queued", "paused"],
                                                   "limit": 20}),
        ("--since 2026-01-31 --until 2026-01-31", {
            "since": datetime(2026, 1, 31).timestamp(),
            "until": datetime(2026, 2, 1).timestamp(), "limit": 20}),
        ("--csv", {}),
        ("--json --limit 7", {"limit": 7}),
    ],
)  # fmt: skip
def test_a_line_is_a_query_of_the_master(
    master: Master, line: str, query: dict[str, object]
) -> None:
    run_line(line_parser(), f"list {line}")
    assert master.queries == [ExperimentQuery.model_validate(query)]


def test_what_is_not_listed_is_counted(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    master.found = rows_found(9, num_more=9_950, num_archived=1)
    more = "`%det_experiment list --limit 100` lists more, `%det_experiment list -a` all."
    for line in re.findall("`%det_experiment ([^`]+)`", more):
        assert parse(line_parser(), line).text == []  # no word of it is searched for
    expected = f"Not listed: 9,950 more, 1 archived; {more}"
    assert listed(capsys, "list")[-1] == expected
    master.found = rows_found(num_archived=1)
    assert listed(capsys, "list") == [f"Not listed: 1 archived; {more}"]


def test_none_yet_and_none_that_fits_are_told_apart(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    master.found = rows_found()
    assert listed(capsys, "list") == ["No experiments yet."]
    assert listed(capsys, "list --label good") == ["No experiment matches the options."]
    master.found = rows_found(9)
    assert listed(capsys, "list --offset 5") == ["No experiment matches the options."]


def test_csv_and_json_have_all_rows_with_hyperparameters(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    run_line(line_parser(), "list --csv")
    (head, first, _) = csv.reader(io.StringIO(capsys.readouterr().out))
    cells = dict(zip(head, first, strict=True))
    assert (cells["id"], cells["best"], cells["hparams.optimizer.lr"]) == ("9", "0.25", "0.1")
    assert datetime.fromisoformat(cells["created"]).timestamp() == CREATED_AT
    run_line(line_parser(), "list --json")
    assert [item["id"] for item in json.loads(capsys.readouterr().out)] == [9, 7]


def test_handles_are_a_list_that_prints_as_a_table(master: Master) -> None:
    master.found = rows_found(*range(99, 0, -1))
    found = det_jupyter.experiments("digits", label="good", state="running", limit=99)
    assert master.queries == [
        ExperimentQuery(text="digits", label=["good"], state=["running"], limit=99)
    ]
    assert [each.id for each in found[:2]] == [99, 98]
    lines = repr(found).splitlines()
    assert (len(lines), lines[-1]) == (52, "Not listed: 49 more.")
    assert found.table()[0]["hparams.optimizer.lr"] == 0.1


def test_handles_are_a_dataframe(master: Master) -> None:
    pytest.importorskip("pandas")
    frame = det_jupyter.experiments().to_frame()
    assert frame["id"].tolist() == [9, 7]
    assert str(frame["created"].dt.tz) == "UTC"


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("2d", NOW - 172_800),
        ("1.5 h", NOW - 5400),
        ("2026-01-31", datetime(2026, 1, 31).timestamp()),
        ("2026-01-31 14:30", datetime(2026, 1, 31, 14, 30).timestamp()),
        ("2026-01-31T14:30:00+00:00", 1_769_869_800.0),
        (date(2026, 1, 31), datetime(2026, 1, 31).timestamp()),
        (datetime(2026, 1, 31, 1), datetime(2026, 1, 31, 1).timestamp()),
        (5.0, 5.0),
        (None, None),
    ],
)
def test_moments_are_dates_times_and_ages(
    when: str | date | float | None, expected: float
) -> None:
    assert to_moment("since", when, NOW) == expected


@pytest.mark.parametrize("when", ["yesterdy", "2026-13-01", "5 parsecs", "", True, [1]])
def test_what_is_no_moment_is_refused(when: Any) -> None:
    wrong = re.escape(f"since: got {when!r}, expected a date such as")
    with pytest.raises(ConfigError, match=wrong):
        to_moment("since", when, NOW)


def test_the_end_of_the_last_day_of_the_calendar_is_a_moment() -> None:
    assert to_moment("until", "9999-12-31", NOW, is_end=True)


def test_what_cannot_be_a_query_is_refused_in_the_users_words() -> None:
    with pytest.raises(ConfigError, match="sort: got 'best', expected newest, oldest or metric"):
        make_query(sort="best")
    with pytest.raises(
        ConfigError, match=r"label: got \[3\], expected a label, or a list of them"
    ):
        make_query(label=cast("str", 3))
    with pytest.raises(UsageError, match="invalid choice: 'best'"):
        run_line(line_parser(), "list --sort best")


def test_a_name_means_its_one_experiment() -> None:
    assert name_found("wide", row(9), row(7, name="wide"), row(3, name="WIDE")) == 7


def test_a_name_of_several_is_refused_with_their_numbers_and_dates() -> None:
    with pytest.raises(Conflict) as caught:
        name_found("digits", row(9), row(7, status="completed"))
    when = date_text(CREATED_AT)
    assert str(caught.value) == (
        f"2 experiments have the name 'digits': 9 (of {when}, queued) and 7 (of {when}, "
        "completed); give the number of one"
    )
    with pytest.raises(Conflict, match=r"12 experiments .* and 2 more; give the number of one"):
        name_found("digits", *map(row, range(12)))


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(NotFound, match="no experiment of the name 'digts'; did you mean 'digits'"):
        name_found("digts", row(9))
    with pytest.raises(NotFound, match="of the name 'x'; `%det_experiment list` has the names"):
        name_found("x")


def name_found(name: str, *rows: ExperimentRow) -> int:
    return find_by_name(cast("Client", Master(ExperimentRows(rows=list(rows)))), name, NOTEBOOK)
