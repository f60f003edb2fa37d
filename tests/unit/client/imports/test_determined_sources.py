"""A master of Determined and a dump of its database are read alike, and checked."""

from __future__ import annotations

import gzip
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from det_jupyter.client.imports.determined import dump as dumps
from det_jupyter.client.imports.determined.dump import DeterminedDump
from det_jupyter.client.imports.determined.master import DeterminedMaster
from det_jupyter.client.imports.determined.records import (
    DeterminedSource,
    FoundReport,
    Unsound,
    line_of,
    seconds,
)
from det_jupyter.contract.messages.requests import MAX_IMPORTED_LINE
from det_jupyter.contract.run.journal import BatchMetrics, MetricsReported
from det_jupyter.errors import DetError
from tests.determined_database import PLAIN, database, dump, find_program
from tests.determined_master import StandIn, stand_in
from tests.determined_world import CLUSTER, KEPT


@pytest.fixture(scope="module")
def master() -> Iterator[StandIn]:
    """Return a master of Determined."""
    with stand_in() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, master: StandIn) -> None:
    for name in ("DET_MASTER", "DET_USER", "DET_PASS", "DET_USER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    master.left = None


def typed(_address: str) -> tuple[str, str]:
    return "ann", "secret"


def everything(source: DeterminedSource) -> dict[str, Any]:
    """Return all that a source has, but for the bytes of code."""
    experiments = list(source.experiments())
    trials = [trial for each in experiments for trial in source.trials(each.id)]
    return {
        "cluster": source.cluster_id,
        "experiments": experiments,
        "trials": [(each.id, each.state, each.hparams, each.ended_at) for each in trials],
        "reports": [
            list(source.reports(trial, group))
            for trial in trials
            for group in sorted(trial.groups)
        ],
        "checkpoints": [list(source.checkpoints(each.id)) for each in experiments],
        "log": [list(source.log(trial)) for trial in trials],
        "models": list(source.models()),
    }


def test_a_master_and_its_dump_have_the_same(master: StandIn) -> None:
    with DeterminedMaster(master.url, typed) as live, DeterminedDump(PLAIN) as stored:
        found, other = everything(live), everything(stored)
        assert live.code(1)[:2] == stored.code(1)[:2] == b"\x1f\x8b"
    reports = [each for each in found.pop("reports") if each]
    assert reports == [each for each in other.pop("reports") if each]
    assert found == other
    assert found["cluster"] == CLUSTER
    first = found["experiments"][0]
    assert (first.id, first.state, first.notes, first.created_at) == (
        1, "COMPLETED", "The best one.", 1682942401.25,
    )  # fmt: skip
    assert [each.uuid for each in found["checkpoints"][0]][1] == KEPT
    assert [line.text for line in found["log"][0]] == [
        "begins", "WARNING: a\ttab and a back\\slash",
    ]  # fmt: skip
    (model,) = found["models"]
    assert model.labels == ["best, of all", 'a "quote"']
    assert [(each.number, each.metadata) for each in model.versions] == [(1, {"n": 1}), (2, {})]


def test_a_report_has_averages_and_values_of_batches(master: StandIn) -> None:
    with DeterminedDump(PLAIN) as source:
        trial = next(source.trials(1))
        (first, last) = source.reports(trial, "training")  # the archived one does not count
    assert list(first.records()) == [
        MetricsReported(at=first.at, group="training", steps_completed=4, metrics={"loss": 0.25}),
        BatchMetrics(at=first.at, first=1, values={"loss": [0.25] * 4}),
    ]
    assert last.steps_completed == 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: text.index("COPY public.runs")], "has no rows of runs"),
        (lambda text: text[: text.index("begins")], "table task_logs: the dump ends within it"),
        (lambda text: text.replace("database dump complete", ""), "is not whole: its end is"),
        (lambda text: text.replace(f"{CLUSTER}\n", ""), "has no rows of cluster_id"),
        (lambda text: text * 2, "has several databases"),
        (lambda text: "INSERT INTO public.runs VALUES (1);\n" + text, "was made with --inserts"),
        (lambda text: "SELECT 1;\n", "no dump of the database of Determined 0.38"),
    ],
)
def test_a_dump_that_cannot_be_read_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    file = tmp_path / "d.sql"
    file.write_text(change(PLAIN.read_text()))
    with pytest.raises(DetError, match=re.escape(said)) as caught, DeterminedDump(file):
        pass
    assert str(caught.value).startswith(str(file))


