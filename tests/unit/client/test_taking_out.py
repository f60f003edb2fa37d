"""Metrics and trials as tables: tidy columns, DataFrames, CSV and Parquet."""

from __future__ import annotations

import builtins
import csv
import importlib
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.tables import Columns, Rows, to_frame, write
from det_jupyter.client.taking_out import metric_columns, trial_rows
from det_jupyter.contract.messages import Curve, Curves, ExperimentView, State, TrialView
from det_jupyter.errors import DetError
from tests.unit.view.view_samples import experiment, trial

BATCHES = {"kind": "batch_metrics", "at": 10.0, "first": 1, "values": {"loss": [0.5, 0.4]}}
VALIDATION = {
    "kind": "metrics", "group": "validation", "at": 11.0, "steps_completed": 20,
    "metrics": {"error": 0.25}, "trained": {"batches": 20, "records": 320, "epochs": 2.5},
}  # fmt: skip


def curves_of(*records: tuple[int, dict[str, Any]]) -> list[Curve]:
    curves = Curves()
    for trial_id, record in records:
        curves.add(trial_id, record)
    return list(curves.values())


class Master:
    """Answers with one view and some curves."""

    def __init__(self, view: ExperimentView, curves: list[Curve]) -> None:
        self._view, self._curves = view, curves

    def experiment(self, experiment_id: int) -> ExperimentView:
        return self._view

    def curves(self, experiment_id: int, *, max_points: int | None = None) -> list[Curve]:
        return self._curves


def handle_on(view: ExperimentView, curves: list[Curve]) -> Experiment:
    return Experiment(cast("Client", Master(view, curves)), view.id)


def searched() -> ExperimentView:
    def ended(number: int, best: float, **changes: Any) -> TrialView:
        lr = {"optimizer": {"lr": number / 10}}
        return trial(id=number, hparams=lr, best_metric=best, state=State.COMPLETED,
                     allocation=None, created_at=100.0, ended_at=130.5, **changes)  # fmt: skip

    return experiment(ended(1, 0.25), ended(2, 0.5, restarts=1, rung_metrics=[0.3, 0.25]))


def without(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """Have these libraries not be installed."""
    real = importlib.import_module

    def import_module(name: str, *args: Any) -> Any:
        if name.partition(".")[0] in libraries:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", import_module)


def test_every_value_is_a_row_with_its_epoch_from_the_trials_own_reports() -> None:
    curves = curves_of((1, BATCHES), (1, VALIDATION), (2, BATCHES))
    columns = metric_columns(curves)
    assert list(columns) == ["trial", "group", "steps", "epoch", "time", "metric", "value"]
    rows = list(zip(*columns.values(), strict=True))
    assert rows == [
        (1, "batches", 1, 0.125, 10.0, "loss", 0.5),
        (1, "batches", 2, 0.25, 10.0, "loss", 0.4),
        (1, "validation", 20, 2.5, 11.0, "error", 0.25),
        (2, "batches", 1, None, 10.0, "loss", 0.5),
        (2, "batches", 2, None, 10.0, "loss", 0.4),
    ]


def test_a_trial_is_a_row_with_its_hyperparameters_as_columns_of_their_own() -> None:
    rows = trial_rows(searched(), now=1000.0)
    assert rows == [
        {"trial": 2, "state": "completed", "accuracy": 0.5, "steps": 58, "duration_s": 30.5,
         "restarts": 1, "rungs": 2, "hparams.optimizer.lr": 0.2},
        {"trial": 1, "state": "completed", "accuracy": 0.25, "steps": 58, "duration_s": 30.5,
         "restarts": 0, "rungs": 0, "hparams.optimizer.lr": 0.1},
    ]  # fmt: skip


def test_a_column_that_has_another_name_now_is_named() -> None:
    (row, _) = trial_rows(searched(), now=1000.0)
    with pytest.raises(KeyError, match=r"'optimizer.lr': its column is 'hparams.optimizer.lr'"):
        row["optimizer.lr"]
    with pytest.raises(
        KeyError, match="'batches': the columns are trial, state, accuracy, steps,"
    ):
        row["batches"]


def test_the_tables_are_dataframes_with_times_as_timestamps() -> None:
    pandas = pytest.importorskip("pandas")
    handle = handle_on(searched(), curves_of((1, BATCHES), (1, VALIDATION), (2, BATCHES)))
    metrics = handle.metrics()
    assert len(metrics) == 5
    assert metrics["time"].iloc[0] == pandas.Timestamp(10, unit="s", tz="UTC")
    assert metrics["epoch"].isna().sum() == 2
    best = metrics[metrics["group"] == "validation"].groupby("trial")["value"].min()
    assert best.to_dict() == {1: 0.25}
    trials = handle.trials_table().to_frame()
    assert trials["hparams.optimizer.lr"].tolist() == [0.2, 0.1]
    assert pandas.DataFrame(handle.trials_table()).equals(trials)


def test_an_epoch_that_is_never_known_is_a_number_that_is_missing() -> None:
    pytest.importorskip("pandas")
    frame = to_frame(metric_columns(curves_of((2, BATCHES))))
    assert frame["epoch"].dtype == "float64"
    assert frame["epoch"].isna().all()


def test_without_pandas_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pandas")
    handle = handle_on(searched(), curves_of((1, BATCHES)))
    for make in (handle.metrics, handle.trials_table().to_frame):
        with pytest.raises(DetError, match=r"a DataFrame needs pandas.*install pandas with pip"):
            make()
    assert len(handle.trials_table()) == 2


def test_csv_needs_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pandas", "pyarrow")
    columns: Columns = {
        "time": [0.5, None], "name": ["a, “b”", "c"], "value": [0.1, None], "flag": [True, False],
        "shape": [[1, 2], {"x": 1}],
    }  # fmt: skip
    path = write(columns, tmp_path / "table.csv")
    with path.open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["time", "name", "value", "flag", "shape"],
            ["1970-01-01T00:00:00.500000+00:00", "a, “b”", "0.1", "true", "[1, 2]"],
            ["", "c", "", "false", '{"x": 1}'],
        ]


def test_parquet_keeps_numbers_times_and_columns_of_several_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    columns: Columns = {
        "time": [0.5, None], "value": [0.1, None], "hparams.depth": [3, "auto"],
    }  # fmt: skip
    path = write(columns, str(tmp_path / "table.parquet"))
    table = parquet.read_table(path).to_pydict()
    assert table["value"] == [0.1, None]
    assert table["hparams.depth"] == ["3", "auto"]
    assert table["time"][0].isoformat() == "1970-01-01T00:00:00.500000+00:00"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("table.xlsx", r"table\.xlsx: got a file \.xlsx, expected \.csv or \.parquet"),
        ("table", r"table: got a file without a suffix, expected \.csv or \.parquet"),
        ("no/table.csv", "the folder .*/no does not exist; make it first"),
        ("table.parquet", "a Parquet file needs pyarrow.*install pyarrow with pip"),
        ("folder.csv", "cannot be written: Is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    without(monkeypatch, "pyarrow")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DetError, match=words):
        write({"value": [1]}, tmp_path / name)


def test_no_trials_are_an_empty_table() -> None:
    assert Rows().to_columns() == {}
    assert builtins.list(Rows()) == []
    assert "pandas" not in vars(sys.modules["det_jupyter.client.tables"])
