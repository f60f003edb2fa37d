"""The configuration that stands for imported runs: their hyperparameters and their length."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.imports import importing
from det_jupyter.client.imports.imported_runs import ImportedRun, RunSet
from det_jupyter.client.imports.importing import ImportResult, import_runs
from det_jupyter.contract.messages import ImportedMetrics, ImportExperiment
from det_jupyter.contract.run.scalars import Scalar


class Master:
    """Takes what is imported, and has all of it stored at once."""

    def __init__(self, folder: Path) -> None:
        self.session = SimpleNamespace(info=SimpleNamespace(data_dir=str(folder)))
        self.requests: list[ImportExperiment] = []

    def change(self, request: ImportExperiment) -> Any:
        self.requests.append(request)
        trials = [
            SimpleNamespace(id=number, hparams=trial.hparams)
            for number, trial in enumerate(request.trials)
        ]
        return SimpleNamespace(id=7, trials=trials)

    def add_imported(self, trial_id: int, part: ImportedMetrics) -> Any:
        return SimpleNamespace(lines=part.first + part.text.count("\n"))


def run(name: str, *scalars: tuple[str, int, float], **hparams: Any) -> ImportedRun:
    found = [Scalar(tag, step, value, 100.0 + step) for tag, step, value in scalars]
    return ImportedRun(name=name, scalars=found, hparams=hparams)


def imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *runs: ImportedRun, **given: Any
) -> tuple[ImportExperiment, ImportResult]:
    found = RunSet(name="logs", source="/logs", identity="logs", runs=list(runs))
    monkeypatch.setattr(importing, "find_runs", lambda given: [found])
    master = Master(tmp_path)
    [result] = import_runs(cast(Client, master), "/logs", **given)
    [request] = master.requests
    return request, result


def test_hyperparameters_become_constants_ranges_and_choices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = [
        run("a", ("loss", 1, 0.5), lr=0.1, depth=2, kind="sgd", flag=True, odd=math.inf),
        run("b", ("loss", 9, 0.25), lr=0.01, depth=2, kind="adam", flag=False, odd=1.0),
        run("c", ("loss", 3, 0.25), lr=0.05, kind="sgd", flag=True, only={"x": [1]}),
    ]
    request, result = imported(monkeypatch, tmp_path, *runs)
    space = request.config["hyperparameters"]
    assert {name: space[name]["type"] for name in space} == {
        "lr": "double", "depth": "const", "kind": "categorical", "flag": "categorical",
        "odd": "categorical", "run": "categorical", "only": "const",
    }  # fmt: skip
    assert (space["lr"]["minval"], space["lr"]["maxval"]) == (0.01, 0.1)
    assert space["depth"]["val"] == 2
    assert space["kind"]["vals"] == ["sgd", "adam"]
    assert space["odd"]["vals"] == ["inf", 1.0]
    searcher = request.config["searcher"]
    assert (searcher["name"], searcher["max_trials"]) == ("random", 3)
    assert searcher["max_length"] == {"batches": 9}
    assert [(trial.created_at, trial.ended_at) for trial in request.trials] == [
        (101.0, 101.0), (109.0, 109.0), (103.0, 103.0),
    ]  # fmt: skip
    assert (result.num_runs, result.num_values, result.num_new) == (3, 3, 3)


@pytest.mark.parametrize(
    ("given", "metric", "smaller"),
    [
        ({}, "validation_loss", True),
        ({"metric": "val/accuracy"}, "val/accuracy", True),
        ({"metric": "val/accuracy", "larger_is_better": True}, "val/accuracy", False),
    ],
)
def test_one_run_is_no_search(
    given: dict[str, Any],
    metric: str,
    smaller: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    request, _ = imported(monkeypatch, tmp_path, run("a", ("val/accuracy", 0, 0.5)), **given)
    searcher = request.config["searcher"]
    assert (searcher["name"], searcher["metric"]) == ("single", metric)
    assert searcher["smaller_is_better"] is smaller
    assert searcher["max_length"] == {"batches": 1}
    assert request.config["hyperparameters"]["run"] == {"type": "const", "val": "a"}


def test_a_run_is_as_long_as_its_last_step_and_validated_where_it_has_a_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scalars = [("val_loss", 9, 0.25), ("val_loss", 4, 0.5), ("val_loss", 6, math.nan)]
    request, result = imported(monkeypatch, tmp_path, run("a", *scalars))
    [trial] = request.trials
    assert (trial.steps_completed, trial.validations) == (9, {4: 0.5, 9: 0.25})
    assert (trial.created_at, trial.ended_at) == (104.0, 109.0)
    assert (result.metric, result.validated) == ("val_loss", ["val_loss"])
    assert request.config["searcher"]["metric"] == "val_loss"
