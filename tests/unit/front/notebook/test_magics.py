"""Help of the magics, loading of the extension, and handles of the notebook."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, cast

import pytest
from IPython.core.error import StdinNotImplementedError

from det_jupyter.client import Client, Trial
from det_jupyter.client.handles.experiment import Experiment
from det_jupyter.contract.messages import (
    MAX_LINES,
    Delete,
    ExperimentView,
    LogLine,
    LogPage,
    LogQuery,
    State,
    TrialView,
)
from det_jupyter.errors import DetError, UsageError, WaitTimeout
from det_jupyter.front.notebook import extension
from det_jupyter.front.notebook.complete.magic_parsers import cell_parser, line_parser
from det_jupyter.front.notebook.handles import experiment_handles
from det_jupyter.front.notebook.handles.experiment_handles import NotebookExperiment
from det_jupyter.front.notebook.magics import DetMagics
from det_jupyter.front.notebook.submit.checks import find_class_problems
from tests.problems import said
from tests.unit.view.view_samples import experiment, trial


class Master:
    """Answers as the master does."""

    def __init__(
        self, *, view: TrialView | None = None, whole: ExperimentView | None = None, lines: int = 0
    ) -> None:
        self.view = view
        self.whole = whole
        self.lines = [
            LogLine(id=i + 1, at=0.0, trial_id=1, run=1, rank=0, text=str(i)) for i in range(lines)
        ]

    def trial(self, trial_id: int) -> TrialView | None:
        return self.view

    def experiment(self, experiment_id: int) -> ExperimentView | None:
        return self.whole

    def logs(self, trial_id: int, query: LogQuery) -> LogPage:
        found = [line for line in self.lines if line.id > query.after]
        num = MAX_LINES if query.tail is None else min(query.tail, MAX_LINES)
        page = found[:num] if query.tail is None else found[len(found) - num :]
        last_id = page[-1].id if page else query.after
        return LogPage(lines=page, total=len(found), last_id=last_id, is_over=True)

    def as_client(self) -> Client:
        return cast("Client", self)


def test_help_shows_both_magics_as_they_are_typed() -> None:
    text = line_parser().format_help()
    assert "as a cell magic (%%det_experiment)" in text
    assert "%%%" not in text
    assert "--allow-large" in text
    assert cell_parser().format_help().startswith("%%det_experiment [options]")


def test_an_entrypoint_that_is_not_there_names_those_that_are() -> None:
    (problem,) = find_class_problems("Cat", {"__name__": "__main__", "x": 1})
    assert str(problem) == (
        "entrypoint: 'Cat' is not defined in this notebook; "
        "run the cell that defines it (it defines no class or function yet)"
    )
    assert said(find_class_problems("x", {"x": 1})) == [
        "entrypoint: 'x' is of type int, expected a class or a function"
    ]


@pytest.mark.parametrize(("tail", "num"), [(None, 25_000), (12_000, 12_000), (5, 5), (0, 0)])
def test_logs_are_complete_however_many_there_are(tail: int | None, num: int) -> None:
    lines = Trial(Master(lines=25_000).as_client(), 1, experiment_of=str).logs(tail=tail)
    assert [line.id for line in lines] == list(range(25_001 - num, 25_001))


def test_a_wait_that_took_too_long_is_an_error_of_ours_and_pythons() -> None:
    assert issubclass(WaitTimeout, DetError)
    assert issubclass(WaitTimeout, TimeoutError)
    assert str(WaitTimeout("it goes on")) == "it goes on"


def test_why_a_trial_ended_early_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view = experiment(trial()).model_copy(
        update={"state": State.COMPLETED, "message": "invalid hyperparameters: lr is too large"}
    )

    def ended(self: Experiment, *_: Any) -> State:
        return State.COMPLETED

    monkeypatch.setattr(Experiment, "_wait", ended)
    state = NotebookExperiment(Master(whole=view).as_client(), 7).wait()
    assert state is State.COMPLETED
    assert capsys.readouterr().out == "invalid hyperparameters: lr is too large\n"


@pytest.mark.parametrize(("typed", "is_deleted"), [("y", True), ("no", False), ("", False)])
def test_an_experiment_is_deleted_after_a_question(
    monkeypatch: pytest.MonkeyPatch, typed: str, is_deleted: bool
) -> None:
    questions: list[str] = []
    deleted: list[Delete] = []

    def answer(text: str) -> str:
        questions.append(text)
        return typed

    monkeypatch.setattr("builtins.input", answer)
    client = Master(whole=experiment(trial())).as_client()
    monkeypatch.setattr(client, "change", deleted.append, raising=False)
    handle = NotebookExperiment(client, 7)
    handle.delete()
    assert questions == [
        f"Delete experiment 7 ({handle.view.name}) with its checkpoints, metrics and logs? "
        "It cannot be undone. [y/N] "
    ]
    assert deleted == ([Delete(experiment_id=7)] if is_deleted else [])


def test_where_no_question_can_be_asked_a_deletion_has_to_be_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(text: str) -> str:
        raise StdinNotImplementedError

    deleted: list[Delete] = []
    monkeypatch.setattr("builtins.input", refuses)
    client = Master(whole=experiment(trial())).as_client()
    monkeypatch.setattr(client, "change", deleted.append, raising=False)
    handle = NotebookExperiment(client, 7)
    with pytest.raises(UsageError, match=r"write delete\(ask=False\)"):
        handle.delete()
    handle.delete(ask=False)
    assert deleted == [Delete(experiment_id=7)]


def test_the_extension_loads_where_no_master_can_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registered: list[type] = []

    class Shell:
        Completer = object()

        def register_magics(self, magics: type) -> None:
            registered.append(magics)

    def refuse() -> None:
        raise DetError("cannot use the folder /proc/det")

    monkeypatch.setattr(extension, "spawn_master", refuse)
    extension.load_ipython_extension(cast("Any", Shell()))
    assert registered == [DetMagics]
    assert capsys.readouterr().out == "cannot use the folder /proc/det\n"


@pytest.mark.parametrize("module", extension.IMPORTED_LATER)
def test_what_is_imported_in_the_background_exists(module: str) -> None:
    assert find_spec(f"det_jupyter.front.notebook.{module}") is not None


def test_an_experiment_is_asked_for_by_its_number_or_its_name() -> None:
    with pytest.raises(DetError, match=r"got 1\.5, expected an experiment's number or its name"):
        experiment_handles.experiment(1.5)  # type: ignore[arg-type]
