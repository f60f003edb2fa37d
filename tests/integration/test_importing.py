"""Runs of TensorBoard in the master's database: each value once, whatever is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.imports import importing, whole_experiments
from det_jupyter.client.imports.imported_runs import find_runs
from det_jupyter.client.imports.importing import ImportResult, import_runs
from det_jupyter.config import parse_config
from det_jupyter.contract.messages import (
    ExperimentView,
    ImportedLine,
    ImportedLines,
    ImportedMetrics,
    ImportedTrial,
    ImportExperiment,
    LogQuery,
    NumStored,
    State,
)
from det_jupyter.contract.run.journal import (
    BatchMetrics,
    FirstStep,
    MetricsReported,
    Progress,
    to_line,
)
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.master.service.storing.stored_logs import read_page
from tests.integration.master_support import Bench, ask, make_request
from tests.unit.client.imports.test_imported_runs import write
from tests.unit.client.imports.test_tfevents import frame, record


class Importer:
    """A client of a master, in one process with it.

    Args:
        breaks_after: Parts of metrics after which the connection ends; None: never.
        uses_http: Whether requests pass the routes, which costs 0.1 s for each.
    """

    def __init__(
        self,
        bench: Bench,
        folder: Path,
        breaks_after: int | None = None,
        *,
        uses_http: bool = False,
    ) -> None:
        self.session = SimpleNamespace(info=SimpleNamespace(data_dir=str(folder)))
        self._bench, self._left, self._uses_http = bench, breaks_after, uses_http

    def change(self, request: ImportExperiment) -> ExperimentView:
        if self._uses_http:
            body = request.model_dump(mode="json", exclude={"kind"})
            return ExperimentView.model_validate(self._post(request.path, body))
        self._bench.service.apply(request)
        view = self._bench.service.submitted(request.key)
        assert view is not None
        return view

    def add_imported(self, trial_id: int, part: ImportedMetrics | ImportedLines) -> NumStored:
        if self._left is not None:
            if not self._left:
                raise ConnectionError
            self._left -= 1
        if self._uses_http:
            what = "logs" if isinstance(part, ImportedLines) else "metrics"
            return NumStored.model_validate(
                self._post(f"/trials/{trial_id}/{what}", part.model_dump())
            )
        return self._bench.service.add_imported(trial_id, part)

    def _post(self, path: str, body: Any) -> Any:
        answer = ask(self._bench, "POST", path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "master.db")
    yield bench
    bench.service.close()


def run_import(
    bench: Bench,
    logs: Path,
    metric: str | None = "loss",
    *,
    breaks_after: int | None = None,
    uses_http: bool = False,
) -> ImportResult:
    importer = Importer(bench, logs.parent, breaks_after, uses_http=uses_http)
    (found,) = import_runs(cast("Client", importer), str(logs), metric=metric)
    return found


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return a folder with two runs, of 5 and 3 values."""
    write(tmp_path / "logs" / "a", 0.5, 0.4, 0.3, 0.2, 0.1)
    write(tmp_path / "logs" / "b", 0.9, 0.8, 0.7)
    return tmp_path / "logs"


def values(bench: Bench) -> list[tuple[int, float]]:
    return [(data["steps_completed"], data["metrics"]["loss"]) for data in bench.metrics()]


A, B = [(1, 0.5), (2, 0.4), (3, 0.3), (4, 0.2), (5, 0.1)], [(1, 0.9), (2, 0.8), (3, 0.7)]


def rounded(found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(step, round(value, 6)) for step, value in found]  # they were singles


def test_runs_become_trials_with_their_metrics(bench: Bench, logs: Path) -> None:
    found = run_import(bench, logs, uses_http=True)
    assert (found.num_runs, found.num_values, found.num_new, found.metric) == (2, 8, 8, "loss")
    assert rounded(values(bench)) == A + B
    view = bench.service.views.experiment(found.experiment_id)
    assert (view.state, view.name, view.labels) == (State.COMPLETED, "logs", ["imported"])
    assert view.progress == 1.0
    assert view.capsule.notices == [f"Imported from {logs}"]
    assert [trial.hparams for trial in view.trials] == [{"run": "a"}, {"run": "b"}]
    assert [trial.steps_completed for trial in view.trials] == [5, 3]
    best = [trial.best_metric for trial in view.trials]
    assert best == pytest.approx([0.1, 0.7])


def test_importing_twice_doubles_nothing(bench: Bench, logs: Path) -> None:
    run_import(bench, logs)
    again = run_import(bench, logs)
    assert (again.num_values, again.num_new) == (8, 0)
    assert rounded(values(bench)) == A + B
    assert list(bench.service.machine.state.experiments) == [1]


def test_what_another_version_has_imported_is_imported_anew(bench: Bench, logs: Path) -> None:
    run_import(bench, logs)
    experiment = bench.service.machine.state.experiment(1)
    experiment.reconfigure(experiment.config | {"of another version": 1})
    assert run_import(bench, logs).num_new == 0
    assert "of another version" not in experiment.config
    assert experiment.settings.searcher.metric == "loss"


def test_an_import_that_was_cut_off_is_completed_by_another(
    bench: Bench, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_experiments, "_LINES", 2)
    with pytest.raises(ConnectionError):
        run_import(bench, logs, breaks_after=3)
    assert rounded(values(bench)) == A[:4]
    assert run_import(bench, logs).num_new == 4
    assert rounded(values(bench)) == A + B


