"""What MLflow gets, and what it gets again after a process was killed: nothing.

Its store of files appends what it is sent twice; its databases would drop that.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import FeedItem, State, TrackerWork
from det_jupyter.trackers.service import Refused, Unreachable
from tests.integration.trackers.recorded import Killed, Recorded, losses
from tests.unit.view.view_samples import trial

pytestmark = [
    pytest.mark.skipif(find_spec("mlflow") is None, reason="no mlflow"),
    pytest.mark.filterwarnings("default"),  # MLflow's own
]


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


def send(uri: str, source: Recorded) -> None:
    """Run a process from the stored position on, until there is nothing more or it is killed."""
    from det_jupyter.trackers.mlflow_sender import MlflowSender

    sender = MlflowSender(tracking_uri=uri, shown_as="files", experiment="e", source=source)
    try:
        sender.send(source.open_work)
    except Killed:
        send(uri, source)


def runs_at(uri: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = client.search_experiments()
    return list(client.search_runs([each.experiment_id for each in found if each.name == "e"]))


def history(uri: str, run: Any, key: str) -> list[tuple[int, int, float]]:
    from mlflow import MlflowClient

    rows = MlflowClient(uri).get_metric_history(run.info.run_id, key)
    return [(row.step, row.timestamp, row.value) for row in rows]


def test_a_trial_is_a_run_with_parameters_tags_metrics_code_and_end(uri: str) -> None:
    source = Recorded(losses(1, range(1, 4)))
    send(uri, source)
    (run,) = runs_at(uri)
    assert (run.info.run_name, run.info.status) == ("digits 1", "RUNNING")
    assert run.data.params == {"global_batch_size": "64", "lr": "0.05"}
    assert history(uri, run, "training/loss") == [(s, s * 1000, 1 / s) for s in (1, 2, 3)]
    assert len(history(uri, run, "training/top 5_")) == 3
    tags = run.data.tags
    assert (tags["det_jupyter.experiment_id"], tags["det_jupyter.trial_id"]) == ("7", "1")
    assert tags["mlflow.source.name"] == "quickstart.ipynb"
    source.trial = trial(state=State.ERROR, ended_at=2.5)
    source.items += [
        FeedItem(seq=4, at=1.0, kind="trial", experiment_id=7, trial_id=1, data={"id": 1})
    ]
    send(uri, source)
    (run,) = runs_at(uri)
    assert (run.info.status, run.info.end_time) == ("FAILED", 2500)
    assert run.data.tags["det_jupyter.state"] == "ERROR"


def test_a_kill_after_any_batch_leaves_no_gap_and_no_double(uri: str) -> None:
    items = losses(1, range(1, 24)) + losses(24, range(1, 6), trial_id=2)
    source = Recorded(items)
    source.kills = {5, 10, 20, 28}
    send(uri, source)
    assert source.kills == set()
    second, first = sorted(runs_at(uri), key=lambda run: run.info.run_name, reverse=True)
    assert [row[0] for row in history(uri, first, "training/loss")] == list(range(1, 24))
    assert [row[0] for row in history(uri, second, "training/loss")] == list(range(1, 6))


def test_steps_that_a_trial_reports_again_after_a_restart_are_sent_once(uri: str) -> None:
    source = Recorded(losses(1, range(1, 8)))
    send(uri, source)
    source.items = losses(1, range(1, 5)) + losses(8, range(5, 11))
    send(uri, source)
    (run,) = runs_at(uri)
    assert [row[0] for row in history(uri, run, "training/loss")] == list(range(1, 11))


def test_a_place_that_cannot_be_reached_is_named_without_its_password() -> None:
    from det_jupyter.trackers.mlflow_sender import MlflowSender

    sender = MlflowSender(
        tracking_uri="http://ann:QzSecretzQ@127.0.0.1:9",
        shown_as="http://127.0.0.1:9/********",
        experiment="e",
        source=Recorded(losses(1, range(1, 2))),
    )
    with pytest.raises(Unreachable) as raised:
        sender.send(TrackerWork(id=1, experiment_id=7, key="k", seq=0, runs={}))
    assert str(raised.value) == "http://127.0.0.1:9/******** cannot be reached"


@pytest.mark.parametrize(
    ("status", "problem", "expected"),
    [
        (401, Unreachable, "refuses the credentials"),
        (403, Unreachable, "refuses the credentials"),
        (503, Refused, "has failed"),
        (500, Refused, "has failed"),
    ],
)
def test_a_server_that_fails_at_one_experiment_does_not_delay_the_others(
    status: int, problem: type[Exception], expected: str
) -> None:
    from det_jupyter.trackers.mlflow_sender import MlflowSender

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status, "no")

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sender = MlflowSender(
            tracking_uri=f"http://ann:QzSecretzQ@127.0.0.1:{server.server_port}",
            shown_as="team",
            experiment="e",
            source=Recorded(losses(1, range(1, 2))),
        )
        with pytest.raises(problem, match=f"^team {expected}: ") as raised:
            sender.send(TrackerWork(id=1, experiment_id=7, key="k", seq=0, runs={}))
        server.shutdown()
    assert "QzSecretzQ" not in str(raised.value)


def test_what_is_refused_names_the_reason(uri: str) -> None:
    from mlflow import MlflowClient

    source = Recorded(losses(1, range(1, 2)))
    send(uri, source)
    (run,) = runs_at(uri)
    MlflowClient(uri).delete_run(run.info.run_id)
    source.items += losses(2, range(2, 3))
    with pytest.raises(Refused, match=r"files refuses: .*active"):
        send(uri, source)


def test_labels_that_change_later_are_sent_by_another_process_too(uri: str) -> None:
    source = Recorded(losses(1, range(1, 3)))
    source.labels = ["first"]
    send(uri, source)
    assert runs_at(uri)[0].data.tags["det_jupyter.labels"] == "first"
    source.labels = []
    source.items.append(
        FeedItem(seq=3, at=1.0, kind="experiment", experiment_id=7, data={"config": {}})
    )
    send(uri, source)
    assert runs_at(uri)[0].data.tags["det_jupyter.labels"] == ""


def test_code_arrives_also_if_the_process_was_killed_before(uri: str) -> None:
    from mlflow import MlflowClient

    class KilledAtCode(Recorded):
        def code(self, experiment_id: int) -> dict[str, str]:
            if self.kills:
                self.kills.clear()
                raise Killed
            return super().code(experiment_id)

    source = KilledAtCode(losses(1, range(1, 3)))
    source.kills = {0}
    send(uri, source)
    (run,) = runs_at(uri)
    assert [file.path for file in MlflowClient(uri).list_artifacts(run.info.run_id)] == ["code"]
