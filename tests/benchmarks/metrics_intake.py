"""The number of trials' reports that the master stores per second; checks that none is lost.

    .venv/bin/python -m tests.benchmarks.metrics_intake [--trials 1 8 64] [--kill]

A real master, agent and ranks in a home of their own. The ranks wait for each other, then call
`report_training_metrics` in a loop without pause: the worst case for the cores that master and
agent share with them. The rate is the number of reports, divided by the time from the start to the
last row in SQLite. Meanwhile the cluster view is requested from the master repeatedly, as by a
notebook. With --kill the master is killed (SIGKILL) when a third is stored, and started again. At
the end the rows of each trial are compared with what it reported.

Prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from det_jupyter.client import Experiment
from det_jupyter.connection import find_master
from det_jupyter.errors import DetError
from tests.benchmarks.quick import arguments
from tests.processes import DetHome, det_home, wait_until
from tests.trials import submit

QUICK = "--trials 1 --reports 2000"
KEYS = {"benchmark", "cpus", "results"}  # keys of the JSON in the last line

WRITER = """
import json, os, time
from det_jupyter import core

FOLDER, REPORTS = {folder!r}, {reports}

def writer():
    context = core.init()
    trial = context.info.trial_id
    open(f"{{FOLDER}}/here-{{trial}}", "w").close()
    while not os.path.exists(f"{{FOLDER}}/go"):
        time.sleep(0.005)
    report, clock, times = context.train.report_training_metrics, time.perf_counter, []
    began = clock()
    for step in range(1, REPORTS + 1):
        before = clock()
        report(step, {{"loss": 1.0 / step, "accuracy": 0.5}})
        times.append(clock() - before)
    took_s = clock() - began
    times.sort()
    told = {{"median_us": times[len(times) // 2] * 1e6, "p99_us": times[-len(times) // 100] * 1e6}}
    with open(f"{{FOLDER}}/told-{{trial}}", "w") as file:
        json.dump(told | {{"took_s": took_s}}, file)
    context.train.report_validation_metrics(REPORTS, {{"error": 1.0}})
"""
_ASK_EVERY_S = 0.05


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--reports", type=int, default=200_000, help="of all trials together")
    parser.add_argument("--kill", action="store_true", help="SIGKILL the master on the way")
    options = parser.parse_args(arguments(QUICK))
    results = [measure(trials, options.reports, options.kill) for trials in options.trials]
    _print_table(results)
    print(json.dumps({"benchmark": "metrics_intake", "cpus": os.cpu_count(), "results": results}))


def measure(trials: int, reports: int, is_killed: bool) -> dict[str, Any]:
    """Return the rate, the number of missing or double rows, and the load of the processes."""
    folder = Path(tempfile.mkdtemp(prefix="det-bench-"))
    try:
        variables = {"DET_JUPYTER_CPU_SLOTS": str(trials)}
        with det_home(folder / "home", variables) as home:
            return _measured(home, folder, trials, reports // trials, is_killed)
    finally:
        shutil.rmtree(folder)


def _measured(
    home: DetHome, folder: Path, trials: int, each: int, is_killed: bool
) -> dict[str, Any]:
    client = home.client()
    source = WRITER.format(folder=str(folder), reports=each)
    experiment = submit(client, _config(trials, each), source, cwd=folder)
    wait_until(lambda: len(list(folder.glob("here-*"))) == trials, "the ranks are there")
    database = home.path / "data" / "det.sqlite3"
    (folder / "go").touch()
    began, asked_ms, kill_at = time.monotonic(), [], (trials * each // 3 if is_killed else None)
    while (stored := _count(database)) < trials * each:
        if kill_at is not None and stored >= kill_at:
            kill_at = None
            home.master().send_signal(signal.SIGKILL)
            client.session.close()
            wait_until(lambda: find_master() is None, "the master is gone")
            client = home.client()
        before = time.perf_counter()
        with suppress(DetError):
            client.session.get("/cluster")
            asked_ms.append((time.perf_counter() - before) * 1e3)
        assert time.monotonic() - began < 300, f"{stored} of {trials * each} are stored"
        time.sleep(_ASK_EVERY_S)
    took_s = time.monotonic() - began
    experiment = Experiment(client, experiment.id)
    state = str(experiment.wait(timeout=120))
    client.session.close()
    told = [json.loads(path.read_text()) for path in folder.glob("told-*")]
    asked_ms.sort()
    return {
        "trials": trials,
        "reports": trials * each,
        "killed": is_killed,
        "reports_per_s": round(trials * each / took_s),
        "missing_or_double": _wrong_rows(database, trials, each),
        "call_median_us": round(statistics.median(one["median_us"] for one in told), 1),
        "call_p99_us": round(statistics.median(one["p99_us"] for one in told), 1),
        "writing_s": round(max(one["took_s"] for one in told), 2),
        "asked_median_ms": round(statistics.median(asked_ms), 1),
        "asked_p95_ms": round(asked_ms[int(len(asked_ms) * 0.95)], 1),
        "state": state,
    }


def _config(trials: int, each: int) -> dict[str, Any]:
    return {
        "name": "intake",
        "entrypoint": "writer",
        "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
        "searcher": {
            "name": "random",
            "metric": "error",
            "max_length": {"batches": each},
            "max_trials": trials,
            "max_concurrent_trials": trials,
        },
        "resources": {"slots_per_trial": 1},
        "profiling": {"enabled": False},
    }


def _count(database: Path) -> int:
    """Return the number of stored steps, from a table with one row per trial."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        (count,) = db.execute("SELECT sum(steps_completed) FROM progress").fetchone()
        return int(count or 0)


def _wrong_rows(database: Path, trials: int, each: int) -> int:
    """Return how many steps have no row, or more than one."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        rows = db.execute(
            "SELECT trial_id, count(*), count(DISTINCT last_step), max(last_step) FROM feed "
            "WHERE kind = 'metrics' AND json LIKE '%\"training\"%' GROUP BY trial_id"
        ).fetchall()
    wrong = (trials - len(rows)) * each
    for _, count, distinct, last in rows:
        wrong += (count - distinct) + (each - distinct) + abs(last - each)
    return wrong


def _print_table(rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(row[name]) for name in names) + " |")


if __name__ == "__main__":
    main()
