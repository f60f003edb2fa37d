"""A real MLflow on SQLite gets everything once, whatever is down or killed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from det_jupyter.contract.messages import ExperimentView, RunReport, TrackerState
from det_jupyter.contract.run.journal import Record, to_line
from tests.integration.master_support import (
    RUN,
    MasterProcess,
    batches,
    first_step,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_client,
    make_request,
    master_process,
    started,
    validation,
)
from tests.integration.trackers.recorded import Recorded, losses
from tests.processes import find, wait_until

pytestmark = [
    pytest.mark.skipif(
        None in (find_spec("mlflow"), find_spec("alembic")),  # Optuna needs alembic, too
        reason="no mlflow with its server",
    ),
    pytest.mark.filterwarnings("default"),  # MLflow's own
]

STEPS = 100


class MlflowServer:
    """`mlflow server` on an SQLite file, without the seven processes that run its jobs.

    Args:
        folder: Where its file is, and its log.
        empty: A copy of an empty database, which the first server makes: [m] half of the time in
            which it starts.
    """

    def __init__(self, folder: Path, empty: Path) -> None:
        self.folder, self._empty = folder, empty
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        database = self.folder / "mlflow.db"
        is_new = not database.exists()
        if is_new and self._empty.exists():
            shutil.copy(self._empty, database)
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", "--workers", "1",
                 "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
                 "--artifacts-destination", str(self.folder / "artifacts"),
                 "--host", "127.0.0.1", "--port", str(self.port)],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "MLFLOW_DISABLE_TELEMETRY": "true",
                    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                },
            )  # fmt: skip
        wait_until(self._answers, "MLflow answers")
        if is_new and not self._empty.exists():
            with closing(sqlite3.connect(database)) as source:
                source.execute("VACUUM INTO ?", (str(self._empty),))

    def _answers(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", trust_env=False).status_code == 200
        return False

    def lose_everything(self) -> None:
        """Start it with an empty database."""
        self.stop()
        for file in self.folder.glob("mlflow.db*"):
            file.unlink()
        self.start()

    def stop(self) -> None:
        """Kill it with all of its workers."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the empty database is once a server has made it."""
    return tmp_path_factory.mktemp("empty") / "mlflow.db"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, empty: Path) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path_factory.mktemp("mlflow"), empty)
    try:
        yield server
    finally:
        server.stop()


