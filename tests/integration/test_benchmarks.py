"""Each benchmark runs with `--quick`, and its last line is JSON with the keys that it promises.

A benchmark is a module with `KEYS`. Those that take more than some seconds, in `make test-long`.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.values.measures import HOST
from tests.browser.lab import CHROMIUM
from tests.browser.series_samples import system

FOLDER = Path(__file__).parents[1] / "benchmarks"
LONG = {
    "any_loop_cost", "collectives", "config_speed", "consoles", "crash_told", "long_life",
    "many_trials", "metrics_intake", "recovery", "resizing", "sampler_cost", "saving_hold",
    "script_latency", "search_simulation", "search_throughput", "shard_copies", "start_latency",
    "storage",
    "timings_turns", "view",
}  # fmt: skip
IN_CHROMIUM = {"view"}
# What is no benchmark: another one runs it as a program.
PROGRAMS = {
    "bare_fork_server", "first_step_script", "loop_contender", "loop_traced", "lab_tabs",
    "lab_world", "machines_ray", "ddp_models", "loop_ours", "loop_rivals", "recovery_floor",
    "recovery_torchft", "storage_clients",
}  # fmt: skip
# Benchmarks that are not run here, and why.
NOT_HERE = {
    "ddp_scaling": "trains real models on all cores for minutes",
    "lab": "starts JupyterLab with a history of experiments: minutes",
    "hang_doctor": "waits for hangs: minutes",
    "integrations": "needs the libraries of `make test-integrations`",
    "loop_overhead": "tests/integration/test_loop_overhead.py",
    "machines": "needs network namespaces",
    "reader": "has fixed times: a minute",
    "profiler_overhead": "tests/unit/test_profiler_overhead.py has its parts; needs minutes",
    "scheduler_scale": "half a minute of all cores with --quick",
    "series_history": "stores hours of samples: minutes",
    "series_in_sql": "stores hours of samples: minutes",
    "windowed_list": "needs esbuild of the front end's development tools",
}


def keys_of(module: Path) -> set[str] | None:
    """Return what the module promises; None if it is no benchmark."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="KEYS")], value=value):
                return set(ast.literal_eval(value))
    return None


BENCHMARKS = {path.stem: keys for path in sorted(FOLDER.glob("*.py")) if (keys := keys_of(path))}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in BENCHMARKS],
)
def test_a_benchmark_prints_the_keys_that_it_promises(name: str, tmp_path: Path) -> None:
    if name in IN_CHROMIUM and not CHROMIUM:
        pytest.skip("there is no Chromium")
    with tempfile.TemporaryDirectory() as scratch:  # short: Chromium has a socket there
        run = subprocess.run(
            [sys.executable, "-m", f"tests.benchmarks.{name}", "--quick"],
            cwd=FOLDER.parents[1], capture_output=True, text=True,
            env=os.environ | {paths.HOME_VARIABLE: str(tmp_path / "home"), "TMPDIR": scratch},
        )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert json.loads(run.stdout.splitlines()[-1]).keys() == BENCHMARKS[name]


def test_every_benchmark_is_run_or_it_is_said_why_not() -> None:
    programs = {
        path.stem for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text()
    }
    assert programs - BENCHMARKS.keys() - PROGRAMS == NOT_HERE.keys()


def test_the_samples_of_the_pictures_have_each_measure_of_a_computer() -> None:
    assert HOST.keys() <= {one.name for one in system(1, 2).series}
