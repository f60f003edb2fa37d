"""`python -m det_jupyter.master`: one master at a time, and its agent is started first."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import is_locked, take_lock
from det_jupyter.errors import DetError
from det_jupyter.master import __main__ as program
from det_jupyter.master import cli, serve
from det_jupyter.master.background import reader_starter


class Started:
    """What the program has done, in its order."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def engine(self, simulated: Collection[str], *, starts: bool) -> Started:
        self.steps.append(("engine", list(simulated), starts))
        return self

    def keep(self, connected: Collection[str]) -> None:
        self.steps.append(("keep", list(connected), is_locked(paths.master_lock())))

    @contextmanager
    def readers(self, target: str) -> Iterator[Started]:
        assert target == program.READER
        self.steps.append("starter")
        yield self

    def serve(self, engine: Any, starter: Any) -> None:
        assert engine is starter is self
        self.steps.append(("serve", paths.master_file().exists()))


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started()
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(program, "start_clean", lambda: started.steps.append("clean"))
    monkeypatch.setattr(program, "LocalEngine", started.engine)
    monkeypatch.setattr(reader_starter, "reader_starter", started.readers)
    monkeypatch.setattr(serve, "serve", started.serve)
    return started


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["master", *arguments])
    return program.main()


@pytest.mark.parametrize(("arguments", "starts"), [([], True), (["--no-agent"], False)])
def test_the_lock_is_taken_and_the_agent_started_before_it_serves(
    started: Started, monkeypatch: pytest.MonkeyPatch, arguments: list[str], starts: bool
) -> None:
    paths.runtime_dir()
    assert run(monkeypatch, "serve", *arguments) == 0
    assert started.steps == [
        "clean", ("engine", [], starts), ("keep", [], True), "starter", ("serve", False),
    ]  # fmt: skip


def test_the_file_of_a_master_that_was_killed_is_removed(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.runtime_dir()
    paths.master_file().write_text("{}")
    assert run(monkeypatch, "serve") == 0
    assert started.steps[-1] == ("serve", False)


def test_no_second_master_serves_while_one_does(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = take_lock(paths.master_lock(), timeout_s=0)
    assert lock is not None
    paths.runtime_dir()
    paths.master_file().write_text("{}")
    assert run(monkeypatch, "serve") == 0
    assert started.steps == ["clean"]
    assert paths.master_file().exists()
    os.close(lock)


def test_simulated_agents_of_the_file_are_started(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.data_dir()
    paths.pools_file().write_text("agents: [{id: a, slots: 'cpu:2'}, {id: b, slots: 'cpu:1'}]")
    assert run(monkeypatch, "serve") == 0
    assert started.steps[1] == ("engine", ["a=cpu:2", "b=cpu:1"], True)


def test_a_folder_that_cannot_be_used_is_told_to_the_starter(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Path:
        raise DetError("cannot use the folder")

    monkeypatch.setattr(paths, "master_lock", refuse)
    with pytest.raises(SystemExit, match="cannot use the folder"):
        run(monkeypatch, "serve")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["start"], {}),
        (["restart"], {}),
        (["stop"], {"everything": False}),
        (["stop", "--everything"], {"everything": True}),
        (["status"], {"json": False}),
        (["status", "--json"], {"json": True}),
    ],
)
def test_other_commands_are_those_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], options: dict[str, bool]
) -> None:
    monkeypatch.setattr(cli, "run", lambda given: given)
    given: Any = run(monkeypatch, *arguments)
    assert vars(given) == {"verb": arguments[0]} | options


@pytest.mark.parametrize("arguments", [[], ["dance"], ["stop", "--no-agent"]])
def test_other_words_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments)
    assert "usage: python -m det_jupyter.master" in capsys.readouterr().err
