"""What the client asks the master for, and that the answer is returned as what it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from det_jupyter.client import Client
from det_jupyter.connection import Session
from det_jupyter.contract.messages import (
    PROTOCOL,
    Cancel,
    ImportedMetrics,
    MasterInfo,
    TrackerProgress,
)
from tests.unit.view.view_samples import checkpoint, curve, experiment, trial

Request = tuple[str, str, Any]


def master(answer: Any) -> tuple[Client, list[Request]]:
    """Return a client whose master answers everything with this, and what it is asked for."""
    asked: list[Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        given = json.loads(request.content) if request.content else dict(request.url.params)
        asked.append((request.method, request.url.path.removeprefix("/api/v1"), given))
        return httpx.Response(200, content=json.dumps(answer))

    info = MasterInfo(
        url="http://127.0.0.1:1", token="t", pid=1, started_at=0.0,
        version="0", protocol=PROTOCOL, python="python", data_dir="/",
    )  # fmt: skip
    return Client(Session(info, transport=httpx.MockTransport(respond))), asked


def plain(view: Any) -> Any:
    return view.model_dump(mode="json")


EXPERIMENT, TRIAL, SAVED = experiment(), trial(), checkpoint(10, 0.5)
CURVE = curve("validation", "error", [0.5])


@pytest.mark.parametrize(
    ("call", "answer", "asked", "returned"),
    [
        (lambda c: c.experiment(3), plain(EXPERIMENT), ("GET", "/experiments/3", {}), EXPERIMENT),
        (lambda c: c.trial(4), plain(TRIAL), ("GET", "/trials/4", {}), TRIAL),
        (lambda c: c.holding(), [plain(TRIAL)], ("GET", "/trials/holding", {}), [TRIAL]),
        (
            lambda c: c.curves(3, max_points=9),
            [plain(CURVE)],
            ("GET", "/experiments/3/curves", {"max_points": "9"}),
            [CURVE],
        ),
        (lambda c: c.curves(3), [], ("GET", "/experiments/3/curves", {}), []),
        (
            lambda c: c.checkpoints(3),
            [plain(SAVED)],
            ("GET", "/experiments/3/checkpoints", {}),
            [SAVED],
        ),
        (lambda c: c.checkpoint("a/b"), plain(SAVED), ("GET", "/checkpoints/a/b", {}), SAVED),
        (
            lambda c: c.code(3),
            {"files": {"a.py": "x"}},
            ("GET", "/experiments/3/code", {}),
            {"a.py": "x"},
        ),
        (lambda c: c.timings(4, after=5), [], ("GET", "/trials/4/timings", {"after": "5"}), []),
        (lambda c: c.agents(), [], ("GET", "/agents", {}), []),
        (lambda c: c.jobs(), [], ("GET", "/jobs", {}), []),
        (lambda c: c.tasks(limit=2), [], ("GET", "/tasks", {"limit": "2"}), []),
        (lambda c: c.pools(), [], ("GET", "/pools", {}), []),
        (lambda c: c.clusters(), [], ("GET", "/clusters", {}), []),
        (lambda c: c.templates(), [], ("GET", "/templates", {}), []),
        (lambda c: c.trackers(3), [], ("GET", "/experiments/3/trackers", {}), []),
        (lambda c: c.tracker_work("g"), [], ("GET", "/trackers/work/g", {}), []),
        (lambda c: c.problems(), {"problems": ["x: y"]}, ("GET", "/status", {}), ["x: y"]),
        (
            lambda c: c.find_impossibility(2, pool="p"),
            {"problem": None},
            ("GET", "/possible", {"slots": "2", "pool": "p", "is_single_agent": "false"}),
            None,
        ),
        (lambda c: c.test_alerts("n"), [], ("POST", "/alerts/test",
                                            {"name": "n", "experiment_id": None}), []),
        (lambda c: c.remove_agent("a b"), None, ("DELETE", "/agents/a b/credentials", {}), None),
    ],
)  # fmt: skip
def test_a_call_is_one_request(
    call: Callable[[Client], Any], answer: Any, asked: Request, returned: Any
) -> None:
    client, requests = master(answer)
    assert call(client) == returned
    assert requests == [asked]


def test_a_problem_of_a_size_is_returned_as_one() -> None:
    client, _ = master({"problem": {"path": "resources", "text": "the pool has 2 slots"}})
    found = client.find_impossibility(4, is_single_agent=True)
    assert found is not None
    assert (found.path, found.text) == ("resources", "the pool has 2 slots")


def test_positions_of_trackers_and_imported_metrics_are_sent_as_they_are() -> None:
    client, asked = master({"lines": 7})
    client.advance_tracker(5, TrackerProgress(seq=9))
    client.fail_tracker("g", "down")
    stored = client.add_imported(4, ImportedMetrics(first=0, text="{}\n"))
    assert stored.lines == 7
    assert [(verb, path) for verb, path, _ in asked] == [
        ("PUT", "/trackers/5"),
        ("PUT", "/trackers/work/g"),
        ("POST", "/trials/4/metrics"),
    ]
    assert (asked[0][2]["seq"], asked[1][2]["problem"]) == (9, "down")
    assert asked[2][2] == {"first": 0, "text": "{}\n"}


def test_a_change_names_what_it_changes_in_the_path() -> None:
    client, asked = master(plain(EXPERIMENT))
    assert client.change(Cancel(experiment_id=3)).id == EXPERIMENT.id
    verb, path, _ = asked[-1]
    assert (verb, path) == ("POST", "/experiments/3/cancel")
