"""What `experiment.wait()` prints while nothing of the experiment runs."""

from __future__ import annotations

import pytest

from det_jupyter.contract.messages import AllocationState, Reason
from det_jupyter.front.notebook.handles import progress
from det_jupyter.front.notebook.handles.progress import WaitReasons
from det_jupyter.view.live import LiveExperiment
from tests.unit.front.verbs.cluster_samples import SENTENCE, reason
from tests.unit.view.view_samples import allocation, experiment, trial


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


def test_a_trial_that_has_just_been_queued_is_not_talked_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    WaitReasons().tick(waits({1: reason()}, AllocationState.QUEUED))
    assert capsys.readouterr().out == ""
