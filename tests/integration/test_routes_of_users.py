"""What users' routes about the master and about results answer, and their errors."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import DisksSeen
from det_jupyter.contract.messages.disks import DiskReading
from det_jupyter.contract.run.journal import BatchTimings
from det_jupyter.master.http import routes_results
from tests.integration.master_support import (
    AGENT,
    batches,
    gang_exited,
    gang_started,
    make_chunk,
    make_text_chunk,
    started,
    validation,
)
from tests.integration.routes_support import RANDOM, Routes, complete, opened_routes, saved, submit


@pytest.fixture
def routes(tmp_path: Path) -> Iterator[Routes]:
    """Return a master with an agent of two slots."""
    with opened_routes(tmp_path) as routes:
        routes.bench.register()
        yield routes


# the master


def test_the_status_counts_all_experiments_and_lists_those_that_are_not_over(
    routes: Routes,
) -> None:
    for name in ("over", "archived", "runs"):
        submit(routes, name=name)
    complete(routes, 1, validation(100, 0.5))
    routes.post("/experiments/2/kill")
    routes.bench.report(gang_started("2.2.1"), gang_exited("2.2.1", 1))
    routes.post("/experiments/2/archive")
    routes.service.file_problems = ["pools.yaml: wrong"]
    full = DiskReading(folder="/full", total_bytes=10**12, free_bytes=0, is_full=True)
    routes.bench.report(DisksSeen(at=1.0, disks=[full]))
    status = routes.get("/status")
    assert status["num_experiments"] == 3
    (active,) = status["experiments"]
    assert (active["id"], active["name"], active["num_trials"]) == (3, "runs", 1)
    assert active["state"] in ("QUEUED", "STARTING", "RUNNING")
    assert status["problems"] == ["not followed: pools.yaml: wrong"]
    assert [agent["id"] for agent in status["agents"]] == [AGENT]
    assert status["master"] | {"token": "x"} == routes.get("/master") | {"token": "x"}
    assert status["master"]["token"] == ""


def test_a_disk_of_the_master_that_is_full_is_a_problem(
    routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "find_full_folder", lambda: "/data is full")
    assert routes.get("/status")["problems"] == ["/data is full"]


@pytest.mark.parametrize("everything", [False, True])
def test_the_master_answers_before_it_stops(routes: Routes, everything: bool) -> None:
    assert routes.post("/master/stop", everything=everything)["pid"] == 7
    assert routes.stops == [everything]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"slots": 2}, None),
        ({"slots": 0}, None),
        ({"slots": 3}, "2 slots"),
        ({"slots": 1, "pool": "none"}, "there is no pool 'none', but default"),
        ({"slots": 2, "pool": "default"}, None),
    ],
)
def test_whether_a_pool_can_run_trials_is_said(
    routes: Routes, query: dict[str, Any], problem: str | None
) -> None:
    found = routes.get("/possible", **query)["problem"]
    assert found is None if problem is None else problem in found["text"]


def test_whether_trials_need_one_agent_decides_if_they_can_run(routes: Routes) -> None:
    routes.add_agent("b")
    assert routes.get("/possible", slots=4)["problem"] is None
    assert routes.get("/possible", slots=4, is_single_agent=True)["problem"] is not None


def test_queues_list_what_waits_up_to_a_limit(routes: Routes) -> None:
    for _ in range(4):
        submit(routes)
    assert [job["experiment_id"] for job in routes.get("/jobs")] == [1, 2, 3, 4]
    assert routes.get("/trials/2/reason")["sentence"]
    few, many = routes.get("/cluster", limit=1), routes.get("/cluster")
    assert [pool["name"] for pool in many["pools"]] == ["default"]
    assert [run["trial_id"] for run in few["holding"]] == [1]
    assert [[run["trial_id"] for run in each["queue"]] for each in (few, many)] == [[2], [2, 3, 4]]
    assert "limit" in routes.refused(422, "GET", "/cluster", params={"limit": 1001})
    assert "slots" in routes.refused(422, "GET", "/possible", params={"slots": -1})


# results


def test_a_trial_has_curves_timings_checkpoints_and_logs(routes: Routes) -> None:
    submit(routes)
    routes.bench.report(
        gang_started(),
        make_chunk(
            [
                started(),
                batches(1, [0.5, "NaN", 0.3, 0.2, 0.6, 0.1]),
                BatchTimings(at=1.0, first=1, records=[8, 8], durations_ns={"batch": [5, 6]}),
                saved("late", 50, at=5.0),
                saved("early", 20, at=2.0),
                saved("same", 30, at=2.0),
            ]
        ),
        make_text_chunk("hello\nTraceback\n", stream="output-0"),
    )
    (curve,) = routes.get("/experiments/1/curves")
    assert curve["values"] == [0.5, None, 0.3, 0.2, 0.6, 0.1]
    (thin,) = routes.get("/experiments/1/curves", max_points=5)
    assert thin["values"] == [0.5, None, 0.2, 0.6, 0.1]
    assert "max_points" in routes.refused(
        422, "GET", "/experiments/1/curves", params={"max_points": 4}
    )
    for error in (0.8, 0.7):  # of one step
        size = routes.service.store.offset("1.1.1", "journal-0")
        routes.bench.report(make_chunk([validation(5, error)], offset=size))
    curves = {each["name"]: each["values"] for each in routes.get("/experiments/1/curves")}
    assert curves["error"] == [0.7]
    repeated = routes.get("/experiments/1/curves", repeats=True)
    assert [each["values"] for each in repeated if each["name"] == "error"] == [[0.8, 0.7]]
    (timing,) = routes.get("/trials/1/timings")
    assert timing["durations_ns"] == {"batch": [5, 6]}
    assert routes.get("/trials/1/timings", after=timing["id"]) == []
    found = routes.get("/experiments/1/checkpoints")
    assert [each["uuid"] for each in found] == ["early", "same", "late"]
    assert routes.get("/checkpoints/late")["steps_completed"] == 50
    assert "there is no checkpoint x" in routes.refused(404, "GET", "/checkpoints/x")
    for path in ("/trials/1/logs", "/experiments/1/logs"):
        page = routes.get(path, tail=1)
        assert ([line["text"] for line in page["lines"]], page["is_over"]) == (
            ["Traceback"],
            False,
        )
    assert routes.get("/experiments/1/logs", trial_id=1, rank=1)["lines"] == []
    submit(routes)
    assert routes.get("/experiments/2/checkpoints") == []


def test_who_asks_for_lines_that_cannot_come_does_not_wait(routes: Routes) -> None:
    submit(routes)
    page = routes.get("/trials/1/logs", wait_s=0.01)
    assert (page["lines"], page["is_over"]) == ([], False)
    complete(routes, 1, validation(100, 0.5))
    for path in ("/trials/1/logs", "/experiments/1/logs"):
        page = routes.get(path, wait_s=20)
        assert (page["lines"], page["is_over"]) == ([], True)
    submit(routes)
    routes.service.end_streams()
    assert routes.get("/trials/2/logs", wait_s=20)["lines"] == []


def test_logs_of_a_trial_of_another_experiment_are_refused_with_the_own_ones(
    routes: Routes,
) -> None:
    submit(routes, searcher=RANDOM | {"max_trials": 7, "max_concurrent_trials": 7})
    submit(routes)
    ask = {"params": {"trial_id": 99}}
    assert routes.refused(404, "GET", "/experiments/2/logs", **ask).endswith(
        "there is no trial 99 in experiment 2; it has: 8"
    )
    assert routes.refused(404, "GET", "/experiments/1/logs", **ask).endswith(
        "there is no trial 99 in experiment 1; it has: 1, 2, 3, 4, 5 and 2 more"
    )


def test_the_feed_has_what_followed_a_number(routes: Routes) -> None:
    submit(routes)
    submit(routes)
    items = routes.get("/experiments/2/feed")
    assert {item["experiment_id"] for item in items} == {2}
    first, *rest = (item["seq"] for item in items)
    after = routes.get("/experiments/2/feed", after=first)
    assert [item["seq"] for item in after] == rest
    assert routes.get("/experiments/2/feed", after=rest[-1]) == []
    assert "no experiment 9" in routes.refused(404, "GET", "/experiments/9/feed")


def test_series_of_a_trial_and_of_an_agent(routes: Routes) -> None:
    submit(routes)
    routes.bench.report(gang_started(), make_chunk([started(), batches(1, [0.5, 0.4])]))
    page = routes.get("/trials/1/series", of="metrics", axis="batches")
    assert [each["name"] for each in page["series"]] == ["loss"]
    assert page["ended_at"] is None
    sent = len(routes.bench.commands())
    assert routes.get(f"/agents/{AGENT}/series", of="system")["series"] is not None
    assert routes.bench.commands()[sent:] == ["take_samples"]
    routes.get(f"/agents/{AGENT}/series", of="system")  # soon after: it still takes them
    assert routes.bench.commands()[sent:] == ["take_samples"]
    for path, query, problem in (
        ("/trials/1/series", {"of": "system", "axis": "batches"}, "axis: got batches"),
        (f"/agents/{AGENT}/series", {"of": "metrics"}, "of: got metrics by time"),
        (f"/agents/{AGENT}/series", {"of": "system", "axis": "batches"}, "system by batches"),
    ):
        assert problem in routes.refused(422, "GET", path, params=query)
    unknown = routes.refused(404, "GET", "/agents/x/series", params={"of": "system"})
    assert unknown.endswith(f"there is no agent x; those are: {AGENT}")


# errors


def full_database() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = 13  # SQLITE_FULL
    return error


def test_what_does_not_exist_is_named_with_its_number(routes: Routes) -> None:
    submit(routes)
    for path, what, number in (
        ("/experiments/9", "experiment", 9),
        ("/trials/9", "trial", 9),
        ("/experiments/9/feed", "experiment", 9),
        ("/experiments/1/logs?trial_id=9", "trial", 9),
        ("/checkpoints/9", "", 0),
    ):
        answer = routes.ask("GET", path)
        assert answer.status_code == 404
        body = answer.json()
        assert (body["error"], body["what"], body["number"]) == ("NotFound", what, number)


def test_a_route_that_does_not_exist_is_refused_with_its_path(routes: Routes) -> None:
    assert routes.refused(404, "GET", "/none") == "GET /api/v1/none: Not Found"
    answer = routes.ask("DELETE", "/experiments")
    assert (answer.status_code, answer.json()["error"]) == (405, "DetError")
    assert "GET" in answer.headers["allow"] or "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("error", "full", "status", "words"),
    [
        (OSError(errno.ENOSPC, "No space left", "/data/x"), "", 507, "written in /data"),
        (OSError(errno.ENOSPC, "No space left"), "/d is full", 507, "/d is full"),
        (OSError(errno.ENOSPC, "No space left"), "", 507, "a disk was full: "),
        (OSError(errno.EACCES, "Permission denied"), "", 500, "/status: "),
        (RuntimeError("what\x1b"), "", 500, "GET /api/v1/status: RuntimeError: what"),
        (full_database(), "/d is full", 507, "/d is full"),
        (sqlite3.OperationalError("no such table"), "", 500, "no such table"),
    ],
)
def test_an_error_of_the_master_is_answered_with_its_cause(
    routes: Routes,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    full: str,
    status: int,
    words: str,
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(paths, "find_full_folder", lambda: full)
    monkeypatch.setattr(routes.service.views, "agents", fail)
    told = routes.refused(status, "GET", "/status")
    assert words in told
    assert told.isprintable()
    assert ("master's log has more" in told) == (status == 500)


def test_an_agent_goes_on_taking_samples_while_its_series_are_looked_at(
    routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace()
    monkeypatch.setattr(routes_results, "time", clock)

    def num_ordered(at: float) -> int:
        clock.monotonic = lambda: at
        routes.get(f"/agents/{AGENT}/series", of="system")
        return routes.bench.commands().count("take_samples")

    times = (1000.0, 1009.0, 1011.0, 1020.0, 1022.0)
    assert [num_ordered(at) for at in times] == [1, 1, 2, 2, 3]
