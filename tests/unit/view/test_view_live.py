"""The live view where there is no front end: a terminal is told why an experiment waits."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.notebook.handles import live
from det_jupyter.notebook.handles.live import LiveView
from det_jupyter.view.live import LiveExperiment
from tests.unit.view.view_cluster_samples import reason, waiting, waiting_trial
from tests.unit.view.view_samples import experiment, trial

SENTENCE = "needs 4 slots; 2 of 8 are free; experiment 3 “resnet” holds 4; starts when it ends"


class FakeFollower:
    """Has a copy that the test changes."""

    class thread:
        """A thread that has come to its end."""

        @staticmethod
        def is_alive() -> bool:
            return False

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.live: LiveExperiment | None = LiveExperiment(experiment(waiting_trial()), [], [], 1)


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_has_widgets", lambda: False)


def copy_of(follower: FakeFollower) -> LiveExperiment:
    assert follower.live is not None
    return follower.live


@pytest.mark.usefixtures("_terminal")
def test_terminal_is_told_each_reason_once(capsys: pytest.CaptureFixture[str]) -> None:
    view, follower = LiveView(cast("Client", None), 7), cast("Any", FakeFollower())
    view._push(follower)
    copy_of(follower).reasons = {1: reason(1, sentence=SENTENCE)}
    view._push(follower)
    copy_of(follower).reasons = {1: reason(1, sentence=f"{SENTENCE}, about 14:20")}
    view._push(follower)
    copy_of(follower).experiment = experiment(trial())
    view._push(follower)
    assert capsys.readouterr().out == f"experiment 7 “digits”: trial 1 waits: {SENTENCE}\n"


@pytest.mark.usefixtures("_terminal")
def test_terminal_is_not_told_again_what_was_displayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view, follower = LiveView(cast("Client", None), 7), cast("Any", FakeFollower())
    copy = copy_of(follower)
    copy.cluster, copy.reasons = waiting()[1], {1: reason(1)}
    view._note_what_was_told(view._view_state(follower, copy), follower)
    view._push(follower)
    assert capsys.readouterr().out == ""
