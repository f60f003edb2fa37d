"""`det_jupyter.sweep` in a script: plain functions, over real trials."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import DetHome

pytestmark = pytest.mark.e2e

SCRIPT = """
import det_jupyter
from det_jupyter import hp
from det_jupyter.errors import RankFailed

best = 0.5

def train(lr, width):
    if width == 64:
        raise ValueError("too wide")
    return {"loss": abs(lr - best), "width": width}

def by_step(lr):
    for step in range(100):
        yield lr

def failing(lr):
    return 1 / (lr - lr)

grid = {"lr": [0.25, 0.5], "width": [32, 64]}
found = det_jupyter.sweep(train, grid, metric="loss", searcher="grid")
print(found.best)
print([(row["state"], row["loss"]) for row in found.trials_table()])
halved = det_jupyter.sweep(
    by_step, {"lr": hp.double(0, 1)}, metric="loss", trials=6, searcher="asha", max_length=4,
    **{"searcher.max_concurrent_trials": 1, "reproducibility.experiment_seed": 1},
)
print(sorted(row["steps"] for row in halved.trials_table()), halved.plot())
try:
    det_jupyter.sweep(failing, {"lr": [1, 2]}, metric="loss", searcher="grid")
except RankFailed as error:
    print(error)
"""


def test_a_script_searches_the_arguments_of_plain_functions(home: DetHome, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    failed, best, table, halved, *failure = done.stdout.splitlines()
    assert "too wide" in failed
    assert best.startswith("loss 0 with lr=0.5, width=32 (trial "), best
    assert table.startswith("[('completed', 0.0), ('completed', 0.25), ('error', None)"), table
    assert halved.startswith("[1, 1, 4, 4, 4, 4] lr and loss of 6 trials; "), halved
    assert "ended with an error: " in failure[0]
    assert any(line.startswith("ZeroDivisionError: ") for line in failure)
