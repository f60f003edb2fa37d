"""`det_jupyter.submit`: experiments from scripts, loops and computed configurations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from tests.forked_python import run_python
from tests.notebook_kernel import notebook
from tests.processes import DetHome
from tests.trials import TRIAL_SOURCE

pytestmark = pytest.mark.e2e

CONFIG = """
config = {
    "hyperparameters": {"global_batch_size": 16, "pause_s": 0},
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 4}},
}
"""
SCRIPT = f"""
import numpy
from pathlib import Path
import det_jupyter
import shop
{TRIAL_SOURCE}
{CONFIG}
class MainTrial(SmallTrial):
    lr = 1

def make(width):
    class Made(SmallTrial):
        chosen = width
        def evaluate_batch(self, batch, batch_idx):
            return {{"error": self.chosen * MainTrial.lr}}
    return Made

ended = []
found = [
    det_jupyter.submit(MainTrial, config, slots=2, name="first"),
    det_jupyter.submit(make(7), config, **{{"hyperparameters.global_batch_size": numpy.int64(8)}}),
    det_jupyter.submit(shop.ShopTrial, Path("trial.yaml")),
]
for experiment in found:
    experiment.on_end(lambda ended_one: ended.append(ended_one.id))
    print(experiment.id, experiment.wait())
import time
while len(ended) < 3:
    time.sleep(0.01)
"""


def test_a_script_submits_its_own_classes_made_ones_and_imported_ones(
    client: Client, home: DetHome, tmp_path: Path
) -> None:
    yaml = "searcher: {name: single, metric: error, max_length: {batches: 4}}\n"
    yaml += "hyperparameters: {global_batch_size: 16, pause_s: 0}\n"
    (tmp_path / "trial.yaml").write_text(yaml)
    (tmp_path / "shop.py").write_text(TRIAL_SOURCE.replace("SmallTrial", "ShopTrial"))
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ids = [int(line.split()[0]) for line in done.stdout.splitlines() if "COMPLETED" in line]
    assert "shop.py" in Experiment(client, ids[2]).code()
    first, made, shop = (Experiment(client, each).view for each in ids)
    assert (first.name, first.config["resources"]["slots_per_trial"]) == ("first", 2)
    assert first.notebook == str(tmp_path / "train.py")
    assert "MainTrial" in [each.name for each in first.capsule.captured]
    assert made.config["hyperparameters"]["global_batch_size"] == 8
    assert made.trials[0].best_metric == 7  # what the function was called with
    assert shop.config["entrypoint"] == "ShopTrial"


def test_a_script_without_a_file_runs_and_a_notice_says_what_is_missing(
    client: Client, home: DetHome, tmp_path: Path
) -> None:
    script = f"import det_jupyter\n{TRIAL_SOURCE}\n{CONFIG}\nex = det_jupyter.submit(SmallTrial, "
    script += "config)\nprint(ex.id, ex.wait())"
    done = run_python("-", folder=tmp_path, text=script)
    assert done.returncode == 0, done.stderr
    assert "Note: SmallTrial: its source cannot be read" in done.stdout
    assert "COMPLETED" in done.stdout


def test_all_mistakes_are_refused_at_once_in_a_notebook_too(home: DetHome, tmp_path: Path) -> None:
    with notebook(tmp_path) as book:
        book.check(TRIAL_SOURCE + CONFIG)
        shown = book.run(
            "import det_jupyter\n"
            "det_jupyter.submit(SmallTrial, 'searcher:\\n  name: single\\n  metric: loss\\n"
            "  max_length: {batches: 4}\\nlabel: x', slots=99, "
            "**{'searcher.max_length': object(), 'hyperparameters.lr': open})"
        ).error
        assert shown is not None
        assert "ConfigError" in shown
        for part in [
            "line 5: label: unknown key; did you mean labels?",
            "\nhyperparameters.lr: got an object of type",
            "searcher.max_length: got an object of type object, expected a number",
            "resources.slots_per_trial: got 99",
        ]:
            assert part in shown, (part, shown)
        again = book.check(
            "for rate in (1, 2):\n"
            "    ex = det_jupyter.submit(SmallTrial, config, name=f'loop-{rate}')\n"
            "    assert ex.wait() == 'COMPLETED'\nprint(repr(ex))"
        )
        assert "loop-2" in again.text
