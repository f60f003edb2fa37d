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
    AgentCredentials,
    AlertsView,
    AlertTested,
    Cancel,
    ClusterCheck,
    ClusterStatus,
    DiskUsage,
    EffectiveConfig,
    ExperimentQuery,
    ExperimentRows,
    FeedItem,
    FreedRoom,
    ImportanceView,
    ImportedMetrics,
    LogPage,
    LogQuery,
    MasterInfo,
    PreviewRequest,
    PreviewView,
    RemovedCluster,
    RoomForecast,
    SendTo,
    SeriesPage,
    SeriesQuery,
    TemplateView,
    TrackerProgress,
    TrackerState,
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
CREDENTIALS = AgentCredentials(agent="a", url="https://u", certificate="c", token="t")
CLUSTER = ClusterStatus(
    name="x", engine="ray", address="a", slots="gpu", pool="big", state="connected"
)
REMOVED = RemovedCluster(num_agents=2, trial_ids=[3])
CHECKED = ClusterCheck(agents=[], problems=["none"])
CONFIG = EffectiveConfig(yaml="a: 1", config={"a": 1}, origins={"a": "you"})
IMPORTANCE = ImportanceView(metric="error", num_trials=30)
PREVIEW = PreviewView(
    searcher="random", metric="error", unit="batches", num_trials=1, trials=[], brackets=[],
    expected=1.0, least=1.0, most=1.0, full=1.0,
)  # fmt: skip
LOGS = LogPage(lines=[], total=0, last_id=0, is_over=True)
SERIES = SeriesPage(series=[], began_at=1.0)
DISKS = DiskUsage(disks=[], uses=[], at=1.0)
FREED = FreedRoom(num_bytes=5, num_files=1)
TEMPLATE = TemplateView(name="a", config={"x": 1}, created_at=1.0, updated_at=2.0)
ALERTS = AlertsView(file="f", problems=[], destinations=[], deliveries=[])
TESTED = AlertTested(destination="n", problem="")
TRACKER = TrackerState(id=1, label="wandb")
ITEM = FeedItem(seq=6, at=1.0, kind="cluster", experiment_id=0, data={})


@pytest.mark.parametrize(
    ("call", "answer", "asked", "returned"),
    [
        (lambda c: c.experiment(3), plain(EXPERIMENT), ("GET", "/experiments/3", {}), EXPERIMENT),
        (lambda c: c.trial(4), plain(TRIAL), ("GET", "/trials/4", {}), TRIAL),
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
        (lambda c: c.jobs(), [], ("GET", "/jobs", {}), []),
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
        (lambda c: c.add_agent("a b", "host"), plain(CREDENTIALS),
         ("POST", "/agents/a b/credentials", {"address": "host"}), CREDENTIALS),
        (lambda c: c.add_agent("a"), plain(CREDENTIALS),
         ("POST", "/agents/a/credentials", {"address": ""}), CREDENTIALS),
        (lambda c: c.add_cluster({"name": "x"}, "big"), plain(CLUSTER),
         ("POST", "/clusters", {"config": {"name": "x"}, "pool": "big"}), CLUSTER),
        (lambda c: c.clusters(), [plain(CLUSTER)], ("GET", "/clusters", {}), [CLUSTER]),
        (lambda c: c.remove_cluster("a.b"), plain(REMOVED), ("DELETE", "/clusters/a.b", {}),
         REMOVED),
        (lambda c: c.check_agents("/data"), plain(CHECKED),
         ("POST", "/agents/check", {"folder": "/data"}), CHECKED),
        (lambda c: c.experiments(), {"rows": []},
         ("GET", "/experiments", {"archived": "true", "sort": "oldest"}), []),
        (lambda c: c.find(ExperimentQuery(text="x")), {"rows": []},
         ("GET", "/experiments", {"text": "x"}), ExperimentRows(rows=[])),
        (lambda c: c.effective_config(3), plain(CONFIG), ("GET", "/experiments/3/config", {}),
         CONFIG),
        (lambda c: c.importance(3), plain(IMPORTANCE), ("GET", "/experiments/3/importance", {}),
         IMPORTANCE),
        (lambda c: c.preview(PreviewRequest(config={"a": 1})), plain(PREVIEW),
         ("POST", "/preview", plain(PreviewRequest(config={"a": 1}))), PREVIEW),
        (lambda c: c.logs(4, LogQuery(tail=5)), plain(LOGS), ("GET", "/trials/4/logs",
                                                             {"tail": "5"}), LOGS),
        (lambda c: c.experiment_logs(3, LogQuery(tail=5), trial_id=4), plain(LOGS),
         ("GET", "/experiments/3/logs", {"trial_id": "4", "tail": "5"}), LOGS),
        (lambda c: c.series(4, SeriesQuery(of="system", columns=9)), plain(SERIES),
         ("GET", "/trials/4/series", {"of": "system", "columns": "9"}), SERIES),
        (lambda c: c.agent_series("a", SeriesQuery(of="system", columns=9)), plain(SERIES),
         ("GET", "/agents/a/series", {"of": "system", "columns": "9"}), SERIES),
        (lambda c: c.disk_usage(), plain(DISKS), ("GET", "/disks", {}), DISKS),
        (lambda c: c.free_room(), plain(FREED), ("POST", "/disks/free", {}), FREED),
        (lambda c: c.room_forecast(3), {}, ("GET", "/experiments/3/room", {}), RoomForecast()),
        (lambda c: c.templates(), [plain(TEMPLATE)], ("GET", "/templates", {}), [TEMPLATE]),
        (lambda c: c.template("a/b"), plain(TEMPLATE), ("GET", "/templates/a/b", {}), TEMPLATE),
        (lambda c: c.set_template("a", {"x": 1}), plain(TEMPLATE),
         ("PUT", "/templates/a", {"config": {"x": 1}}), TEMPLATE),
        (lambda c: c.delete_template("a"), plain(TEMPLATE), ("DELETE", "/templates/a", {}),
         TEMPLATE),
        (lambda c: c.alerts(), plain(ALERTS), ("GET", "/alerts", {}), ALERTS),
        (lambda c: c.test_alerts("n", 3), [plain(TESTED)],
         ("POST", "/alerts/test", {"name": "n", "experiment_id": 3}), [TESTED]),
        (lambda c: c.send_to(3, SendTo()), [plain(TRACKER)],
         ("POST", "/experiments/3/trackers", plain(SendTo())), [TRACKER]),
        (lambda c: c.trackers(3), [plain(TRACKER)], ("GET", "/experiments/3/trackers", {}),
         [TRACKER]),
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
    stored = client.add_imported(4, ImportedMetrics(first=0, text="{}\n"))
    assert stored.lines == 7
    assert [(verb, path) for verb, path, _ in asked] == [
        ("PUT", "/trackers/5"),
        ("POST", "/trials/4/metrics"),
    ]
    assert asked[0][2]["seq"] == 9
    assert asked[1][2] == {"first": 0, "text": "{}\n"}


def test_a_change_names_what_it_changes_in_the_path() -> None:
    client, asked = master(plain(EXPERIMENT))
    assert client.change(Cancel(experiment_id=3)).id == EXPERIMENT.id
    verb, path, _ = asked[-1]
    assert (verb, path) == ("POST", "/experiments/3/cancel")


def test_items_of_the_feed_are_those_after_a_number() -> None:
    client, asked = master([plain(ITEM)])
    assert client.items(3, after=5) == [ITEM]
    assert asked == [("GET", "/experiments/3/feed", {"after": "5"})]
