"""When the agent of this computer is started, and what is said of one that is silent or fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.engine import local
from det_jupyter.engine.local import LocalEngine
from tests.processes import at_home


@dataclass
class Agents:
    """Stands for the agents of this computer: they run until a test ends them."""

    now: float = 100.0
    lock_is_held: bool = False
    started: list[tuple[str, ...]] = field(default_factory=list)
    status: int | None = None  # of the last one
    is_missing: bool = False  # the interpreter
    ended: int = 0

    def start(self, agents: Sequence[str]) -> Any:
        if self.is_missing:
            raise FileNotFoundError("python")
        self.started.append(tuple(agents))
        self.status = None
        owner = self

        class Started:
            pid = 17

            @property
            def returncode(self) -> int | None:
                return owner.status

            def poll(self) -> int | None:
                return owner.status

            def terminate(self) -> None:
                owner.ended += 1

        return Started()


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Agents:
    agents = Agents()
    monkeypatch.setattr(local, "start_agent", agents.start)
    monkeypatch.setattr(local, "is_agent_running", lambda: agents.lock_is_held)
    monkeypatch.setattr(local, "time", SimpleNamespace(monotonic=lambda: agents.now))
    return agents


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with at_home(tmp_path, {}):
        yield tmp_path


def test_an_agent_is_started_once_with_the_agents_that_it_offers(agents: Agents) -> None:
    engine = LocalEngine(["a=cpu:2"])
    assert not engine.is_running()
    assert engine.keep(()) == ["the agent of this computer, pid=17"]
    assert engine.is_running()
    agents.now += 1000
    assert engine.keep(()) == []
    assert agents.started == [("a=cpu:2",)]
    engine.dismiss()
    assert agents.ended == 1


def test_no_agent_is_started_beside_one_that_is_connected_or_holds_the_lock(
    agents: Agents,
) -> None:
    engine = LocalEngine()
    assert engine.keep(["box"]) == []
    agents.lock_is_held = True
    assert engine.keep(()) == []
    assert engine.is_running()
    agents.lock_is_held = False
    assert LocalEngine(starts=False).keep(()) == []
    assert agents.started == []
    engine.dismiss()
    assert agents.ended == 0


def test_agents_that_soon_exit_are_started_after_pauses_that_grow_to_five_seconds(
    agents: Agents,
) -> None:
    engine = LocalEngine()
    engine.keep(())
    for pause_s in (0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
        agents.status = 0
        agents.now += pause_s - 0.01
        assert engine.keep(()) == []
        agents.now += 0.02
        assert len(engine.keep(())) == 1
    agents.status = 0
    agents.now += 10.0  # it has lasted, so the next pause is short again
    assert len(engine.keep(())) == 1
    agents.status = 0
    agents.now += 0.21
    assert len(engine.keep(())) == 1
    assert engine.problem == ""  # it exits in order where another agent runs


def test_an_agent_that_fails_at_its_start_is_a_problem_until_one_is_connected(
    agents: Agents, home: Path
) -> None:
    paths.agent_log().parent.mkdir(parents=True, exist_ok=True)
    paths.agent_log().write_text("first\n" + "x" * 300 + "\n")
    engine = LocalEngine()
    engine.keep(())
    agents.status = 3
    agents.now += 1.0
    engine.keep(())
    assert engine.problem.startswith(
        f"the agent ends at its start (exit status 3: {'x' * 200}); if the master's environment"
    )
    engine.keep(["box"])
    assert engine.problem == ""


def test_an_interpreter_that_is_gone_is_a_problem(agents: Agents) -> None:
    agents.is_missing = True
    engine = LocalEngine()
    assert engine.keep(()) == []
    assert engine.problem.startswith(f"no agent can be started, because {sys.executable} is gone;")
    assert not engine.is_running()


def process(**facts: Any) -> Any:
    given = {"pid": 9, "is_here": True, "is_frozen": False, "on_host": ""}
    return SimpleNamespace(**{**given, **facts})


def test_a_silent_agent_is_named_with_what_ends_or_wakes_it(agents: Agents) -> None:
    engine = LocalEngine()
    assert engine.why_silent("box", process()) is None
    agents.lock_is_held = True
    assert LocalEngine(starts=False).why_silent("box", process()) is None
    assert engine.why_silent("box", process()) == (
        "agent box (process 9) does not answer; `kill -KILL 9` ends it, and its trials go on from "
        "their checkpoints"
    )
    assert engine.why_silent("box", process(is_frozen=True)) == (
        "agent box (process 9) is stopped: `kill -CONT 9` lets it go on; `kill -KILL 9` ends it, "
        "and its trials go on from their checkpoints"
    )
    elsewhere = process(is_here=False, on_host=" on node-b")
    assert engine.why_silent("box", elsewhere) == (
        "agent box (process 9 on node-b) does not answer"
    )


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (True, (["the agent (pid 9 on b) (the next master continues its trials)"], [])),
        (False, ([], ["the agent (pid 9 on b)"])),
    ],
)
def test_the_agent_that_holds_the_lock_is_ended(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, ends: bool, expected: Any
) -> None:
    given: list[float] = []

    def end(patience_s: float) -> bool:
        given.append(patience_s)
        return ends

    holder = process(on_host=" on b", end=end)
    monkeypatch.setattr(local, "holder_of", lambda lock: holder)
    assert LocalEngine().end_all(2.0) == ([], [])
    agents.lock_is_held = True
    assert LocalEngine().end_all(2.0) == expected
    assert given == [2.0]
    monkeypatch.setattr(local, "holder_of", lambda lock: None)
    assert LocalEngine().end_all(2.0) == ([], ["the agent"])


def test_an_agent_is_a_session_of_its_own_and_logs_to_its_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def start(words: list[str], **facts: Any) -> Any:
        given.update(facts, words=words)
        given["log"] = Path(f"/proc/self/fd/{facts['stdout']}").resolve()
        return None

    monkeypatch.setattr(subprocess, "Popen", start)
    paths.agent_log().parent.mkdir(parents=True, exist_ok=True)
    local.start_agent(["a=cpu:1", "b=cpu:2"])
    assert given["words"][1:] == [
        "-m", "det_jupyter.agent", "--agent", "a=cpu:1", "--agent", "b=cpu:2",
    ]  # fmt: skip
    assert given["start_new_session"] is True
    assert given["cwd"] == paths.data_dir()
    assert given["log"] == paths.agent_log().resolve()
    assert given["stdout"] == given["stderr"]
    assert not local.is_agent_running()
