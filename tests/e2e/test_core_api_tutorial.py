"""The tutorial of the Core API: each stage on two slots, straight and with a pause."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import State
from tests.notebook_kernel import run_notebook
from tests.processes import DetHome
from tests.scripts import pause, submit_file, wait_for_line
from tests.trials import Gate

pytestmark = pytest.mark.e2e

STAGES = ("0_start", "1_metrics", "2_checkpoints", "3_hpsearch", "4_distributed")
STEP_S = 0.002


def submit(client: Client, folder: Path, stage: str) -> Experiment:
    changes: dict[str, Any] = {
        "resources": {"slots_per_trial": 2},
        "environment": {"environment_variables": [f"STEP_S={STEP_S}"]},
        "reproducibility": {"experiment_seed": 5},
    }
    if stage == "3_hpsearch":  # one after the other: who is stopped depends on who is first
        changes["searcher"] = {"max_trials": 2, "max_concurrent_trials": 1}
    return submit_file(client, folder / f"{stage}.yaml", **changes)


@pytest.fixture(scope="module")
def straight(home: DetHome, examples: Path) -> dict[str, Experiment]:
    """Return each stage but the last, submitted to run straight through."""
    client = home.client()
    return {stage: submit(client, examples / "core_api", stage) for stage in STAGES[:-1]}


@pytest.fixture(scope="module")
def notebook_text(home: DetHome, examples: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what the notebook shows. It ends with the last stage, straight through."""
    folder, gate = tmp_path_factory.mktemp("notebook"), Gate(tmp_path_factory.mktemp("gate"), 45)
    shutil.copytree(examples / "core_api", folder / "core_api")

    def wait_for_pause(source: str) -> str:
        line, goes_on = "        time.sleep(0.02)", "paused.activate()"
        if line in source:
            source = gate.source(source, before=line, step="step")
        return source.replace(goes_on, f"open({str(gate.file)!r}, 'w').close()\n{goes_on}")

    return run_notebook(examples / "core_api.ipynb", folder, wait_for_pause)[1]


@pytest.fixture(scope="module")
def launched(home: DetHome, notebook_text: str) -> Experiment:
    """Return the notebook's run of the last stage."""
    client = home.client()
    (view,) = [v for v in client.experiments() if v.name == "a launcher of its own"]
    return Experiment(client, view.id)


def outcome(client: Client, experiment: Experiment) -> dict[str, Any]:
    """Return what the trials have reported and saved, without ids and times."""
    view = experiment.view
    places = {trial.id: trial.index for trial in view.trials}
    curves = {
        (places[curve.trial_id], curve.group, curve.name): (curve.steps, curve.values)
        for curve in client.curves(experiment.id)
    }
    states = {}
    for checkpoint in experiment.checkpoints():  # of each trial, the last one: others are deleted
        states[places[checkpoint.view.trial_id]] = checkpoint
    last = {place: json.loads((c.path / "state.json").read_text()) for place, c in states.items()}
    for place, state in last.items():
        assert state.pop("trial_id") == states[place].view.trial_id
    return {"curves": curves, "last": last, "hparams": [t.hparams for t in view.trials]}


@pytest.mark.parametrize(
    "stage", [*STAGES[1:-1], pytest.param(STAGES[-1], marks=pytest.mark.long)]
)
def test_a_stage_with_a_pause_ends_as_one_without(
    client: Client,
    examples: Path,
    straight: dict[str, Experiment],
    tmp_path: Path,
    stage: str,
    request: pytest.FixtureRequest,
) -> None:
    other = straight.get(stage) or request.getfixturevalue("launched")
    folder, gate = tmp_path / "core_api", Gate(tmp_path, 25)
    shutil.copytree(examples / "core_api", folder)
    script = folder / f"{stage}.py"
    line = "        time.sleep(STEP_S)"
    script.write_text(gate.source(script.read_text(), before=line, step="step"))
    paused = submit(client, folder, stage)
    wait_for_line(paused, "x is now")
    # Stage 1, as stage 0, does not ask whether to leave: it goes on to its end, as on a cluster.
    asks = stage != "1_metrics"
    assert pause(paused) is (State.PAUSED if asks else State.COMPLETED)
    gate.open()
    if asks:
        paused.activate()
    assert paused.wait() is State.COMPLETED
    assert other.wait() is State.COMPLETED
    assert outcome(client, paused) == outcome(client, other)


def test_the_metrics_are_those_of_all_ranks(
    straight: dict[str, Experiment], launched: Experiment
) -> None:
    assert straight["0_start"].wait() is State.COMPLETED
    for stage in ("1_metrics", "2_checkpoints"):
        straight[stage].wait()
        assert straight[stage].view.trials[0].best_metric == 100
    assert launched.view.trials[0].best_metric == 200
    lines = launched.trials[0].logs(search="x is now 200")
    assert [line.rank for line in lines] == [0]
    assert lines[0].text.startswith("INFO: [")


def test_a_fork_begins_with_the_others_x_and_all_of_its_own_steps(
    client: Client, examples: Path, straight: dict[str, Experiment]
) -> None:
    first = straight["2_checkpoints"]
    first.wait()
    file = examples / "core_api" / "2_checkpoints.yaml"
    environment = {"environment_variables": [f"STEP_S={STEP_S}"]}
    fork = submit_file(
        client, file, environment=environment, searcher={"source_trial_id": first.trial.id}
    )
    assert fork.wait() is State.COMPLETED
    assert fork.view.trials[0].best_metric == 200
    assert fork.view.trials[0].steps_completed == 100


def test_the_notebook_shows_the_same(notebook_text: str) -> None:
    assert "x is now 100" in notebook_text
    assert re.search(r"paused after [2-9]0 steps; x is 200", notebook_text)
    assert "'x is 200'" in notebook_text