def test_values_that_cannot_be_stored_are_left_out_of_a_report() -> None:
    stored = {"avg_metrics": {"a": 2**70, "b": "NaN", "c": {"d": 1}}, "batch_metrics": None}
    report = FoundReport(id=1, group="a.b", at=1.0, steps_completed=3, metrics=stored)
    assert list(report.records()) == [
        MetricsReported(
            at=1.0, group="a_b", steps_completed=3, metrics={"b": "NaN", "c": {"d": 1}}
        )
    ]


@pytest.mark.parametrize("metrics", [{"avg_metrics": [1]}, {"batch_metrics": [None, 3]}])
def test_metrics_that_are_of_the_wrong_kind_are_left_out(metrics: Any) -> None:
    found = FoundReport(id=1, group="training", at=1.0, steps_completed=3, metrics=metrics)
    assert list(found.records()) == []


def test_the_rows_of_each_experiment_of_a_dump_are_found_by_an_index() -> None:
    with DeterminedDump(PLAIN) as source:
        statements: list[str] = []
        source._rows.set_trace_callback(statements.append)
        everything(source)
        source.code(1)
        source._rows.set_trace_callback(None)
        plans = {
            each: " ".join(row["detail"] for row in source._query(f"EXPLAIN QUERY PLAN {each}"))
            for each in statements
            if "WHERE" in each and "model_versions" not in each
        }
    assert len(plans) > 5
    assert not [each for each, plan in plans.items() if "SCAN" in plan and "USING" not in plan]


def test_a_time_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert seconds("2023-05-01 12:00:00") == seconds("2023-05-01 12:00:00+00")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_line_that_is_too_long_is_cut() -> None:
    line = line_of("2023-05-01 12:00:00+00", -1, "INFO", "x" * 300_000)
    assert (line.rank, len(line.text)) == (0, MAX_IMPORTED_LINE)


def test_an_archive_with_damaged_bytes_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(PLAIN.read_bytes()))
    packed[200:220] = b"\xff" * 20
    (tmp_path / "d.sql.gz").write_bytes(packed)
    with pytest.raises(DetError, match="cannot be read"), DeterminedDump(tmp_path / "d.sql.gz"):
        pass


def test_a_compressed_dump_is_read_and_one_that_is_cut_refused(tmp_path: Path) -> None:
    file = tmp_path / "d.sql.gz"
    file.write_bytes(gzip.compress(PLAIN.read_bytes()))
    with DeterminedDump(file) as source:
        assert source.cluster_id == CLUSTER
    file.write_bytes(file.read_bytes()[:3000])
    with pytest.raises(DetError, match="cannot be read"), DeterminedDump(file):
        pass


def test_a_compressed_file_without_lines_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dumps, "_LONGEST_LINE", 100_000)
    file = tmp_path / "dump.sql.gz"
    file.write_bytes(gzip.compress(bytes(1_000_000)))
    told = r"dump\.sql\.gz has a line of 100 kB or more, which no dump of Determined's"
    with pytest.raises(DetError, match=told), DeterminedDump(file):
        pass


def test_a_dump_that_needs_pg_restore_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    (tmp_path / "d").write_bytes(b"PGDMP\x01\x0e")
    with pytest.raises(DetError, match="pg_restore, which reads it, is not installed here"):
        DeterminedDump(tmp_path / "d").__enter__()