def test_long_records_are_sent_in_smaller_parts(
    bench: Bench, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_experiments, "_MOST_CHARS", 1)
    with pytest.raises(ConnectionError):
        run_import(bench, logs, breaks_after=3)  # the first request asks how many are stored
    assert rounded(values(bench)) == A[:2]


def test_a_part_that_is_sent_twice_is_stored_once(bench: Bench, logs: Path) -> None:
    run_import(bench, logs)
    line = to_line(MetricsReported(at=1.0, group="training", steps_completed=9, metrics={}))
    for first in (0, 4, 9):
        part = ImportedMetrics(first=first, text=line)
        assert bench.service.add_imported(1, part) == NumStored(lines=5)
    assert rounded(values(bench)) == A + B


def test_what_a_run_has_written_since_is_added(bench: Bench, logs: Path) -> None:
    run_import(bench, logs)
    file = next((logs / "b").iterdir())
    file.write_bytes(file.read_bytes() + frame(record(4, "loss", 0.0625, at=9.0)))
    write(logs / "c", 0.25)
    found = run_import(bench, logs)
    assert (found.num_runs, found.num_new) == (3, 2)
    assert rounded(values(bench)) == [*A, *B, (4, 0.0625), (1, 0.25)]
    view = bench.service.views.experiment(1)
    assert view.trials[1].best_metric == 0.0625
    assert bench.service.views.experiment(1).config["searcher"]["max_trials"] == 3


def test_it_is_there_after_a_restart_of_the_master(
    bench: Bench, logs: Path, tmp_path: Path
) -> None:
    run_import(bench, logs)
    before = bench.service.views.experiment(1)
    bench.store.close()  # as after SIGKILL: without a snapshot
    bench.service = Bench(tmp_path / "master.db").service
    bench.store = bench.service.store
    assert bench.service.views.experiment(1) == before
    assert run_import(bench, logs).num_new == 0


def test_without_a_loss_of_validations_there_is_no_best(bench: Bench, logs: Path) -> None:
    found = run_import(bench, logs, None)
    assert (found.metric, found.validated) == ("", [])
    assert bench.service.views.experiment(1).trials[0].best_metric is None


def test_a_metric_that_no_run_has_is_refused_with_those_that_are_there(
    bench: Bench, logs: Path
) -> None:
    with pytest.raises(ConfigError, match=r"--metric: got 'acc', expected one of .* there: loss"):
        run_import(bench, logs, "acc")
    assert not bench.service.machine.state.experiments


def test_metrics_of_trials_that_train_here_cannot_be_added(bench: Bench) -> None:
    bench.register()
    asyncio.run(bench.service.submit(make_request()))
    with pytest.raises(Conflict, match="trial 1 was trained here"):
        bench.service.add_imported(1, ImportedMetrics(first=0, text=""))


def test_a_line_that_is_no_metric_is_refused(bench: Bench, logs: Path) -> None:
    run_import(bench, logs)
    line = to_line(FirstStep(at=1.0, steps_completed=1, fraction=0.5))
    for text in (line, "no record\n"):
        with pytest.raises(ConfigError, match="text, line 0: "):
            bench.service.add_imported(1, ImportedMetrics(first=5, text=text))
    assert len(values(bench)) == 8


def test_one_set_that_is_refused_does_not_hide_the_others(
    bench: Bench, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_import(bench, logs, None)  # has no metric now
    (known,) = find_runs(str(logs))
    other = replace(known, name="other", identity="another one")
    monkeypatch.setattr(importing, "find_runs", lambda given: [known, other])
    found = run_import(bench, logs)
    assert (found.experiment_id, found.num_new) == (2, 8)
    assert "searcher.metric validation_loss, and this import loss" in found.remarks[-1]
    monkeypatch.undo()
    with pytest.raises(Conflict, match="delete it first"):
        run_import(bench, logs)


def test_a_trial_has_the_progress_and_the_lines_that_it_had_elsewhere(
    bench: Bench, logs: Path
) -> None:
    run_import(bench, logs)
    importer = cast("Client", Importer(bench, logs.parent))
    request = ImportExperiment(
        key="whole",
        config=parse_config(make_request().config, default_seed=0).to_document(),
        capsule=make_request().capsule,
        python="",
        cwd="/",
        source="digits.zip",
        trials=[
            ImportedTrial(
                source="7", state="CANCELED", hparams={}, created_at=1.0, ended_at=9.0,
                steps_completed=5,
            )
        ],
    )  # fmt: skip
    batches = BatchMetrics(at=2.0, first=1, values={"loss": [0.5, 0.25]})
    data = whole_experiments.TrialData(
        records=[batches, Progress(at=9.0, steps_completed=5, fraction=0.5)],
        lines=[ImportedLine(at=3.0, run=1, rank=rank, text=f"rank {rank}") for rank in (0, 1)],
    )
    for num_values, num_lines in ((2, 2), (0, 0)):
        stored = whole_experiments.import_whole(importer, request, lambda _: data)
        assert (stored.num_values, stored.num_lines) == (num_values, num_lines)
    (trial,) = bench.service.views.experiment(stored.experiment_id).trials
    assert (trial.steps_completed, trial.progress) == (5, 0.5)
    page = read_page(bench.store.path, [trial.id], LogQuery(), is_over=True)
    assert [(line.at, line.rank, line.text) for line in page.lines] == [
        (3.0, 0, "rank 0"), (3.0, 1, "rank 1"),
    ]  # fmt: skip
