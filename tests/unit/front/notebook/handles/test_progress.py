"""The output of `experiment.wait()`: the progress bar, and reasons while no trial runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.messages import AllocationState, Reason, State
from det_jupyter.front.notebook.handles import progress
from det_jupyter.front.notebook.handles.progress import WaitReasons
from det_jupyter.view.live import LiveExperiment
from tests.unit.front.verbs.cluster_samples import SENTENCE, reason
from tests.unit.view.view_samples import allocation, experiment, trial


@pytest.mark.parametrize(
    ("steps", "fraction", "total"), [(22, 22 / 60, 60), (60, 1.0, 60), (0, 0.0, None)]
)
def test_the_bar_counts_to_the_length_of_the_trial(
    steps: int, fraction: float, total: int | None
) -> None:
    one = trial().model_copy(update={"steps_completed": steps, "progress": fraction})
    # The experiment's own progress comes as an item of its own: it may be older or newer.
    view = experiment(one).model_copy(update={"progress": 0.35})
    view.config["searcher"]["max_length"] = {"epochs": 3}
    assert progress._fields(LiveExperiment(view, [], [], 1))["total"] == total


def test_before_the_first_report_the_bar_has_the_length_that_was_asked_for() -> None:
    one = trial().model_copy(update={"steps_completed": 3, "progress": 0.0})
    view = experiment(one)
    view.config["searcher"]["max_length"] = {"batches": 60}
    assert progress._fields(LiveExperiment(view, [], [], 1))["total"] == 60


def test_the_bar_of_a_script_that_reported_nothing_is_full_when_it_has_completed() -> None:
    ended = {"state": State.COMPLETED, "progress": 1.0}
    view = experiment(trial().model_copy(update=ended | {"steps_completed": 0}))
    view = view.model_copy(update=ended)
    fields = progress._fields(LiveExperiment(view, [], [], 1))
    assert (fields["n"], fields["total"], fields["unit"]) == (1, 1, "trials")


def waits(reasons: dict[int, Reason], *states: AllocationState) -> LiveExperiment:
    trials = [trial(id=i, allocation=allocation(state)) for i, state in enumerate(states, 1)]
    live = LiveExperiment(experiment(*trials), [], [], 1)
    live.reasons = reasons
    return live


def test_waiting_says_why_once_for_each_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 0.0)
    says = WaitReasons()
    says.tick(waits({1: reason()}, AllocationState.QUEUED, AllocationState.RUNNING))
    assert capsys.readouterr().out == ""  # something runs
    queued = waits({1: reason()}, AllocationState.QUEUED)
    says.tick(queued)
    says.tick(queued)
    assert capsys.readouterr().out.count(SENTENCE) == 1
    later = reason(cause="turn", sentence="waits for its turn", ahead=[4])
    says.tick(waits({1: later}, AllocationState.QUEUED))
    assert "Trial 9: waits for its turn" in capsys.readouterr().out
    says.tick(waits({}, AllocationState.QUEUED))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("shell", "is_notebook"),
    [(None, False), (SimpleNamespace(kernel=None), False), (SimpleNamespace(kernel=1), True)],
)
def test_a_bar_is_drawn_where_the_kernel_is(
    shell: Any, is_notebook: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(progress, "get_ipython", lambda: shell)
    bar = progress.WaitProgress(7)
    monkeypatch.setattr(bar, "_draw_in_notebook", lambda fields, s: drawn.append("notebook"))
    monkeypatch.setattr(bar, "_draw_in_terminal", lambda fields: drawn.append("terminal"))
    bar.tick(LiveExperiment(experiment(trial()), [], [], 1))
    assert drawn == ["notebook" if is_notebook else "terminal"]


def test_a_trial_that_has_just_been_queued_is_not_talked_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    WaitReasons().tick(waits({1: reason()}, AllocationState.QUEUED))
    assert capsys.readouterr().out == ""
