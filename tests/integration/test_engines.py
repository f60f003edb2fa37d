"""What holds for every starter of agents, the real one and the one of the tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import holder_of
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.engine import Engine, LocalEngine
from det_jupyter.engine.local import is_agent_running
from tests.fake_engine import FakeEngine
from tests.integration.agent_support import assert_gone
from tests.processes import at_home, wait_until

PATIENCE_S = 20.0


class EngineContract:
    """What the docstrings of det_jupyter/engine/contract.py say.

    `make` returns an engine object; `pid_of` the process of its (first) agent.
    """

    agent_id = "one"

    @staticmethod
    def make(home: Path) -> Engine:
        raise NotImplementedError

    @staticmethod
    def pid_of(home: Path) -> int | None:
        raise NotImplementedError

    @pytest.fixture
    def home(self, tmp_path: Path, light_torch: None) -> Iterator[Path]:
        self.made: list[Engine] = []
        with at_home(tmp_path / "home", {"DET_JUPYTER_CPU_SLOTS": "1"}):
            yield tmp_path / "home"
            self.engine(tmp_path / "home").end_all(PATIENCE_S)
            # A child of an agent has its lock until it has started.
            wait_until(
                lambda: not any([engine.is_running() for engine in self.made]), "all have ended"
            )
            assert_gone(tmp_path / "home")

    def engine(self, home: Path) -> Engine:
        """Return an engine, as each master makes one."""
        self.made.append(type(self).make(home))
        return self.made[-1]

    def started(self, engine: Engine, home: Path) -> int:
        """Return the process of the agent, once it is there."""
        assert engine.keep(())
        return wait_until(lambda: type(self).pid_of(home), "the agent is there")

    def test_what_is_missing_is_started_and_only_once(self, home: Path) -> None:
        engine = self.engine(home)
        assert not engine.is_running()
        assert engine.why_silent(self.agent_id, ProcessIdentity.of(1)) is None
        pid = self.started(engine, home)
        for each in (engine, self.engine(home)):  # another object: of the next master
            assert each.keep(()) == []
            assert each.is_running()
        assert type(self).pid_of(home) == pid

    def test_one_that_was_killed_is_started_again(self, home: Path) -> None:
        engine = self.engine(home)
        pid = self.started(engine, home)
        os.kill(pid, signal.SIGKILL)

        def successor() -> int | None:
            engine.keep(())
            found = type(self).pid_of(home)
            return found if found != pid else None

        wait_until(successor, "another one came")

    def test_one_that_is_stopped_is_told_and_is_no_dead_one(self, home: Path) -> None:
        engine = self.engine(home)
        pid = self.started(engine, home)

        def why() -> str:
            return engine.why_silent(self.agent_id, ProcessIdentity.of(pid)) or ""

        assert "does not answer" in why()
        psutil.Process(pid).suspend()
        wait_until(lambda: "is stopped" in why(), "it is told")
        psutil.Process(pid).resume()

    def test_what_it_started_can_be_dismissed(self, home: Path) -> None:
        engine = self.engine(home)
        self.started(engine, home)
        for _ in range(2):
            engine.dismiss()
        wait_until(lambda: not engine.is_running(), "it has left")

    def test_the_engine_of_another_master_ends_all(self, home: Path) -> None:
        self.started(self.engine(home), home)
        other = self.engine(home)
        ended, left = other.end_all(PATIENCE_S)
        assert ended
        assert left == []
        wait_until(lambda: not other.is_running(), "its lock is free")
        assert other.end_all(PATIENCE_S) == ([], [])


class TestLocalEngine(EngineContract):
    """The starter of this computer's agent."""

    @staticmethod
    def make(home: Path) -> LocalEngine:
        """Return an engine of this home."""
        return LocalEngine()

    @staticmethod
    def pid_of(home: Path) -> int | None:
        """Return the process that holds the agent's lock."""
        holder = holder_of(paths.agent_lock())
        return None if holder is None else holder.pid

    def test_without_leave_to_start_it_only_ends(self, home: Path) -> None:
        hands_off = LocalEngine(starts=False)
        hands_off.keep(())
        assert not is_agent_running()
        self.started(self.engine(home), home)
        assert hands_off.why_silent(self.agent_id, ProcessIdentity.of(1)) is None
        assert hands_off.end_all(PATIENCE_S)[1] == []

    def test_a_python_that_was_deleted_is_named(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = self.engine(home)
        monkeypatch.setattr("sys.executable", "/gone/bin/python")
        assert engine.keep(()) == []
        assert engine.problem.startswith("no agent can be started, because /gone/bin/python is")
        assert "det_jupyter.master restart" in engine.problem
        assert engine.keep(["vm"]) == []  # one came, started by hand
        assert engine.problem == ""

    def test_an_agent_that_ends_at_its_start_is_named_with_its_last_line(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        python = tmp_path / "python"
        python.write_text("#!/bin/sh\necho some line\necho No module named det_jupyter\nexit 1\n")
        python.chmod(0o700)
        monkeypatch.setattr("sys.executable", str(python))
        engine = self.engine(home)

        def problem() -> str:
            engine.keep(())
            return engine.problem

        found = wait_until(problem, "it has ended, and was started again")
        told = "the agent ends at its start (exit status 1: No module named det_jupyter); "
        assert found.startswith(told)
        wait_until(lambda: not engine.is_running(), "the last one has ended")


class TestFakeEngine(EngineContract):
    """The starter of the tests."""

    @staticmethod
    def make(home: Path) -> FakeEngine:
        """Return an engine of this home."""
        home.mkdir(exist_ok=True)
        return FakeEngine(home / "fake-agents.json")

    @staticmethod
    def pid_of(home: Path) -> int | None:
        """Return the process of the first name."""
        found = FakeEngine(home / "fake-agents.json")._running().get("one")
        return None if found is None else found.pid
