"""Handles in a notebook: bars while they wait, what they print, and how they are displayed."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.client import Experiment
from det_jupyter.contract.messages import AllocationState, State
from det_jupyter.errors import NotFound
from det_jupyter.front.notebook.handles import experiment_handles, progress
from det_jupyter.front.notebook.handles.experiment_handles import NotebookExperiment
from det_jupyter.front.notebook.handles.progress import WaitProgress
from det_jupyter.view import ViewState
from tests.unit.client.documents_fake import state_of
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.client.test_wait_for_end import Master, over
from tests.unit.front.verbs.cluster_samples import reason
from tests.unit.view.view_samples import allocation, experiment, trial


def live_at(steps: int, **changes: Any) -> ViewState:
    own = trial(steps_completed=steps, progress=steps / 100, latest_metric=0.5)
    return state_of(experiment(own, **changes))


class Output:
    """The output of a cell, which is updated."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []

    def display(self, forms: dict[str, str]) -> Output:
        self.forms.append(forms)
        return self

    def update(self, forms: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.forms.append(forms)


def test_a_bar_in_a_notebook_is_one_output_that_is_updated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = Output()
    monkeypatch.setattr(progress, "_is_notebook", lambda: True)
    monkeypatch.setattr(progress, "display_forms", output.display)
    monkeypatch.setattr(progress.time, "monotonic", lambda: 100.0)  # type: ignore[attr-defined]
    bar = WaitProgress(7)
    for steps in (20, 20, 50):
        bar.tick(live_at(steps, name="a<b"))
    bar.close()
    assert len(output.forms) == 2, "the same state is drawn once"
    first, second = output.forms
    assert first["text/plain"].startswith("a<b:  20% |")
    assert "20/100 batches" in first["text/plain"]
    assert first["text/plain"].endswith("accuracy=0.5")
    assert first["text/html"].startswith("<pre>a&lt;b: ")
    assert "50/100 batches" in second["text/plain"]


def test_a_bar_in_a_terminal_has_the_last_state(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_is_notebook", lambda: False)
    bar = WaitProgress(7)
    bar.close()
    for steps in (20, 100):
        bar.tick(live_at(steps))
    bar.close()
    bar.close()
    last = capsys.readouterr().err.split("\r")[-1]
    assert last.startswith("digits: 100%|") or last.startswith("digits: 100% |")
    assert "100/100 batches" in last
    assert "accuracy=0.5" in last


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_is_notebook", lambda: False)


@pytest.mark.usefixtures("_fast")
@pytest.mark.parametrize("message", ["", "its hyperparameters cannot work"])
def test_a_wait_prints_the_message_of_the_end(
    message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = NotebookExperiment(Master(over(message=message)).client, 7)
    assert handle.wait() is State.COMPLETED
    assert capsys.readouterr().out == (f"{message}\n" if message else "")


@pytest.mark.usefixtures("_fast")
def test_an_interrupt_ends_the_waiting_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "_wait", interrupt)
    handle = NotebookExperiment(Master(experiment(trial())).client, 7)
    assert handle.wait() is State.ACTIVE
    assert capsys.readouterr().out == (
        "Stopped waiting. Experiment 7 goes on; det_jupyter.experiment(7).wait() waits again, "
        ".kill() ends it.\n"
    )


@pytest.mark.parametrize("state", [State.PAUSED, State.PAUSING])
def test_a_pause_that_lasts_says_what_it_waits_for(
    state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    queued = trial(allocation=allocation(AllocationState.QUEUED))
    wired = Wired(experiments=experiment(queued, state=state), reason=reason(trial_id=1))
    assert NotebookExperiment(wired.client, 7).pause(timeout=0.0) is state
    printed = capsys.readouterr().out
    assert printed.startswith("Trial 1: ") is (state is State.PAUSING)
    assert bool(printed) is (state is State.PAUSING)


def test_a_deletion_in_a_notebook_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda question: "no")
    wired = Wired(experiments=experiment(trial()))
    handle = NotebookExperiment(wired.client, 7)
    handle.delete()
    assert [method for method, _, _ in wired.asked] == ["GET"]
    handle.delete(ask=False)
    assert [method for method, _, _ in wired.asked] == ["GET", "POST"]


def test_a_handle_is_displayed_as_its_view_or_why_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[int] = []

    class View:
        def __init__(self, number: int) -> None:
            self.number = number

        def show(self) -> None:
            if self.number == 9:
                raise NotFound("there is no experiment 9")
            shown.append(self.number)

    monkeypatch.setattr(experiment_handles, "live_view", View)
    client: Any = None
    handle = NotebookExperiment(client, 7)
    handle.show()
    handle._ipython_display_()
    NotebookExperiment(client, 9)._ipython_display_()
    assert shown == [7, 7]
    assert capsys.readouterr().out == "there is no experiment 9\n"
