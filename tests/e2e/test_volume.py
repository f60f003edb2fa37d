"""Ranks that report and print much, while programs around them are killed: nothing is lost."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.connection import find_master
from det_jupyter.errors import RankFailed
from tests.processes import DetHome, wait_until
from tests.trials import submit

MUCH = 10_000
LINES = 20_000

SOURCE = f"""
import os, signal, time
from det_jupyter import core

def flood():
    context = core.init()
    for step in range(1, {MUCH} + 1):
        while step > {MUCH} // 2 and not os.path.exists(context.info.hparams["half"]):
            time.sleep(0.02)
        context.train.report_training_metrics(step, {{"loss": 1.0 / step}})
    for line in range({LINES}):
        print("line", line)
    context.train.report_validation_metrics({MUCH}, {{"error": 1.0}})

def dies():
    context = core.init()
    for step in range(1, 3_001):
        print("line", step - 1)
        context.train.report_training_metrics(step, {{"loss": 1.0 / step}})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def config(entrypoint: str, **hparams: str) -> dict[str, Any]:
    return {
        "name": "volume",
        "entrypoint": entrypoint,
        "hyperparameters": hparams,
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": MUCH}},
        "resources": {"slots_per_trial": 1},
        "max_restarts": 0,
    }


def rows(home: DetHome, query: str, *values: Any) -> list[Any]:
    database = home.path / "data" / "det.sqlite3"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        return [row[0] for row in db.execute(query, values)]


def steps_of(home: DetHome, trial_id: int) -> list[int]:
    return rows(
        home,
        "SELECT last_step FROM feed WHERE kind = 'metrics' AND trial_id = ? "
        "AND json LIKE '%\"training\"%' ORDER BY seq",
        trial_id,
    )


def lines_of(home: DetHome, trial_id: int) -> list[str]:
    return rows(home, "SELECT text FROM logs WHERE trial_id = ? ORDER BY id", trial_id)


@pytest.mark.e2e
def test_a_flood_is_stored_whole_though_the_master_is_killed_in_it(
    home: DetHome, client: Client, tmp_path: Path
) -> None:
    half = tmp_path / "half"  # it waits there, so that it is not over when the master is killed
    experiment = submit(client, config("flood", half=str(half)), SOURCE, cwd=tmp_path)
    wait_until(lambda: experiment.view.trials, "it has a trial")
    wait_until(lambda: steps_of(home, experiment.trial.id), "something is stored")
    home.master().send_signal(signal.SIGKILL)
    wait_until(lambda: find_master() is None, "the master is gone")
    half.touch()
    again = home.client()
    try:
        experiment = Experiment(again, experiment.id)
        assert experiment.wait() == "COMPLETED"
        trial = experiment.view.trials[0]
    finally:
        again.session.close()
    assert steps_of(home, trial.id) == list(range(1, MUCH + 1))
    assert lines_of(home, trial.id) == [f"line {number}" for number in range(LINES)]


@pytest.mark.e2e
def test_all_that_a_rank_has_told_before_it_is_killed_is_stored(
    home: DetHome, tmp_path: Path
) -> None:
    client = home.client()
    try:
        experiment = submit(client, config("dies"), SOURCE, cwd=tmp_path)
        with pytest.raises(RankFailed):
            experiment.wait()
        trial = experiment.view.trials[0]
    finally:
        client.session.close()
    assert steps_of(home, trial.id) == list(range(1, 3_001))
    assert lines_of(home, trial.id)[:3_000] == [f"line {number}" for number in range(3_000)]
