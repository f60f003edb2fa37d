"""What `det master status` and `stop` print, and their exit status."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import GangPlan
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
    ("num", "named"), [(1, "(pid 1)"), (8, "pid 7, pid 8)"), (9, "pid 7, pid 8, ...)")]
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
