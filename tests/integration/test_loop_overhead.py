"""The benchmark of the training loop runs, and says what it has left out."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys


def test_the_loop_is_measured_against_a_bare_one() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.loop_overhead", "--quick"]
    command += ["--only", "ours_timings", "ours_rows", "ours_dataset", "determined"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    ratios = json.loads(lines[-1])
    aims = {"ratio_tiny", "ratio_5ms", "ratio_rows", "ratio_dataset"}
    assert aims | {f"{aim}_cpu" for aim in aims} <= ratios.keys()
    assert all(0.05 < ratio < 20 for ratio in ratios.values())
    if importlib.util.find_spec("determined") is None:
        assert lines[0] == "Determined, TensorBoard off: left out (No module named 'determined')"
