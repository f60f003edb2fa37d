"""The output of `experiment.wait()`: the progress bar, and reasons while no trial runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from det_jupyter.contract.messages import AllocationState, Reason, State
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.front.notebook.handles import progress
from det_jupyter.front.notebook.handles.progress import ReasonPrinter
from det_jupyter.view import ViewState
from tests.unit.client.documents_fake import FakeDocuments, state_of
from tests.unit.front.verbs.cluster_samples import SENTENCE, reason
from tests.unit.view.view_samples import CREATED_AT, allocation, experiment, trial


@pytest.mark.parametrize(
    ("steps", "fraction", "total"), [(22, 22 / 60, 60), (60, 1.0, 60), (0, 0.0, None)]
)
def test_the_bar_counts_to_the_length_of_the_trial(
    steps: int, fraction: float, total: int | None
) -> None:
    one = trial().model_copy(update={"steps_completed": steps, "progress": fraction})
    view = experiment(one)
    view.config["searcher"]["max_length"] = {"epochs": 3}
    assert progress._fields(state_of(view))["total"] == total


def test_before_the_first_report_the_bar_has_the_length_that_was_asked_for() -> None:
    one = trial().model_copy(update={"steps_completed": 3, "progress": 0.0})
    view = experiment(one)
    view.config["searcher"]["max_length"] = {"batches": 60}
    assert progress._fields(state_of(view))["total"] == 60


def test_the_bar_of_a_script_that_reported_nothing_is_full_when_it_has_completed() -> None:
    ended = {"state": State.COMPLETED, "progress": 1.0, "ended_at": CREATED_AT + 9}
    view = experiment(trial(steps_completed=0, **ended), **ended)
    fields = progress._fields(state_of(view))
    assert (fields["n"], fields["total"], fields["unit"]) == (1, 1, "trials")


class Waiting(FakeDocuments):
    """Answers why trial 9 waits; None: it does not exist."""

    found: Reason | None = None

    def reason(self, trial_id: int) -> Reason:
        """Return why it waits."""
        assert trial_id == 9
        if self.found is None:
            raise NotFound("there is no trial 9")
        return self.found

    def state(self, found: Reason | None = None, *, is_running: bool = False) -> ViewState:
        """Return the state of the view in which trial 9 waits for that reason."""
        self.found = found
        trials = [trial(id=9, allocation=allocation(AllocationState.QUEUED))]
        trials += [trial(id=10)] * is_running
        return state_of(experiment(*trials), reasons={} if found is None else {9: found})


def test_waiting_says_why_once_for_each_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 0.0)
    master = Waiting()
    says = ReasonPrinter(master.client)
    says.tick(master.state(reason(position=0), is_running=True))
    assert capsys.readouterr().out == ""
    queued = master.state(reason(position=0))
    says.tick(queued)
    says.tick(queued)
    out = capsys.readouterr().out
    assert out.count(SENTENCE) == 1
    assert "        %det_experiment set 5 --priority 10\n" in out
    later = reason(cause="turn", sentence="waits for its turn", ahead=[4], position=1)
    says.tick(master.state(later))
    assert "Trial 9: waits for its turn" in capsys.readouterr().out
    says.tick(master.state())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("now", [None, reason(cause="running", sentence="runs")])
def test_a_trial_that_does_not_wait_any_more_has_no_reason(
    now: Reason | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 0.0)
    master = Waiting()
    state = master.state(reason(position=0))
    master.found = now
    ReasonPrinter(master.client).tick(state)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("has_more", [False, True])
def test_a_reason_has_its_sentence_where_the_master_does_not_answer(
    has_more: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 0.0)
    master = Waiting()
    waits = allocation(AllocationState.QUEUED).model_copy(update={"slots": []})
    queued = trial(id=9, allocation=waits)
    more = [trial(id=10, allocation=None, state=State.COMPLETED)] * has_more
    reasons = {9: reason(position=0)}
    monkeypatch.setattr(master, "reason", Mock(side_effect=MasterUnreachable("it is frozen")))
    ReasonPrinter(master.client).tick(state_of(experiment(queued, *more), reasons=reasons))
    assert capsys.readouterr().out == f"Trial 9: {SENTENCE}\n"


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
    bar.tick(state_of(experiment(trial())))
    assert drawn == ["notebook" if is_notebook else "terminal"]


def test_a_trial_that_has_just_been_queued_is_not_talked_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    master = Waiting()
    ReasonPrinter(master.client).tick(master.state(reason(position=0)))
    assert capsys.readouterr().out == ""
