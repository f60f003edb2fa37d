"""`-f` follows an experiment: its lines, validations, and how it ends."""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Experiment
from det_jupyter.client.following import follow as follow_module
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    Divergence,
    ExperimentView,
    HangReport,
    LogLine,
    LogPage,
    LogQuery,
    SearchView,
    State,
)
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.front.cli import agent_verbs, following
from det_jupyter.front.cli.following import Display, follow, print_handle
from tests.unit.client.documents_fake import FakeDocument, FakeDocuments, state_of
from tests.unit.client.test_wait_for_end import STALL, Gone, Master, over
from tests.unit.view.view_samples import CREATED_AT, allocation, curve, experiment, trial

LEAVING = Leaving(
    experiment_id=7, num_slots=2, num_ranks=2, num_trials=1, then="ends", since=CREATED_AT
)
DIVERGED = Divergence(metric="loss", value="NaN", since=4)


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
    assert follow(master.client, 7) == status
    found = capsys.readouterr()
    lines = (found.out + found.err).splitlines()
    assert "Waiting for first trial to begin..." in lines
    assert "Following first trial with ID 1" in lines
    assert [line.rpartition("| ")[2] for line in lines if "| " in line][:2] == ["loads", "trains"]
    assert "Trial log stream ended. To reopen log stream, run: det trial logs -f 1" in lines
    assert lines.count("trial=1 batch 1: validation error 0.5000") == 1
    ended = found.out if state is State.COMPLETED else found.err
    assert ended.splitlines()[-1].startswith("Experiment 7 “digits”: ")


class Late(Printing):
    """The version of its curves that is followed has no validation yet."""

    def document(self, name: str, **args: Any) -> FakeDocument:
        """Return a document; of `curves` the first one is empty."""
        is_first = all("group" not in each.args[0] for each in self.documents)
        made = super().document(name, **args)
        return FakeDocument([{"curves": []}], **args) if name == "curves" and is_first else made


def test_a_validation_that_comes_with_the_end_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert follow(Late(over()).client, 7) == 0
    found = capsys.readouterr().out
    assert found.count("trial=1 batch 1: validation error 0.5000\n") == 1


class Silent(Printing):
    """Its reader says nothing; the master answers with each view in turn, then with the last."""

    def __init__(self, *views: Any) -> None:
        super().__init__(views[-1])
        self.versions = {}
        self._coming = [*views[:-1]]

    def experiment(self, number: int) -> ExperimentView:
        """Return the next view, or raise it."""
        view = self._coming.pop(0) if self._coming else self.views[-1]
        if isinstance(view, Exception):
            raise view
        return view


def test_without_a_reader_its_output_is_printed_and_its_end_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(follow_module, "_SILENT_S", 0.01)
    restarts: Any = MasterUnreachable("it restarts")
    assert follow(Silent(restarts, experiment(trial()), restarts, over()).client, 7) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Following first trial with ID 1" in lines
    assert [line.rpartition("| ")[2] for line in lines if "| " in line][:2] == ["loads", "trains"]
    assert lines[-1].startswith("Experiment 7 “digits”: completed")


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
    display = Display(FakeDocuments().client)
    display.update(state_of(experiment(trial(), progress=0.5)))
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
    display = Display(FakeDocuments().client)
    [line, progress] = made
    own = trial(best_metric=0.25)
    display.update(state_of(experiment(own, progress=0.5)))
    assert progress.did == ["digits (running)", "accuracy 0.2500", 500]
    display.update(state_of(experiment(trial(), progress=0.75)))
    assert progress.did[3:] == ["digits (running)", 750], "no value is known"
    display.print_line("a line")
    assert written == ["a line"], "above the bar"
    display.close()
    display.close()
    assert (line.did[-1], progress.did[-1]) == ("closed", "closed")
    assert progress.did.count("closed") == 1


def test_one_that_is_gone_is_told() -> None:
    with pytest.raises(NotFound, match="there is no experiment 7"):
        follow(Gone().client, 7)


def test_an_interrupt_ends_only_the_following(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "_follow_first_trial", interrupt)
    assert follow(Printing(experiment(trial())).client, 7) == 130
    assert capsys.readouterr().err == (
        "Stopped following. Experiment 7 goes on: `det e logs 7 -f` follows it again, "
        "`det e wait 7` waits, `det e kill 7` ends it.\n"
    )
    assert not [each for each in threading.enumerate() if each.name.startswith("det-follow")]


