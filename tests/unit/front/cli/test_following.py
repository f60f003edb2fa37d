"""What `-f` shows of an experiment while its ranks print."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.client import Experiment
from det_jupyter.contract.messages import AllocationState, LogLine, Reason, State
from det_jupyter.front.cli.following import Display, _print_outcome, print_handle
from det_jupyter.view import ViewState
from tests.unit.client.documents_fake import FakeDocuments, state_of
from tests.unit.front.verbs.cluster_samples import reason
from tests.unit.view.view_samples import allocation, experiment, failure, trial


class Terminal(io.StringIO):
    """A stream that is a terminal, or none."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_terminal  # type: ignore[method-assign]


def line(text: str, *, rank: int = 0, is_open: bool = False) -> LogLine:
    return LogLine(id=1, at=0.0, trial_id=3, run=1, rank=rank, text=text, is_open=is_open)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_that_is_rewritten_is_seen_while_it_is_written(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    out, err = Terminal(is_terminal=is_terminal), Terminal(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    display = Display(FakeDocuments().client)
    display.print_output(line("begins"))
    display.print_output(line("nested\n epoch 10%", is_open=True))
    assert ("epoch 10%" in err.getvalue()) is is_terminal
    display.print_output(line("epoch 50%", is_open=True))
    display.print_output(line("of another rank", rank=1, is_open=True))
    assert ("epoch 50%" in err.getvalue()) is is_terminal
    assert "epoch" not in out.getvalue()
    display.print_output(line("epoch 100%"))
    display.finish_open_lines()
    display.close()
    texts = [each.rpartition("| ")[2] for each in out.getvalue().splitlines() if "|" in each]
    assert texts == ["begins", "epoch 100%", "of another rank"]


def test_a_sentence_about_the_end_keeps_one_mark_before_the_metric(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = experiment(trial(best_metric=0.5), state=State.ERROR, message="trial 1: try less.")
    assert _print_outcome(ended) == 1
    assert "trial 1: try less; " in capsys.readouterr().err


class Waiting(FakeDocuments):
    """A master whose trial 1 waits, or not any more."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        sentence = "needs 4 slots; experiment 3 “%det_experiment !ls” holds 4"
        self.found = reason(trial_id=1, sentence=sentence, position=0)
        self.now = self.found.model_copy(update=changes)
        self.asked: list[int] = []

    def reason(self, trial_id: int) -> Reason:
        """Return why the trial does not run now."""
        self.asked.append(trial_id)
        return self.now

    def state(self, **changes: Any) -> ViewState:
        """Return the state of the view in which it waits."""
        own = trial(allocation=allocation(AllocationState.QUEUED))
        view = experiment(own, **{"name": "try %pip cache", **changes})
        return state_of(view, reasons={1: self.found})


def test_names_with_magics_in_them_are_followed_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    master = Waiting()
    display = Display(master.client)
    monkeypatch.setattr(display, "_quiet_until", 0.0)
    display.update(master.state())
    display.update(master.state())
    display.update(master.state(state=State.PAUSED))
    out = capsys.readouterr().out
    assert out.count(f"Trial 1: {master.found.sentence}\n") == 1
    assert "        det experiment set 5 --priority 10\n" in out
    assert "Experiment 7 “try %pip cache”: paused\n" in out
    assert _print_outcome(experiment(name="try %pip cache", state=State.COMPLETED)) == 0
    assert "“try %pip cache”" in capsys.readouterr().out


def test_a_trial_that_starts_meanwhile_has_no_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    master = Waiting(cause="starting", sentence="its ranks are starting", position=None)
    display = Display(master.client)
    display.update(master.state())
    assert not master.asked, "each trial waits for some milliseconds"
    monkeypatch.setattr(display, "_quiet_until", 0.0)
    display.update(master.state())
    assert master.asked == [1]
    assert capsys.readouterr().out == ""


def test_a_traceback_is_shown_as_it_was_printed(capsys: pytest.CaptureFixture[str]) -> None:
    printed = 'File "train.py", line 3\n    !ls\n    ^\n%det is no Python'
    broken = trial(state=State.ERROR, failure=failure(traceback=printed), allocation=None)
    master = FakeDocuments(experiment=[state_of(experiment(broken, state=State.ERROR))])
    print_handle(Experiment(master.client, 7), SimpleNamespace())
    out = capsys.readouterr().out
    assert "  |     !ls\n" in out
    assert "  | %det is no Python\n" in out
    assert "logs: det experiment logs 7 --trial 1 --rank 1\n" in out