class Run:
    """A master as a process, and the only run of a trial, which reports what a test says."""

    def __init__(self, master: MasterProcess, **variables: str) -> None:
        self.master = master
        self._offset = 0
        self._start([], **variables)

    def _start(self, runs: list[RunReport], **variables: str) -> None:
        info = self.master.start(**variables)
        self.http = make_client(info)
        self.agent = self.master.agent(info, runs)

    def submit(self, url: str) -> None:
        trackers = [{"type": "mlflow", "tracking_uri": url, "experiment": "digits"}]
        request = make_request(trackers=trackers, labels=["mine"])
        answer = self.http.post("/experiments", json=request.model_dump(mode="json"))
        assert answer.status_code == 201, answer.text
        self.agent.report(gang_started())
        self.report([started(), first_step()])

    def report(self, records: list[Record]) -> None:
        answer = self.agent.report(make_chunk(records, offset=self._offset))
        assert answer.status_code == 200, answer.text
        self._offset += len("".join(map(to_line, records)))

    def train(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.report([batches(step, [1 / step]), validation(step, 2 / step)])

    def complete(self) -> None:
        self.report(last_words(STEPS))
        self.agent.report(gang_exited())

    def wait_until_the_master_leaves(self) -> None:
        self.http.close()
        assert self.master.wait() == 0

    def start_master_again(self) -> None:
        self._start([])

    def kill_master(self) -> None:
        self.http.close()
        self.master.kill()
        self._start([RunReport(allocation_id=RUN, alive=True)])

    def kill_sender(self) -> None:
        if (process := find(self.master.home, "det_jupyter.trackers")) is not None:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def view(self) -> ExperimentView:
        return ExperimentView.model_validate(self.http.get("/experiments/1").json())

    def tracker(self) -> TrackerState:
        return self.view().trackers[0]

    def sync(self) -> None:
        """Have everything sent now, and wait until it is."""
        self.http.post("/experiments/1/trackers", json={}).raise_for_status()
        wait_until(lambda: self.tracker().is_current, "it is caught up")


@contextmanager
def running(tmp_path: Path, url: str, **variables: str) -> Iterator[Run]:
    with master_process(tmp_path) as master:
        run = Run(master, **variables)
        run.submit(url)
        yield run
        run.http.close()


def runs_at(server: MlflowServer) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(server.url)
    experiment = client.get_experiment_by_name("digits")
    return [] if experiment is None else list(client.search_runs([experiment.experiment_id]))


def steps_at(server: MlflowServer, key: str) -> list[int]:
    from mlflow import MlflowClient

    (run,) = runs_at(server)
    return [row.step for row in MlflowClient(server.url).get_metric_history(run.info.run_id, key)]


def test_nothing_is_lost_or_doubled_when_server_sender_and_master_are_killed(
    server: MlflowServer, tmp_path: Path
) -> None:
    with running(tmp_path, server.url) as run:
        run.train(1, 20)
        wait_until(lambda: run.tracker().problem, "the problem is shown")
        state = run.tracker()
        assert state.problem == f"{server.url} cannot be reached"
        assert state.behind == 40
        server.start()
        run.sync()
        for first in range(21, 61, 10):
            run.train(first, first + 4)
            run.kill_sender()
            run.train(first + 5, first + 9)
        run.kill_master()
        run.train(61, 80)
        server.stop()
        run.train(81, STEPS)
        run.complete()
        server.start()
        run.sync()
    everything = list(range(1, STEPS + 1))
    assert steps_at(server, "batches/loss") == everything
    assert steps_at(server, "validation/error") == everything
    (mlflow_run,) = runs_at(server)
    assert mlflow_run.info.status == "FINISHED"
    assert mlflow_run.data.params == {"global_batch_size": "8"}
    assert mlflow_run.data.tags["det_jupyter.labels"] == "mine"
    assert mlflow_run.data.tags["det_jupyter.state"] == "COMPLETED"


def test_an_idle_master_leaves_while_the_tracker_is_down_and_the_next_one_sends_the_rest(
    server: MlflowServer, tmp_path: Path
) -> None:
    with running(tmp_path, server.url, DET_JUPYTER_IDLE_HOURS=str(3 / 3600)) as run:
        run.train(1, STEPS)
        run.complete()
        run.wait_until_the_master_leaves()
        assert find(tmp_path, "det_jupyter.trackers") is None
        server.start()
        run.start_master_again()
        wait_until(lambda: run.tracker().is_current, "it is caught up")
    assert steps_at(server, "batches/loss") == list(range(1, STEPS + 1))


def test_runs_that_a_server_has_lost_are_made_again_and_those_in_its_trash_are_left(
    server: MlflowServer,
) -> None:
    from mlflow import MlflowClient

    from det_jupyter.trackers.mlflow_sender import MlflowSender

    def send() -> None:
        sender.send(source.open_work)

    def steps() -> list[int]:
        return steps_at(server, "training/loss")

    server.start()
    source = Recorded(losses(1, range(1, 13)))
    sender = MlflowSender(
        tracking_uri=server.url, shown_as="team", experiment="digits", source=source
    )
    send()
    assert steps() == list(range(1, 13))
    (run,) = runs_at(server)
    client = MlflowClient(server.url)
    client.delete_run(run.info.run_id)
    source.items += losses(13, range(13, 15))
    send()
    assert source.remark.startswith("runs that are deleted there get nothing")
    client.restore_run(run.info.run_id)
    assert steps() == list(range(1, 13))
    source.items += losses(15, range(15, 17))
    send()
    assert (steps(), source.remark) == (list(range(1, 17)), "")
    server.lose_everything()
    client.create_experiment("it has the number that digits had")
    source.items += losses(17, range(17, 19))
    send()
    assert steps() == list(range(1, 19))
    assert source.remark == "runs that were not there any more were made again (trial 1)"
    send()
    assert steps() == list(range(1, 19))