def test_a_handle_is_shown_or_followed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = Experiment(Printing(over()).client, 7)
    assert print_handle(handle, SimpleNamespace()) == 0
    assert "digits" in capsys.readouterr().out
    monkeypatch.setattr(following, "follow", lambda client, number: number + 100)
    assert print_handle(handle, SimpleNamespace(follow=True)) == 107
    assert print_handle(handle, SimpleNamespace(follow=False)) == 0
    capsys.readouterr()
    assert print_handle([1, 2], SimpleNamespace(follow=True)) == 0
    assert capsys.readouterr().out == "[1, 2]\n"


def test_each_validation_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(FakeDocuments().client)
    loss = curve("validation", "loss", [0.25])
    found: list[list[float | None]] = [[0.5], [0.5], [0.5, 0.125]]
    for errors in found:
        curves = [curve("validation", "error", errors), loss]
        assert not display.print_validations({"curves": [each.model_dump() for each in curves]})
    assert [line for line in capsys.readouterr().out.splitlines() if "validation" in line] == [
        "trial=1 batch 1: validation error 0.5000, loss 0.2500",
        "trial=1 batch 2: validation error 0.1250",
    ]


def test_a_state_that_changes_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(FakeDocuments().client)
    queued = trial(allocation=None)
    views = [experiment(), experiment(queued), experiment(trial()),
             experiment(queued, state=State.PAUSED), experiment(queued),
             experiment(trial(leaving=LEAVING), state=State.STOPPING_KILLED),
             over(message="it is over")]  # fmt: skip
    ended = [display.update(state_of(view)) for view in views]
    assert ended == [False] * 6 + [True]
    assert capsys.readouterr().out.splitlines() == [
        "Experiment 7 “digits”: paused",
        "Experiment 7 “digits”: queued",
        "Experiment 7 “digits”: stopping: it is being killed, which frees 2 slots",
    ]


@pytest.mark.parametrize(
    ("own", "changes", "line"),
    [
        (trial(allocation=None), {"message": "a disk is full"}, "paused: A disk is full"),
        (
            trial(allocation=None, divergence=DIVERGED, alarms=["loss is NaN since batch 4."]),
            {},
            "paused, diverged: Trial 1: loss is NaN since batch 4.",
        ),
    ],
)
def test_a_state_has_its_reason(
    own: Any, changes: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    display = Display(FakeDocuments().client)
    display.update(state_of(experiment(trial())))
    display.update(state_of(experiment(own, state=State.PAUSED, **changes)))
    assert capsys.readouterr().out == f"Experiment 7 “digits”: {line}\n"


def test_a_hang_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    hangs = HangReport(since=100.0, at=106.0, ranks=[STALL])
    own = trial(allocation=allocation().model_copy(update={"hang": hangs}))
    display = Display(FakeDocuments().client)
    for view in (experiment(own), experiment(own), experiment(trial())):
        display.update(state_of(view))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "experiment 7 “digits”: trial 1 hangs: rank 1 has been in `time.sleep`"
    )
    assert second == "experiment 7 “digits”: trial 1 hangs no longer"


def test_the_first_trial_of_a_search_is_the_one_with_the_lowest_number() -> None:
    display = Display(FakeDocuments().client)
    search = SearchView(name="random", max_trials=4)
    display.update(state_of(experiment(search=search)))
    assert display.first_trial is None
    display.update(state_of(experiment(trial(id=4), trial(id=5), search=search)))
    assert display.first_trial == 4


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({}, []),
        ({"port": 0}, ["--port", "0"]),
        ({"port": 7, "address": "10.0.0.1"}, ["--port", "7", "--address", "10.0.0.1"]),
        ({"grace": 90.0}, ["--grace-s", "90.0"]),
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
    options = {"credentials": None, "node": None, "home": "here", "port": None}
    options |= {"address": None, "grace": None}
    agent_verbs.run(cast(Any, SimpleNamespace(options=SimpleNamespace(**{**options, **given}))))
    [(program, arguments, environment)] = started
    assert program == arguments[0] == sys.executable
    assert arguments[1:] == [
        "-m", "det_jupyter.agent", "--credentials", "--leave-after-s", "inf", *more,
    ]  # fmt: skip
    assert environment[paths.HOME_VARIABLE].endswith("/here")
    assert copied == [b'{"token": "t"}']
    assert capsys.readouterr().err == ("agent left: it is too old\n" if more else "")
