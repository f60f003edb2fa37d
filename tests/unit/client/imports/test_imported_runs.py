"""Runs of other tools, as they are found at a path."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace as Of
from typing import Any

import pytest

from det_jupyter.client.imports import event_files, imported_runs
from det_jupyter.client.imports.imported_runs import find_runs
from det_jupyter.config.tracker_section import MLFLOW_CREDENTIALS
from det_jupyter.errors import ConfigError, DetError
from tests.unit.client.imports.test_tfevents import frame, header, hparams_event, record
from tests.unit.client.imports.test_tfevents import write as write_events

FINAL = {"value": [{"tag": "hparam/final", "simple_value": 1.0}]}


def write(folder: Path, *values: float, name: str = "events.out.tfevents.1.here") -> Path:
    """Write an event file with a value of `loss` for each step from 1 on."""
    folder.mkdir(parents=True, exist_ok=True)
    events = [frame(record(step, "loss", value)) for step, value in enumerate(values, 1)]
    (folder / name).write_bytes(b"".join(events))
    return folder / name


def test_each_folder_with_event_files_is_a_run(tmp_path: Path) -> None:
    write(tmp_path / "logs", 0.5)
    write(tmp_path / "logs" / "b" / "version_0", 0.5, 0.25)
    write(tmp_path / "logs" / "a", 0.75)
    (runs,) = find_runs(str(tmp_path / "logs"))
    assert [(run.name, len(run.scalars)) for run in runs.runs] == [
        ("logs", 1), ("a", 1), ("b/version_0", 2),
    ]  # fmt: skip
    assert (runs.name, runs.source, runs.remarks) == ("logs", str(tmp_path / "logs"), [])


def test_files_of_a_run_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path, 0.25, name="events.out.tfevents.0000000002.here")
    write(tmp_path, 0.5, name="events.out.tfevents.0000000001.here")
    (runs,) = find_runs(str(tmp_path))
    assert [scalar.value for scalar in runs.runs[0].scalars] == [0.5, 0.25]


def test_one_file_is_a_run(tmp_path: Path) -> None:
    file = write(tmp_path / "one", 0.5)
    write(tmp_path / "one", 0.25, name="events.out.tfevents.2.here")
    (runs,) = find_runs(str(file))
    assert [(run.name, len(run.scalars)) for run in runs.runs] == [("one", 1)]


def test_a_broken_file_is_named_with_what_was_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a", 0.5, 0.25)
    file.write_bytes(file.read_bytes()[:-1])
    (runs,) = find_runs(str(tmp_path))
    (remark,) = runs.remarks
    assert remark.startswith(f"{file}: the last event is not whole at byte ")
    assert runs.runs[0].notices == [remark.removeprefix(f"{file.parent}/")]


def test_hyperparameters_in_a_folder_of_add_hparams_are_those_of_the_run_above(
    tmp_path: Path,
) -> None:
    write(tmp_path / "run", 0.5)
    for name in ("1795876505.0698977", "best"):
        file = write(tmp_path / "run" / name, 0.25)
        write_events(file, hparams_event(lr=0.5), {"summary": FINAL})
    (runs,) = find_runs(str(tmp_path))
    assert [(run.name, run.hparams) for run in runs.runs] == [
        ("run", {"lr": 0.5}), ("run/best", {"lr": 0.5}),
    ]  # fmt: skip
    assert [scalar.tag for scalar in runs.runs[0].scalars] == ["loss"]


def test_runs_without_scalars_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a", 0.5)
    write(tmp_path / "b")
    (runs,) = find_runs(str(tmp_path))
    assert runs.remarks == ["without scalars, so not imported: b"]
    with pytest.raises(ConfigError, match="its event files have no scalars"):
        find_runs(str(tmp_path / "b"))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        find_runs(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="there are no event files of TensorBoard"):
        find_runs(str(tmp_path))
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match="expected an event file of TensorBoard"):
        find_runs(str(tmp_path / "notes.txt"))


def test_tensorboard_that_is_not_installed_has_its_line_for_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 0.5)
    monkeypatch.setattr(event_files, "find_spec", lambda name: None)
    with pytest.raises(DetError, match=r"pip install det-jupyter\[tensorboard\]"):
        find_runs(str(tmp_path))


def test_mlflow_that_is_not_installed_has_its_line_for_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported_runs, "find_spec", lambda name: None)
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0 and so on")
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("")
    for given in ("http://tracking:5000", str(tmp_path / "mlflow.db"), str(tmp_path / "mlruns")):
        with pytest.raises(DetError, match="pip install mlflow"):
            find_runs(given)


def test_an_address_that_has_a_secret_is_named_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported_runs, "find_spec", lambda name: None)
    for address in ("https://ann:QzSecretzQ@host:5000", "https://host:5000/QzSecretzQ"):
        with pytest.raises(DetError, match=r"^https://host:5000/\*{8}: "):
            find_runs(address)
    with pytest.raises(DetError, match=r"^sqlite:///mlflow.db: "):
        find_runs("sqlite:///mlflow.db")
    with pytest.raises(DetError, match=r"^mysql\+pymysql://\*{8}: "):
        find_runs("mysql+pymysql://ann:QzSecretzQ@host/db")


@pytest.fixture
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Have a home folder and variables without credentials, and no mlflow."""
    monkeypatch.setattr(imported_runs, "find_spec", lambda name: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in MLFLOW_CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("named", [*MLFLOW_CREDENTIALS, "MLFLOW_TRACKING_AUTH", "file", "address"])
def test_credentials_that_could_be_read_on_the_way_are_not_sent(
    tmp_path: Path, no_credentials: pytest.MonkeyPatch, named: str
) -> None:
    if named == "file":
        (tmp_path / ".mlflow").mkdir()
        (tmp_path / ".mlflow" / "credentials").write_text("[mlflow]")
    elif named != "address":
        no_credentials.setenv(named, "QzSecretzQ")
    user = "ann:QzSecretzQ@" if named == "address" else ""
    with pytest.raises(DetError, match=r"read on the way; expected https://") as caught:
        find_runs(f"http://{user}tracking:5000")
    assert "QzSecretzQ" not in str(caught.value)
    for allowed in (f"https://{user}tracking:5000", f"http://{user}localhost:5000"):
        with pytest.raises(DetError, match="pip install mlflow"):
            find_runs(allowed)


def test_passwords_in_netrc_are_not_found_for_an_address_in_the_clear(
    no_credentials: pytest.MonkeyPatch,
) -> None:
    no_credentials.setenv("NETRC", "mine")
    no_credentials.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    before = {**os.environ}
    for uri, file in (("http://tracking:5000", os.devnull), ("https://tracking:5000", "mine")):
        with imported_runs._mlflow_variables(uri):
            assert os.environ["NETRC"] == file
            assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "1"
        assert os.environ == before


class Page(list[Any]):
    """A page of results, as MLflow's client returns it."""

    token: str | None = None


class Tracking:
    """Answers as MLflow's client does, a run a page."""

    def __init__(self, *runs: Any) -> None:
        self._runs = runs

    def search_runs(self, ids: list[str], page_token: str | None) -> Page:
        assert ids == ["7"]
        at = int(page_token or 0)
        page = Page(self._runs[at : at + 1])
        page.token = str(at + 1) if at + 1 < len(self._runs) else None
        return page

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        return [Of(step=step, value=1 / step, timestamp=1000 * step) for step in (1, 2)]


def mlflow_run(
    name: str, status: str, metrics: dict[str, float], start: int = 500, end: int | None = None
) -> Any:
    info = Of(
        run_id=f"{name}0123456789", run_name=name, status=status, start_time=start, end_time=end
    )
    params = {"lr": "0.1", "layers": "3", "bn": "True", "opt": "sgd", "nan": "NaN"}
    return Of(info=info, data=Of(params=params, metrics=metrics))


def test_runs_of_mlflow_have_their_metrics_parameters_and_states() -> None:
    tracking = Tracking(
        mlflow_run("a", "FINISHED", {"loss": 0.5, "system/cpu": 1.0}),
        mlflow_run("b", "FAILED", {"loss": 0.5}),
        mlflow_run("c", "RUNNING", {"loss": 0.5}),
        mlflow_run("d", "FINISHED", {}),
    )
    experiment = Of(name="digits", experiment_id="7")
    found = imported_runs._run_set(tracking, experiment, "http://here", "http://here")
    first, second, third = found.runs
    assert (first.name, first.started_at, first.ended_at) == ("a a0123456", 0.5, None)
    assert [tuple(each) for each in first.scalars] == [
        ("loss", 1, 1.0, 1.0),
        ("loss", 2, 0.5, 2.0),
    ]
    assert first.hparams == {"lr": 0.1, "layers": 3, "bn": True, "opt": "sgd", "nan": "NaN"}
    assert [run.state for run in found.runs] == ["COMPLETED", "ERROR", "CANCELED"]
    assert third.notices == ["the run was RUNNING when it was imported"]
    assert second.notices == []
    assert found.remarks == ["digits: 1 run without metrics left out"]


@pytest.mark.parametrize("text", ["[" * 6000, "1" + 400 * "0"])
def test_a_parameter_that_is_no_number_of_python_is_text(text: str) -> None:
    assert imported_runs._value_of(text) == text


def test_runs_of_mlflow_come_in_the_order_of_their_beginning() -> None:
    tracking = Tracking(
        mlflow_run("late", "FINISHED", {"loss": 0.5}, 9_000, 9_500),
        mlflow_run("b", "FINISHED", {"loss": 0.5}, 1_000, 2_000),
        mlflow_run("a", "FINISHED", {"loss": 0.5}, 1_000, 1_500),
    )
    experiment = Of(name="digits", experiment_id="7")
    found = imported_runs._run_set(tracking, experiment, "http://here", "http://here").runs
    assert [(run.name.partition(" ")[0], run.started_at, run.ended_at) for run in found] == [
        ("a", 1.0, 1.5), ("b", 1.0, 2.0), ("late", 9.0, 9.5),
    ]  # fmt: skip


def test_pipes_and_devices_that_are_named_as_event_files_are_remarks(tmp_path: Path) -> None:
    write(tmp_path / "a", 1.0)
    os.mkfifo(tmp_path / "a" / "events.out.tfevents.2.pipe")
    (tmp_path / "a" / "events.out.tfevents.3.zero").symlink_to("/dev/zero")
    (found,) = find_runs(str(tmp_path))
    assert [run.name for run in found.runs] == ["a"]
    assert [each.rpartition("/")[2] for each in found.remarks] == [
        "events.out.tfevents.2.pipe cannot be read: it is no regular file",
        "events.out.tfevents.3.zero cannot be read: it is no regular file",
    ]


def test_pipes_and_devices_in_a_folder_of_mlflow_are_refused_before_it_opens_them(
    tmp_path: Path,
) -> None:
    metrics = tmp_path / "0" / "run" / "metrics"
    metrics.mkdir(parents=True)
    (tmp_path / "0" / "meta.yaml").write_text("name: digits")
    os.mkfifo(metrics / "loss")
    (tmp_path / "0" / "run" / "meta.yaml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError) as caught:
        find_runs(str(tmp_path))
    assert [str(each).removeprefix(f"{tmp_path}/0/run/") for each in caught.value.problems] == [
        "meta.yaml: it is no regular file; move it away and import again",
        "metrics/loss: it is no regular file; move it away and import again",
    ]


def test_an_event_that_claims_to_be_huge_takes_no_memory(tmp_path: Path) -> None:
    file = write(tmp_path, 1.0)
    with file.open("ab") as opened:
        opened.write(header(2**40))
    (found,) = find_runs(str(file))
    (remark,) = found.remarks
    assert "the last event is not whole at byte" in remark
