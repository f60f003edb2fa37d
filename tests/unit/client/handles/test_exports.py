"""Metrics, trials, series and timings as tables; captured source as text and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.handles.exports import (
    Code,
    by_trial,
    metric_columns,
    step_columns,
    trial_rows,
)
from det_jupyter.client.handles.trial import Trial
from det_jupyter.client.tables import to_frame
from det_jupyter.contract.messages import (
    Curve,
    Curves,
    ExperimentView,
    Series,
    SeriesPage,
    SeriesQuery,
    State,
    TrialView,
)
from det_jupyter.errors import ConfigError, Conflict, DetError
from tests.unit.client.absent_libraries import without
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

    def curves(
        self, experiment_id: int, *, max_points: int | None = None, repeats: bool = False
    ) -> list[Curve]:
        return self._curves


def handle_on(view: ExperimentView, curves: list[Curve]) -> Experiment:
    return Experiment(cast("Client", Master(view, curves)), view.id)


def searched() -> ExperimentView:
    def ended(number: int, best: float, **changes: Any) -> TrialView:
        lr = {"optimizer": {"lr": number / 10}}
        return trial(id=number, hparams=lr, best_metric=best, state=State.COMPLETED,
                     allocation=None, created_at=100.0, ended_at=130.5, **changes)  # fmt: skip

    return experiment(ended(1, 0.25), ended(2, 0.5, restarts=1, rung_metrics=[0.3, 0.25]))


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
         "restarts": 1, "recoveries": 0, "rungs": 2, "hparams.optimizer.lr": 0.2},
        {"trial": 1, "state": "completed", "accuracy": 0.25, "steps": 58, "duration_s": 30.5,
         "restarts": 0, "recoveries": 0, "rungs": 0, "hparams.optimizer.lr": 0.1},
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


def series(source: str, name: str, mid: list[float], unit: str = "s") -> Series:
    return Series(
        source=source, name=name, title="", unit=unit, mid=mid,
        x=[float(i) for i in range(len(mid))], low=mid, high=[10 * value for value in mid],
    )  # fmt: skip


class SeriesMaster:
    """Has some series, of which it answers those that are named."""

    def __init__(self, *series: Series) -> None:
        self._series = series

    def series(self, trial_id: int, query: SeriesQuery) -> SeriesPage:
        def is_asked(name: str) -> bool:
            return name in query.names if query.names else "." not in name

        return SeriesPage(series=[s for s in self._series if is_asked(s.name)], began_at=0.0)


def trial_with(*series: Series) -> Trial:
    return Trial(cast("Client", SeriesMaster(*series)), 1, experiment_of=str)


def test_system_metrics_are_a_row_for_each_point() -> None:
    columns = trial_with(
        series("host", "memory_free", [1.0, 2.0], unit="bytes"), series("rank:0", "cpu", [3.0])
    ).system_metrics()
    assert list(zip(*columns.values(), strict=True)) == [
        (0.0, "host", "memory_free", "bytes", 1.0, 1.0, 10.0),
        (1.0, "host", "memory_free", "bytes", 2.0, 2.0, 20.0),
        (0.0, "rank:0", "cpu", "s", 3.0, 3.0, 30.0),
    ]


def test_step_times_have_the_statistics_of_their_part() -> None:
    columns = trial_with(
        series("rank:1", "forward", [0.1, 0.2]),
        series("rank:1", "forward.p50", [0.1]),
        series("rank:1", "forward.max", [0.3, 0.4]),
        series("rank:1", "samples_per_second", [5.0], unit="1/s"),
    ).step_times()
    assert list(zip(*columns.values(), strict=True)) == [
        (0.0, 1, "forward", 0.1, 0.1, None, 0.3),
        (1.0, 1, "forward", 0.2, None, None, 0.4),
    ]


def test_rows_of_several_trials_say_whose_they_are() -> None:
    one, other = (trial_with(series("rank:0", "forward", [x])).step_times() for x in (0.1, 0.2))
    columns = by_trial({3: one, 5: other})
    assert (columns["trial"], columns["per_batch"]) == ([3, 5], [0.1, 0.2])
    assert list(columns)[:3] == ["trial", "time", "rank"]
    assert by_trial({}) == {"trial": []}


def test_without_timings_there_are_columns_without_rows() -> None:
    assert set(map(tuple, trial_with().step_times().values())) == {()}
    assert "per_batch" in trial_with().step_times()


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="since: got 'soon'"):
        trial_with().system_metrics(since="soon")


CODE = Code({"Cell In[5]": "class T: ...\n", "nets/wide.py": "WIDTH = 8\n"})


def test_it_prints_as_text_and_is_a_dictionary() -> None:
    assert repr(CODE) == "# ── Cell In[5]\nclass T: ...\n\n# ── nets/wide.py\nWIDTH = 8"
    assert CODE["nets/wide.py"] == "WIDTH = 8\n"
    assert repr(Code({"a.py": "evil()\x1b[2K\r\x1b[8mgood()"})) == "# ── a.py\nevil()\ufffdgood()"


def test_cells_and_modules_are_files_of_a_folder(tmp_path: Path) -> None:
    written = CODE.write(tmp_path / "code")
    assert written == [tmp_path / "code/cell_5.py", tmp_path / "code/nets/wide.py"]
    assert [path.read_text(encoding="utf-8") for path in written] == list(CODE.values())
    assert CODE.write(tmp_path / "code") == written  # the same again changes nothing


def test_a_file_with_other_content_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets/wide.py").write_text("mine")
    with pytest.raises(Conflict, match=r"wide\.py: a file with other content is there; give"):
        CODE.write(tmp_path)
    assert not (tmp_path / "cell_5.py").exists()


def test_a_folder_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DetError, match=rf"^{tmp_path}/file: cannot be written: (File|Not a dir)"):
        CODE.write(tmp_path / "file")


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DetError, match="would lie outside of the folder"):
        Code({"../up.py": ""}).write(tmp_path / "code")
    assert Code({"/home/a/else.py": "x"}).write(tmp_path) == [tmp_path / "else.py"]


def test_a_row_of_timings_has_the_statistics_of_its_time_if_they_are_known() -> None:
    def series(name: str, x: list[float], mid: list[float], unit: str = "s") -> Series:
        return Series(source="rank:2", name=name, title=name, unit=unit, x=x, mid=mid)

    columns = step_columns(
        [
            series("batches", [1.0], [50.0], unit="1/s"),  # no part of a batch
            series("forward", [1.0, 2.0], [0.25, 0.5]),
            series("forward.p50", [2.0], [0.375]),
            series("backward", [1.0], [0.75]),
        ]
    )
    assert columns["part"] == ["forward", "forward", "backward"]
    assert columns["rank"] == [2, 2, 2]
    assert columns["time"] == [1.0, 2.0, 1.0]
    assert columns["per_batch"] == [0.25, 0.5, 0.75]
    assert columns["p50"] == [None, 0.375, None]
    assert columns["max"] == [None, None, None]
