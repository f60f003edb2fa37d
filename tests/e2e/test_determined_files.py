"""Files as people wrote them for a cluster, unmodified: folders of tests/fixtures/determined."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import det_jupyter
from det_jupyter.client import Client, Experiment
from det_jupyter.client.imports.determined.master import DeterminedMaster
from det_jupyter.client.imports.determined.storing import import_determined
from det_jupyter.contract.messages import State
from det_jupyter.errors import DetError, NotFound
from tests.determined_checkpoints import CODE, write_checkpoint
from tests.determined_master import stand_in
from tests.determined_world import KEPT, ROWS, packed
from tests.fork_source import COMPAT, with_compat
from tests.forks import PYTHON_PATH, torch_source
from tests.modules import modules_as_before
from tests.processes import DetHome, det_home, wait_until
from tests.scripts import pause, submit_file, wait_for_line
from tests.trials import Gate

pytestmark = pytest.mark.e2e

FILES = Path(__file__).parents[1] / "fixtures" / "determined"
FOLDERS = sorted(folder.name for folder in FILES.iterdir() if folder.is_dir())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """Return a private det_jupyter whose ranks can import `determined`."""
    torch_source()  # other modules use it too: without this module's PYTHONPATH
    path = tmp_path_factory.mktemp("home")
    variables = {"DET_JUPYTER_CPU_SLOTS": "4", "PYTHONPATH": with_compat(PYTHON_PATH)}
    with det_home(path, variables) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def _names_of_determined(home: DetHome) -> Iterator[None]:
    """Import `determined` here, too; its client is one of this module's master."""
    with modules_as_before():
        sys.path.insert(0, COMPAT)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says what it is
            from determined.experimental.client import _determined
        _determined.client.cache_clear()
        yield
        if _determined.client.cache_info().currsize:
            _determined.client().session.close()
            _determined.client.cache_clear()


@pytest.fixture(scope="module")
def submitted(home: DetHome) -> dict[str, Experiment]:
    """Return the experiment of each folder: all train at the same time, as slots get free."""
    client = home.client()
    return {name: submit_file(client, next((FILES / name).glob("*.yaml"))) for name in FOLDERS}


@pytest.fixture
def ended(submitted: dict[str, Experiment], folder: str) -> Experiment:
    """Return the experiment of a folder, when it has completed."""
    assert submitted[folder].wait() is State.COMPLETED
    return submitted[folder]


def validations(client: Client, experiment: Experiment) -> dict[str, float | None]:
    """Return the last value of each metric of the validations."""
    curves = client.curves(experiment.id)
    return {curve.name: curve.values[-1] for curve in curves if curve.group == "validation"}


def value(client: Client, experiment: Experiment, metric: str) -> float:
    """Return the last value of a metric of the validations."""
    found = validations(client, experiment)[metric]
    assert found is not None
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_runs_as_it_stands(ended: Experiment, folder: str) -> None:
    assert ended.view.trials[0].state is State.COMPLETED


@pytest.mark.parametrize(
    ("folder", "metric", "low", "high"),
    [
        ("core_loop", "x", 100, 100),
        ("ddp_script", "loss", 0, 0.1),
        ("deepspeed_context", "ranks", 2, 2),
        ("digits_trial", "accuracy", 0.6, 1),
        ("hf_callback", "eval_loss", 1 / 20, 1 / 20),
        ("own_launcher", "x", 60, 60),
        ("reducers", "records_seen", 96, 96),
        ("trainer_script", "validation_loss", 0, 0.1),
    ],
)
def test_it_comes_out_as_it_should(
    client: Client, ended: Experiment, folder: str, metric: str, low: float, high: float
) -> None:
    assert low <= value(client, ended, metric) <= high


@pytest.mark.parametrize("folder", ["reducers"])
def test_a_reducers_metrics_and_a_writers_files_are_there(
    client: Client, ended: Experiment, home: DetHome
) -> None:
    assert {"recall_0", "recall_1", "recall_2"} <= validations(client, ended).keys()
    written = (home.path / "data" / "tensorboard" / str(ended.id)).rglob("events.out.tfevents.*")
    assert any(file.stat().st_size > 100 for file in written)


