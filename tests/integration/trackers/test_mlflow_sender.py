"""What MLflow gets, and what it gets again after a process was killed: nothing.

Its store of files appends what it is sent twice; its databases would drop that.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.config.tracker_section import OF_USER
from det_jupyter.contract.messages import FeedItem, State, TrackerOrder, TrackerWork
from det_jupyter.trackers import __main__ as program
from det_jupyter.trackers.service import TrackerRefused, Unreachable
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


def sender_of(uri: str, source: Recorded) -> Any:
    from det_jupyter.trackers.mlflow_sender import MlflowSender

    return MlflowSender(tracking_uri=uri, shown_as="files", experiment="e", source=source)


def send(uri: str, source: Recorded) -> None:
    """Run a process from the stored position on, until there is nothing more or it is killed."""
    try:
        sender_of(uri, source).send(source.open_work)
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


@contextmanager
def failing_server(status: int, fails: str = "/") -> Iterator[tuple[int, list[str]]]:
    """Answer with this status where the path has `fails`, else with nothing.

    Yields the port, and the credentials that come in.
    """
    credentials: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            credentials.append(self.headers.get("authorization", ""))
            if fails in self.path:
                self.send_error(status, "no")
                return
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, credentials
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "fails", "problem", "expected"),
    [
        (401, "/", Unreachable, "refuses the credentials"),
        (403, "/", Unreachable, "refuses the credentials"),
        (404, "/", Unreachable, "does not answer as MLflow does; check the path of its address"),
        (503, "/", Unreachable, "has failed"),
        (500, "runs/search", TrackerRefused, "has failed"),
    ],
)
def test_a_server_that_fails_at_one_experiment_does_not_delay_the_others(
    status: int, fails: str, problem: type[Exception], expected: str
) -> None:
    from det_jupyter.trackers.mlflow_sender import MlflowSender

    with failing_server(status, fails) as (port, _):
        sender = MlflowSender(
            tracking_uri=f"http://ann:QzSecretzQ@127.0.0.1:{port}/QzSecretzQ",
            shown_as="team",
            experiment="e",
            source=Recorded(losses(1, range(1, 2))),
        )
        with pytest.raises(problem, match=f"^team {expected}(: |$)") as raised:
            sender.send(TrackerWork(id=1, experiment_id=7, key="k", seq=0, runs={}))
    assert "QzSecretzQ" not in str(raised.value)


@pytest.mark.parametrize(
    ("gets_credentials", "expected", "problem"),
    [
        (True, {"Bearer QzSecretzQ"}, r"^team refuses the credentials$"),
        (
            False,
            {""},
            r"^team asks for credentials, and none are sent: .* trackers\.yaml, .*; name it",
        ),
    ],
)
def test_only_an_address_of_the_user_gets_credentials_from_variables_and_files(
    gets_credentials: bool, expected: set[str], problem: str, tmp_path: Path, monkeypatch: Any
) -> None:
    from det_jupyter.trackers.mlflow_sender import MlflowSender

    (tmp_path / ".netrc").write_text("default login ann password QzSecretzQ\n")
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow/credentials").write_text(
        "[mlflow]\nmlflow_tracking_username = ann\nmlflow_tracking_password = QzSecretzQ\n"
    )
    for name in OF_USER:
        monkeypatch.setenv(name, "")  # so that it is absent again after the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    if gets_credentials:
        shutil.rmtree(tmp_path / ".mlflow")
        (tmp_path / ".netrc").unlink()
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "QzSecretzQ")
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    order = TrackerOrder(
        group="g",
        tracker={},
        folder="",
        credentials={"MLFLOW_TRACKING_TOKEN": "QzSecretzQ"} if gets_credentials else {},
        gets_credentials=gets_credentials,
    )
    program.take_credentials(order)
    with failing_server(401) as (port, seen):
        sender = MlflowSender(
            tracking_uri=f"http://127.0.0.1:{port}",
            shown_as="team",
            experiment="e",
            source=Recorded(losses(1, range(1, 2))),
            secrets=list(order.credentials.values()),
            gets_credentials=gets_credentials,
        )
        with pytest.raises(Unreachable, match=problem):
            sender.send(TrackerWork(id=1, experiment_id=7, key="k", seq=0, runs={}))
    assert set(seen) == expected


def test_a_run_that_is_not_there_any_more_is_made_again_with_everything(uri: str) -> None:
    source = Recorded(losses(1, range(1, 13)))
    source.kills = {10}
    sender = sender_of(uri, source)
    with suppress(Killed):
        sender.send(source.open_work)
    (run,) = runs_at(uri)
    shutil.rmtree(Path(uri.removeprefix("file://")) / run.info.experiment_id)
    source.kills = {12}
    with suppress(Killed):  # in the middle of what is sent again
        sender.send(source.open_work)
    send(uri, source)
    (run,) = runs_at(uri)
    assert [row[0] for row in history(uri, run, "training/loss")] == list(range(1, 13))
    assert run.data.tags["det_jupyter.trial_id"] == "1"
    assert source.remark == "runs that were not there any more were made again (trial 1)"
    source.items += losses(13, range(13, 15))
    send(uri, source)
    (run,) = runs_at(uri)
    assert [row[0] for row in history(uri, run, "training/loss")] == list(range(1, 15))


def test_a_run_that_a_user_deletes_gets_nothing_until_it_is_restored(uri: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    source = Recorded(losses(1, range(1, 3)))
    sender = sender_of(uri, source)
    sender.send(source.open_work)
    (run,) = runs_at(uri)
    client.delete_run(run.info.run_id)
    source.items += losses(3, range(3, 5)) + losses(5, range(1, 3), trial_id=2)
    sender.send(source.open_work)
    assert source.seq == 6  # it holds up nothing
    expected = "runs that are deleted there get nothing until they are restored (trial 1)"
    assert source.remark == expected
    (other,) = runs_at(uri)
    assert other.data.tags["det_jupyter.trial_id"] == "2"
    source.items += losses(7, range(5, 6))
    send(uri, source)
    assert [row[0] for row in history(uri, run, "training/loss")] == [1, 2]
    client.restore_run(run.info.run_id)
    source.seq = 0  # `det e sync`
    send(uri, source)
    assert [row[0] for row in history(uri, run, "training/loss")] == [1, 2, 3, 4, 5]
    assert (len(runs_at(uri)), source.remark) == (2, "")


def test_a_run_whose_trash_was_emptied_is_not_made_again_before_a_user_asks(uri: str) -> None:
    from mlflow import MlflowClient

    source = Recorded(losses(1, range(1, 3)))
    send(uri, source)
    (run,) = runs_at(uri)
    MlflowClient(uri).delete_run(run.info.run_id)
    source.items += losses(3, range(3, 4))
    send(uri, source)
    (folder,) = Path(uri.removeprefix("file://")).glob(f"*/{run.info.run_id}")
    shutil.rmtree(folder)
    source.items += losses(4, range(4, 5))
    send(uri, source)
    assert runs_at(uri) == []
    source.seq = 0  # `det e sync`
    send(uri, source)
    (run,) = runs_at(uri)
    assert [row[0] for row in history(uri, run, "training/loss")] == [1, 2, 3, 4]


def test_points_that_a_server_has_lost_are_sent_again_when_a_user_asks(uri: str) -> None:
    source = Recorded(losses(1, range(1, 8)))
    send(uri, source)
    (run,) = runs_at(uri)
    folder = Path(uri.removeprefix("file://")) / run.info.experiment_id / run.info.run_id
    (folder / "metrics/training/loss").unlink()  # as after a backup was restored
    source.seq = 0  # `det e sync`
    send(uri, source)
    (run,) = runs_at(uri)
    assert [row[0] for row in history(uri, run, "training/loss")] == list(range(1, 8))
    assert len(history(uri, run, "training/top 5_")) == 7


def test_an_experiment_that_is_deleted_there_is_refused_with_what_to_do(uri: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    number = client.create_experiment("e")
    client.delete_experiment(number)
    with pytest.raises(TrackerRefused, match=f"e is deleted at files; .* restore -x {number}`"):
        send(uri, Recorded(losses(1, range(1, 2))))


def test_labels_that_change_later_are_sent_by_another_process_too(uri: str) -> None:
    source = Recorded(losses(1, range(1, 3)))
    source.labels = ["first"]
    send(uri, source)
    assert runs_at(uri)[0].data.tags["det_jupyter.labels"] == "first"
    source.labels = []
    source.items.append(FeedItem(seq=3, at=1.0, kind="config", experiment_id=7, data={}))
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


@pytest.mark.parametrize(("gets_credentials", "stored"), [(True, ["code"]), (False, [])])
def test_a_server_elsewhere_that_only_a_configuration_names_chooses_no_folder_here(
    uri: str, gets_credentials: bool, stored: list[str]
) -> None:
    from mlflow import MlflowClient

    from det_jupyter.trackers.mlflow_sender import MlflowSender

    source = Recorded(losses(1, range(1, 2)))
    sender = MlflowSender(
        tracking_uri=uri,
        shown_as="files",
        experiment="e",
        source=source,
        gets_credentials=gets_credentials,
    )
    sender._tracking_uri = "http://mlflow.example.org"  # which has named this folder
    sender.send(source.open_work)
    (run,) = runs_at(uri)
    found = MlflowClient(uri).list_artifacts(run.info.run_id)
    assert [each.path for each in found] == stored
    assert run.data.tags["det_jupyter.code"].startswith(
        "among" if gets_credentials else "with the exp"
    )
