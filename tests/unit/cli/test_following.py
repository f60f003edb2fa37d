"""What `-f` shows of an experiment while its ranks print."""

from __future__ import annotations

import io

import pytest

from det_jupyter.cli.following import Display, _say_the_end
from det_jupyter.wire import LogLine, State
from tests.unit.view.view_samples import experiment, trial


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
    display = Display(7)
    display.show(line("begins"))
    display.show(line("nested\n epoch 10%", is_open=True))
    assert ("epoch 10%" in err.getvalue()) is is_terminal
    display.show(line("epoch 50%", is_open=True))
    display.show(line("of another rank", rank=1, is_open=True))
    assert ("epoch 50%" in err.getvalue()) is is_terminal
    assert "epoch" not in out.getvalue()
    display.show(line("epoch 100%"))
    display.keep_open_lines()
    display.close()
    texts = [each.rpartition("| ")[2] for each in out.getvalue().splitlines() if "|" in each]
    assert texts == ["begins", "epoch 100%", "of another rank"]


def test_a_sentence_about_the_end_keeps_one_mark_before_the_metric(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = experiment(trial(best_metric=0.5), state=State.ERROR, message="trial 1: try less.")
    assert _say_the_end(ended) == 1
    assert "trial 1: try less; " in capsys.readouterr().err
