"""What `det master status` and `stop` print, and their exit status."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import DiskStatus, GangPlan, MasterInfo
from det_jupyter.errors import DetError
from det_jupyter.master import cli

PLAN = cast(GangPlan, Namespace(trial_id=4, experiment_id=2))


def run(verb: str, **options: Any) -> int:
    return cli.run(Namespace(verb=verb, **({"json": False, "everything": False} | options)))


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("find_master", "announced_master", "end_master", "find_agent_without_master"):
        monkeypatch.setattr(cli, name, lambda: None)
    monkeypatch.setattr(cli, "find_processes_without_agent", list)


def test_without_a_master_the_status_is_3_and_folders_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("status") == 3
    first, folders = capsys.readouterr().out.splitlines()
    assert first == "No master runs."
    assert folders.startswith("Data: ")
    assert run("status", json=True) == 3
    assert json.loads(capsys.readouterr().out) is None


@pytest.mark.parametrize(
    ("pid", "plans", "sentence"),
    [
        (9, [PLAN], "An agent (pid 9) runs without a master and trains trial 4 of experiment 2."),
        (0, [], "An agent runs without a master and trains nothing."),
    ],
)
def test_an_agent_without_a_master_is_described(
    pid: int,
    plans: list[GangPlan],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli, "find_agent_without_master", lambda: (pid, plans))
    assert run("status") == 3
    assert sentence in capsys.readouterr().out
    assert run("stop") == 0
    assert sentence in capsys.readouterr().out
    assert run("status", json=True) == 3
    trials = [{"experiment_id": 2, "trial_id": 4}] if plans else []
    assert json.loads(capsys.readouterr().out) == {
        "master": None,
        "agent": {"pid": pid or None, "trials": trials},
    }


@pytest.mark.parametrize(
    ("num", "named"), [(1, "(pid 1)"), (8, "pid 7 and pid 8)"), (10, "pid 7, pid 8 and 2 more)")]
)
def test_processes_without_an_agent_are_named(
    num: int, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "find_processes_without_agent", lambda: list(range(1, num + 1)))
    assert run("status") == 3
    assert named in capsys.readouterr().out


def test_an_error_is_printed_and_the_status_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise DetError("it does not stop")

    monkeypatch.setattr(cli, "end_master", refuse)
    assert run("stop") == 1
    assert capsys.readouterr().err == "it does not stop\n"


def test_all_that_was_ended_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for ended, text in (([], "Nothing runs."), (["a", "b"], "Ended: a, b. Nothing runs now.")):
        monkeypatch.setattr(cli, "end_everything", lambda ended=ended: ended)
        assert run("stop", everything=True) == 0
        assert capsys.readouterr().out == f"{text}\n"


class Answers:
    """A connection to a master that answers each request with its status."""

    def __init__(self, status: dict[str, Any]) -> None:
        self.status = status
        self.is_closed = False

    def __call__(self, info: MasterInfo) -> Answers:
        return self

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/status"
        return self.status

    def close(self) -> None:
        self.is_closed = True


STATUS: dict[str, Any] = {
    "master": {"pid": 7, "url": "http://127.0.0.1:8", "version": "1.2"},
    "agents": [],
    "experiments": [],
    "num_experiments": 5,
    "problems": [],
}
INFO = cast(MasterInfo, Namespace(pid=7, url="http://127.0.0.1:8"))
DISK = DiskStatus(folder="/d", total_bytes=10**12, free_bytes=0, state="full", is_full=True)


def described(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **changes: Any
) -> list[str]:
    """Return what `status` prints of a running master, but for the first and last line."""
    answers = Answers(STATUS | changes)
    monkeypatch.setattr(cli, "find_master", lambda: INFO)
    monkeypatch.setattr(cli, "Session", answers)
    assert run("status") == 0
    assert answers.is_closed
    first, *lines, folders = capsys.readouterr().out.splitlines()
    assert first == "The master runs: pid 7, http://127.0.0.1:8, version 1.2."
    assert folders.startswith("Data: ")
    assert run("status", json=True) == 0
    assert json.loads(capsys.readouterr().out) == STATUS | changes
    return lines


def agent(**changes: Any) -> dict[str, Any]:
    slots = [{"allocation_id": "1.1.1"}, {"allocation_id": None}]
    whole = {"id": "box", "slots": slots, "connected": True}
    return whole | {"problem": ""} | changes


def test_an_idle_master_says_how_many_experiments_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert described(monkeypatch, capsys) == [
        "No agent has come yet.",
        "No experiment is active; 5 in all.",
    ]


def test_what_runs_and_what_is_wrong_is_described(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = agent(
        id="other", slots=[{"allocation_id": None}] * 2, connected=False, problem="it is frozen"
    )
    back = agent(id="back", problem="it was frozen")
    experiment = {"id": 3, "name": "digits", "state": "RUNNING", "progress": 0.256}
    lines = described(
        monkeypatch,
        capsys,
        agents=[agent(), away, back],
        experiments=[experiment],
        problems=["pools.yaml: wrong"],
        disks=[DISK.model_dump(mode="json")],
    )
    assert lines[:-1] == [
        "Agent box: 1 of 2 slots in use.",
        "Agent other: 0 of 2 slots in use, not connected.",
        "  it is frozen.",
        "Agent back: 1 of 2 slots in use.",
        "Experiment 3 “digits”: running, 26%.",
        "Problem: pools.yaml: wrong",
    ]
    assert lines[-1].startswith("Problem: /d: 0 B free")


def test_starting_and_restarting_name_the_master(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(cli, "ensure_master", lambda: INFO)
    monkeypatch.setattr(cli, "end_master", lambda: ended.append(1))
    for verb, num_ended in (("start", 0), ("restart", 1)):
        assert run(verb) == 0
        assert capsys.readouterr().out == "The master runs: pid 7, http://127.0.0.1:8\n"
        assert len(ended) == num_ended


@pytest.mark.parametrize(
    ("ended", "successor", "lines"),
    [
        (None, None, ["No master runs."]),
        (INFO, None, ["The master has stopped."]),
        (INFO, INFO, ["The master has stopped.", "Another one has started since: pid 7."]),
    ],
)
def test_stopping_says_what_was_stopped_and_what_has_started(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: MasterInfo | None,
    successor: MasterInfo | None,
    lines: list[str],
) -> None:
    monkeypatch.setattr(cli, "end_master", lambda: ended)
    monkeypatch.setattr(cli, "announced_master", lambda: successor)
    assert run("stop") == 0
    assert capsys.readouterr().out.splitlines() == lines