@pytest.mark.long
def test_dumps_of_a_real_postgresql_are_read_in_all_forms(tmp_path: Path) -> None:
    if find_program("initdb") is None:
        pytest.skip("no PostgreSQL")
    with DeterminedDump(PLAIN) as source:
        expected = everything(source)
    with database() as options:
        for form in ("plain", "custom", "tar", "directory"):
            dump(options, tmp_path / form, form)
            with DeterminedDump(tmp_path / form) as source:
                assert everything(source) == expected, form
    (tmp_path / "custom").write_bytes((tmp_path / "custom").read_bytes()[:2000])
    with (
        pytest.raises(DetError, match="custom cannot be read: pg_restore: error"),
        DeterminedDump(tmp_path / "custom"),
    ):
        pass


def test_a_wrong_password_and_a_master_that_is_away_are_told(master: StandIn) -> None:
    def wrong(_address: str) -> tuple[str, str]:
        return "ann", "wrong"

    with pytest.raises(DetError, match="refuses the user and password") as caught:
        DeterminedMaster(master.url, wrong).__enter__()
    assert "wrong" not in str(caught.value)
    with DeterminedMaster(master.url, typed) as source:
        master.left = 2
        with pytest.raises(DetError, match=r"does not answer .* start the import again"):
            list(source.experiments())


def test_credentials_of_the_environment_go_to_the_address_in_it_only(
    master: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(address: str) -> tuple[str, str]:
        raise DetError(f"asked for {address}")

    monkeypatch.setenv("DET_USER", "ann")
    monkeypatch.setenv("DET_PASS", "secret")
    with pytest.raises(DetError, match=f"asked for {master.url}"):
        DeterminedMaster(master.url, refuses).__enter__()
    monkeypatch.setenv("DET_MASTER", f"{master.url}/")
    with DeterminedMaster(master.url, refuses) as source:
        assert source.cluster_id == CLUSTER


def test_a_token_that_cannot_be_sent_is_not_shown(
    master: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_MASTER", master.url)
    monkeypatch.setenv("DET_USER_TOKEN", "token-1\r")
    with DeterminedMaster(master.url, typed) as source:
        assert next(source.experiments()).id == 1
    for token in ("sec\nret", "sécret"):
        monkeypatch.setenv("DET_USER_TOKEN", token)
        with pytest.raises(DetError, match="characters that no token has") as caught:
            DeterminedMaster(master.url, typed).__enter__()
        assert token not in str(caught.value)


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        ((200, "<html>Sign in</html>"), "no JSON, or JSON that is cut off"),
        ((200, '{"clusterId": "c", "exp'), "no JSON, or JSON that is cut off"),
        ((200, "[]"), "no JSON, or JSON that is cut off"),
        ((200, "{}"), "it has no clusterId"),
        ((500, '{"message": "\\u001b[31mred"}'), "status 500, red"),
        ((500, "[1]"), "status 500, no JSON"),
        ((302, ""), "status 302, to https://elsewhere"),
    ],
)
def test_an_answer_of_another_server_is_refused(
    master: StandIn, monkeypatch: pytest.MonkeyPatch, answered: tuple[int, str], said: str
) -> None:
    def get(*_given: Any, **_options: Any) -> httpx.Response:
        request = httpx.Request("GET", master.url)
        headers = {"Location": "https://elsewhere"} if answered[0] == 302 else {}
        return httpx.Response(answered[0], text=answered[1], headers=headers, request=request)

    monkeypatch.setattr(httpx.Client, "get", get)
    with pytest.raises(DetError, match=said) as caught:
        DeterminedMaster(master.url, typed).__enter__()
    assert not isinstance(caught.value, Unsound)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://10.0.0.5:8080", "ssh -L 5000:localhost:8080 10.0.0.5.*or set DET_MASTER=http:"),
        ("http://ann:secret@localhost:8080", "got one with more than a host and a port"),
        ("ftp://localhost", "expected the address of a master"),
        ("http://localhost:99999", "expected the address of a master"),
    ],
)
def test_an_address_to_which_nothing_may_be_sent_is_refused(address: str, said: str) -> None:
    with pytest.raises(DetError, match=said) as caught:
        DeterminedMaster(address, typed)
    assert "secret" not in str(caught.value)
