"""Scripts that are started by hand, with a real master, and without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from det_jupyter.client.imports.unmanaged import take_in
from det_jupyter.contract.host.paths import data_dir
from det_jupyter.contract.messages import ExperimentView, LogQuery, State
from det_jupyter.contract.run.unmanaged import offline_runs
from tests.forked_python import start_python
from tests.processes import DetHome, wait_until

pytestmark = pytest.mark.e2e

SCRIPT = """
import os, sys, time
from det_jupyter import core

with core.init(name="by hand", hparams={"lr": 0.5}) as context:
    first = context.info.plan.steps_completed
    for step in range(first, first + 3):
        context.train.report_training_metrics(step + 1, {"loss": 1 / (step + 1)})
    with context.checkpoint.store_path({"steps_completed": step + 1}) as (folder, uuid):
        (folder / "state").write_text(str(step + 1))
    context.train.report_validation_metrics(step + 1, {"loss": 1 / (step + 1)})
    print("begun after", first, flush=True)
    if "wait" in sys.argv:
        time.sleep(600)
"""


def kill_in_its_block(folder: Path, **variables: str) -> None:
    """Start the script, and kill it while it waits in its block."""
    outputs = folder / "stdout", folder / "stderr"
    environment = os.environ | variables
    script = start_python(
        "train.py", "wait", folder=folder, outputs=outputs, environment=environment
    )
    wait_until(outputs[0].read_text, "it waits")
    script.kill()
    script.wait()


def only(home: DetHome) -> ExperimentView:
    client = home.client()
    (found,) = [row for row in client.experiments() if row.name == "by hand"]
    return client.experiment(found.id)


def test_a_script_is_an_experiment_that_goes_on_under_its_name(
    home: DetHome, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    first = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
    )
    assert first.stdout == "begun after 0\n"
    view = only(home)
    assert (view.state, view.labels, view.trials[0].best_metric) == (
        State.COMPLETED, ["unmanaged"], 1 / 3,
    )  # fmt: skip

    kill_in_its_block(tmp_path)  # its follower reports the end
    failed = wait_until(lambda: (v := only(home)).state is State.ERROR and v, "it has failed")
    assert isinstance(failed, ExperimentView)
    assert "has not left the block of core.init" in failed.message

    kill_in_its_block(tmp_path, DET_JUPYTER_OFFLINE="1")
    folder = str(offline_runs(data_dir()))
    for _ in range(2):  # the second time, all is there
        (taken,) = take_in(folder)
        assert not taken.problem
    assert taken.experiment_id is not None
    client = home.client()
    assert client.experiment(view.id).trials[0].steps_completed == 6
    other = client.experiment(taken.experiment_id)  # as it did not go on from there
    assert (other.name, other.trials[0].steps_completed) == ("by hand", 3)
    lines = [
        [line.text for line in client.logs(each.trials[0].id, LogQuery()).lines]
        for each in (view, other)
    ]
    assert lines == [["begun after 0", "begun after 3"], ["begun after 0"]]
