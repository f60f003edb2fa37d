"""`-f` follows an experiment: its lines, validations, and how it ends."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import Curves, LogLine, LogPage, LogQuery, State
from det_jupyter.errors import NotFound
from det_jupyter.front.cli import agent_verbs, following
from det_jupyter.front.cli.following import Display, follow, print_handle
from det_jupyter.view.live import LiveExperiment
from tests.unit.client.test_wait_for_end import Gone, Master, over
from tests.unit.view.view_samples import curve, experiment, trial


class Printing(Master):
    """Its first trial prints two lines."""

    def logs(self, trial_id: int, query: LogQuery) -> LogPage:
        lines = [
            LogLine(id=i, at=0.0, trial_id=trial_id, run=1, rank=0, text=text)
            for i, text in enumerate(["loads", "trains"], 1)
            if query.after is None or i > query.after
        ]
        return LogPage(lines=lines, total=2, last_id=2, is_over=True)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_TICK_S", 0.001)


@pytest.mark.parametrize(("state", "status"), [(State.COMPLETED, 0), (State.CANCELED, 1)])
def test_what_it_prints_and_how_it_ends_is_seen(
    state: State, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    master = Printing(experiment(trial()), over(state))
    assert follow(cast(Client, master), 7) == status
    found = capsys.readouterr()
    lines = (found.out + found.err).splitlines()
    assert "Waiting for first trial to begin..." in lines
    assert "Following first trial with ID 1" in lines
    assert [line.rpartition("| ")[2] for line in lines if "| " in line][:2] == ["loads", "trains"]
    assert "Trial log stream ended. To reopen log stream, run: det trial logs -f 1" in lines
    assert "trial=1 batch 1: validation error 0.5000" in lines
    ended = found.out if state is State.COMPLETED else found.err
    assert ended.splitlines()[-1].startswith("Experiment 7 “digits”: ")


class Bar:
    """What a bar of tqdm is told."""

    n = 0

    def __init__(self) -> None:
        self.did: list[Any] = []

    def set_description_str(self, text: str, refresh: bool = True) -> None:
        self.did.append(text)

    def set_postfix_str(self, text: str, refresh: bool = True) -> None:
        self.did.append(text)

    def refresh(self) -> None:
        self.did.append(self.n)

    def close(self) -> None:
        self.did.append("closed")


@pytest.mark.parametrize(("out", "err"), [(False, True), (True, False), (False, False)])
def test_where_a_stream_is_no_terminal_there_is_no_bar(
    out: bool, err: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: out, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: err, raising=False)
    display = Display(7)
    display.update(LiveExperiment(experiment(trial(), progress=0.5), [], [], 1))
    display.print_line("a line")
    display.close()
    found = capsys.readouterr()
    assert (found.out, found.err) == ("a line\n", "")


def test_in_a_terminal_a_bar_has_the_progress_and_the_best_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    made: list[Bar] = []

    def bar(**options: Any) -> Bar:
        made.append(Bar())
        return made[-1]

    written: list[str] = []
    bar.write = written.append  # type: ignore[attr-defined]
    monkeypatch.setattr(following, "tqdm", bar)
    display = Display(7)
    [line, progress] = made
    own = trial(best_metric=0.25)
    display.update(LiveExperiment(experiment(own, progress=0.5), [], [], 1))
    assert progress.did == ["digits (running)", "accuracy 0.2500", 500]
    display.update(LiveExperiment(experiment(trial(), progress=0.75), [], [], 2))
    assert progress.did[3:] == ["digits (running)", 750], "no value is known"
    display.print_line("a line")
    assert written == ["a line"], "above the bar"
    display.close()
    display.close()
    assert (line.did[-1], progress.did[-1]) == ("closed", "closed")
    assert progress.did.count("closed") == 1


def test_one_that_is_gone_is_told() -> None:
    with pytest.raises(NotFound, match="there is no experiment 7"):
        follow(cast(Client, Gone()), 7)


def test_an_interrupt_ends_only_the_following(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "_follow_first_trial", interrupt)
    assert follow(cast(Client, Printing(experiment(trial()))), 7) == 130
    assert capsys.readouterr().err == (
        "Stopped following. Experiment 7 goes on: `det e logs 7 -f` follows it again, "
        "`det e wait 7` waits, `det e kill 7` ends it.\n"
    )


def test_a_handle_is_shown_or_followed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = Experiment(cast(Client, Printing(over())), 7)
    assert print_handle(handle, SimpleNamespace()) == 0
    assert "digits" in capsys.readouterr().out
    monkeypatch.setattr(following, "follow", lambda client, number: number + 100)
    assert print_handle(handle, SimpleNamespace(follow=True)) == 107
    assert print_handle(handle, SimpleNamespace(follow=False)) == 0
    capsys.readouterr()
    assert print_handle([1, 2], SimpleNamespace(follow=True)) == 0
    assert capsys.readouterr().out == "[1, 2]\n"


def test_each_validation_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(7)
    live = LiveExperiment(experiment(trial()), [], [], 1)
    curves = [
        curve("validation", "error", [0.5]), curve("validation", "loss", [0.25]),
        curve("training", "loss", [0.75]),
    ]  # fmt: skip
    for more in ([], [curve("validation", "error", [0.5, 0.125])]):
        live.curves = Curves.of([*more, *curves[bool(more) :]])
        display.update(live)
        display.update(live)
    assert [line for line in capsys.readouterr().out.splitlines() if "validation" in line] == [
        "trial=1 batch 1: validation error 0.5000, loss 0.2500",
        "trial=1 batch 2: validation error 0.1250",
    ]


def test_a_state_that_changes_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(7)
    for view in (experiment(), experiment(), experiment(state=State.PAUSED), over()):
        display.update(LiveExperiment(view, [], [], 1))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Experiment 7 “digits”: ")
    assert "aused" in lines[0]


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({}, []),
        ({"port": 0}, ["--port", "0"]),
        ({"port": 7, "address": "10.0.0.1"}, ["--port", "7", "--address", "10.0.0.1"]),
    ],
)
def test_an_agent_replaces_this_process_and_reads_its_credentials(
    given: dict[str, Any],
    more: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    credentials = SimpleNamespace(agent="left", model_dump_json=lambda: '{"token": "t"}')
    started: list[Any] = []
    copied: list[bytes] = []

    def duplicate(descriptor: int, target: int) -> None:
        assert target == 0
        copied.append(os.pread(descriptor, 100, 0))

    monkeypatch.setattr(agent_verbs, "own_credentials", lambda *_: credentials)
    monkeypatch.setattr(agent_verbs, "find_problem", lambda _: "it is too old" if more else "")
    replaced = SimpleNamespace(
        dup2=duplicate, execve=lambda *given: started.append(given), environ=os.environ
    )
    monkeypatch.setattr(agent_verbs, "os", replaced)
    options = {"credentials": None, "node": None, "home": "here", "port": None, "address": None}
    agent_verbs.run(cast(Any, SimpleNamespace(options=SimpleNamespace(**{**options, **given}))))
    [(program, arguments, environment)] = started
    assert program == arguments[0] == sys.executable
    assert arguments[1:] == [
        "-m", "det_jupyter.agent", "--credentials", "--leave-after-s", "inf", *more,
    ]  # fmt: skip
    assert environment[paths.HOME_VARIABLE].endswith("/here")
    assert copied == [b'{"token": "t"}']
    assert capsys.readouterr().err == ("agent left: it is too old\n" if more else "")