@pytest.mark.parametrize("folder", ["trainer_script"])
def test_a_fork_of_a_script_begins_with_the_others_weights(
    client: Client, ended: Experiment, folder: str
) -> None:
    file = FILES / folder / "const.yaml"
    fork = submit_file(client, file, searcher={"source_trial_id": ended.trial.id})
    assert fork.wait() is State.COMPLETED
    assert fork.trial.view.steps_completed == ended.trial.view.steps_completed == 32
    first, last = (
        next(c for c in client.curves(e.id) if c.group == "validation") for e in (fork, ended)
    )
    assert first.steps[0] == 8
    assert first.values[0] is not None
    assert last.values[0] is not None
    assert first.values[0] < last.values[0] / 2


@pytest.mark.parametrize("folder", ["constraints"])
def test_hyperparameters_that_cannot_work_end_their_trial_only(ended: Experiment) -> None:
    trained = {trial.hparams["width"]: trial.steps_completed for trial in ended.view.trials}
    assert trained == {1: 8, 2: 8, 3: 0}


@pytest.mark.parametrize("folder", ["hf_callback", "core_loop"])
def test_a_pause_changes_nothing(
    client: Client, ended: Experiment, folder: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    shutil.copytree(FILES / folder, work, ignore=shutil.ignore_patterns("__pycache__"))
    name, before, step, batch = _HELD[folder]
    gate, text = Gate(tmp_path, batch), (work / name).read_text()
    saying = text.replace(before, f"{before}; print('begun')")
    (work / name).write_text(gate.source(saying, before=before, step=step))
    paused = submit_file(client, work / "const.yaml")
    wait_for_line(paused, "begun")
    assert pause(paused) is State.PAUSED
    temporary = set(Path(tempfile.gettempdir()).glob("*resume*"))
    gate.open()
    paused.activate()
    assert paused.wait() is State.COMPLETED
    assert set(Path(tempfile.gettempdir()).glob("*resume*")) == temporary  # copies go with it
    assert len({line.run for line in paused.trial.logs(search="begun")}) == 2
    assert validations(client, paused) == validations(client, ended)


# By folder: a file, a line of it before which the trial waits, and the batch.
_HELD = {
    "core_loop": ("train.py", "            batch += 1", "batch", 15),
    "hf_callback": (
        "transformers.py",
        "            self.state.global_step += 1",
        "self.state.global_step",
        5,
    ),
}


@pytest.mark.parametrize("folder", ["digits_trial"])
def test_the_client_finds_checkpoints_and_loads_them(ended: Experiment, tmp_path: Path) -> None:
    from determined.experimental import Determined, client
    from determined.pytorch import load_trial_from_checkpoint_path

    client.login(master="https://cluster:8080", user="me", password="")
    found = client.get_experiment(ended.id)
    assert found.wait() == client.ExperimentState.COMPLETED
    trial = found.await_first_trial()
    assert trial.id == found.list_trials()[0].id
    reports = list(trial.iter_metrics("validation"))
    assert [report.steps_completed for report in reports][-1] == 24
    assert "accuracy" in reports[-1].metrics
    assert trial.summary_metrics["validation_metrics"]["accuracy"]["count"] == len(reports)
    latest = trial.select_checkpoint(latest=True)
    best = found.top_checkpoint()
    assert best.uuid == trial.select_checkpoint(best=True).uuid
    by_accuracy = found.top_checkpoint(sort_by="accuracy", smaller_is_better=False)
    assert by_accuracy.uuid in {c.uuid for c in found.list_checkpoints()}
    again = Determined().get_checkpoint(latest.uuid)
    assert again.training.experiment_id == ended.id
    path = again.download(str(tmp_path / "copy"))
    assert again.metadata["steps_completed"] == 24
    loaded = load_trial_from_checkpoint_path(path)
    assert type(loaded).__name__ == "DigitsTrial"
    assert [e.id for e in client.list_experiments(name="DigitsTrial")] == [ended.id]


def test_the_client_submits_files_and_dicts(submitted: dict[str, Experiment]) -> None:
    from determined.experimental import client

    made = client.create_experiment(FILES / "core_loop" / "const.yaml", FILES / "core_loop")
    assert made.wait() == client.ExperimentState.COMPLETED
    config: dict[str, Any] = dict(made.config) | {"name": "again"}
    config["hyperparameters"] = {"increment_by": 3}
    again = client.create_experiment(config, str(FILES / "core_loop"))
    assert again.wait() == client.ExperimentState.COMPLETED
    assert again.list_trials()[0].hparams == {"increment_by": 3}
    last = again.list_checkpoints()[0]
    (last.path / "extra.txt").write_text("1")
    last.remove_files(["*.txt"])
    wait_until(
        lambda: (
            [c.state for c in again.list_checkpoints() if c.uuid == last.uuid]
            == ["PARTIALLY_DELETED"]
        ),
        "a file is deleted",
    )
    assert "extra.txt" not in last.resources
    with pytest.raises(NotFound, match=r"matches \*\.txt; it has"):
        last.remove_files(["*.txt"])
    with pytest.raises(DetError, match=r"without `\.\.` and not absolute"):
        last.remove_files(["../*"])
    last.delete()
    wait_until(
        lambda: last.uuid not in {c.uuid for c in again.list_checkpoints()}, "it is deleted"
    )
    with pytest.raises(AttributeError, match=r"no Checkpoint\.add_metadata.*from-determined"):
        print(last.add_metadata)
    again.set_labels(["one", "two"])
    again.set_labels(["two", "three"])
    assert sorted(again.labels) == ["three", "two"]


@pytest.mark.parametrize("folder", ["trainer_script"])
def test_a_script_runs_by_itself_too(folder: str, tmp_path: Path) -> None:
    for file in (FILES / folder).iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    variables = {"PATH": "/usr/bin:/bin", "DET_JUPYTER_HOME": str(tmp_path)}
    out, err = tmp_path / "out", tmp_path / "err"
    script = torch_source().start(
        "runpy:run_path",
        *("train.py", None, "__main__"),
        folder=tmp_path,
        environment=variables | {"PYTHONPATH": with_compat(PYTHON_PATH)},
        outputs=(out, err),
    )
    assert script.wait() == 0, err.read_text()
    assert "validation_loss" in out.read_text() + err.read_text()


def test_an_imported_experiment_is_trained_further(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = CODE.replace("det_jupyter.pytorch", "determined.pytorch")
    for row in ROWS["experiments"]:
        monkeypatch.setitem(row, "model_definition", packed({"model_def.py": code}))
    model = nn.Linear(3, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    write_checkpoint(
        tmp_path / "checkpoints" / KEPT, [model], [sgd], steps_completed=8, code=code,
        hparams={"width": 3, "lr": 0.1, "global_batch_size": 4},
    )  # fmt: skip
    monkeypatch.delenv("DET_MASTER", raising=False)
    with (
        stand_in(str(tmp_path)) as master,
        DeterminedMaster(master.url, lambda _address: ("ann", "secret")) as source,
    ):
        found = import_determined(client, source)
    experiment = Experiment(client, found.experiments[0])
    experiment.continue_({"searcher.max_length.batches": 12})
    assert experiment.wait() is State.COMPLETED
    assert experiment.trial.view.steps_completed == 12
    lines = [line.text for line in experiment.trial.logs()]
    assert lines[0] == "begins"
    assert any("batch 8 with the state that Determined saved" in line for line in lines)
    loaded = max(experiment.checkpoints(), key=lambda each: each.steps_completed).load()
    assert not loaded.model.weight.equal(model.weight)
    compared = str(det_jupyter.compare(*found.experiments))
    assert "line" in compared
    assert "lines" in compared


def test_the_real_package_is_not_here() -> None:
    spec = importlib.util.find_spec("determined")
    assert spec is not None
    assert COMPAT in str(spec.origin)
