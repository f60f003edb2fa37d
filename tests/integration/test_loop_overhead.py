"""The benchmark of the training loop runs, and says what it has left out."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.benchmarks.loop_contender import Cost
from tests.benchmarks.loop_overhead import show
from tests.benchmarks.loop_pairs import serve


@pytest.mark.long
def test_the_loop_is_measured_against_a_bare_one() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.loop_overhead", "--quick"]
    command += ["--only", "ours_timings", "determined"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    ratios = json.loads(lines[-1])
    aims = {"ratio_tiny", "ratio_5ms"}
    assert aims | {f"{aim}_cpu" for aim in aims} <= ratios.keys()
    assert all(0.05 < value < 20 for key, value in ratios.items() if key.startswith("ratio_"))
    if importlib.util.find_spec("determined") is None:
        assert lines[0] == "Determined, TensorBoard off: left out (No module named 'determined')"


@pytest.mark.parametrize(("name", "aim"), [("ours_rows", "rows"), ("ours_dataset", "dataset")])
def test_a_loop_is_measured_on_the_data_of_the_bare_one(
    monkeypatch: pytest.MonkeyPatch, name: str, aim: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("tiny 200\n"))
    answers: list[dict[str, Any]] = []
    serve(name, answers.append)  # here: a process of its own loads torch for seconds
    ready, costs = answers
    assert ready == {"ready": name}
    ratios = show(name, "tiny", [(Cost(*costs["bare"]), Cost(*costs["own"]))])
    assert ratios.keys() == {
        f"{unit}_{aim}{of}" for unit in ("ratio", "us") for of in ("", "_cpu")
    }
    assert all(0.05 < value < 20 for key, value in ratios.items() if key.startswith("ratio_"))
