"""How a master, an agent without a master, and what else runs in a home are ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.rundir import run_dir
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import DetError, MasterUnreachable
from det_jupyter.master import stopping
from tests.integration.agent_support import make_plan


class Home:
    """A home in which the test says what runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.posted: list[tuple[str, Any]] = []
        self.refuses = False
        self.info: MasterInfo | None = None
        self.agents: list[dict[str, bool]] = []
        self.num_asked = 0  # for the agents
        self.has_agent = False
        self.left: list[str] = []  # agents that do not end
        self.on_stop = self.forget  # what happens when a master is asked to stop
        self.is_startable = True
        monkeypatch.setattr(stopping, "announced_master", lambda: self.info)
        monkeypatch.setattr(stopping, "Session", self.session)
        monkeypatch.setattr(stopping, "ensure_master", self.ensure)
        monkeypatch.setattr(stopping, "must_be_awake", lambda info: None)
        monkeypatch.setattr(stopping, "ENGINES", {"fake": lambda: self})
        monkeypatch.setattr(stopping, "programs_of", lambda folder: [])
        monkeypatch.setattr(stopping, "waiting_for", self.waiting_for)

    @staticmethod
    @contextmanager
    def waiting_for(what: str) -> Iterator[Any]:
        yield lambda pid: None

    def forget(self) -> None:
        """Let the master be gone."""
        self.info = None

    def session(self, info: MasterInfo) -> Home:
        return self

    def close(self) -> None:
        self.posted.append(("closed", None))

    def post(self, path: str, body: Any) -> None:
        if self.refuses:
            raise MasterUnreachable("no answer")
        self.posted.append((path, body))
        self.on_stop()

    def get(self, path: str) -> dict[str, list[dict[str, bool]]]:
        assert path == "/status"
        self.num_asked += 1
        return {"agents": self.agents}

    def ensure(self) -> MasterInfo:
        if not self.is_startable:
            raise DetError("a disk is full")
        self.info = make_info(birth="x")
        return self.info

    # an engine

    def is_running(self) -> bool:
        return self.has_agent

    def end_all(self, patience_s: float) -> tuple[list[str], list[str]]:
        ended = ["the agent"] if self.has_agent and not self.left else []
        self.has_agent = bool(self.left)
        return ended, self.left


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    paths.runtime_dir()
    return Home(monkeypatch)


def make_info(**changes: Any) -> MasterInfo:
    process = asdict(ProcessIdentity.of(os.getpid())) | changes
    return MasterInfo(
        url="http://127.0.0.1:1", token="t", started_at=0.0, version="0", protocol=PROTOCOL,
        python="python", data_dir="/", **process,
    )  # fmt: skip


def test_without_a_master_nothing_is_stopped(home: Home) -> None:
    assert stopping.end_master() is None
    assert home.posted == []


@pytest.mark.parametrize("everything", [False, True])
def test_a_master_is_asked_to_stop_and_has_ended_when_that_returns(
    home: Home, everything: bool
) -> None:
    info = home.info = make_info(birth="of one that has ended")
    assert stopping.end_master(everything=everything) == info
    assert home.posted == [("/master/stop", {"everything": everything}), ("closed", None)]


def test_a_master_that_has_ended_before_it_could_answer_is_no_failure(home: Home) -> None:
    home.info = make_info(birth="of one that has ended")
    home.refuses = True
    assert stopping.end_master() is not None


def test_a_master_that_runs_and_does_not_answer_is_a_failure(home: Home) -> None:
    home.info = make_info()  # this process
    home.refuses = True
    with pytest.raises(MasterUnreachable, match="no answer"):
        stopping.end_master()


def test_a_master_of_a_version_without_births_runs_as_long_as_it_has_the_lock(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.info = make_info(birth="")
    lock = take_lock(paths.master_lock(), timeout_s=0)
    assert lock is not None
    turns = 0

    @contextmanager
    def waiting_for(what: str) -> Iterator[Any]:
        def pause(pid: int) -> None:
            nonlocal turns
            turns += 1
            os.close(lock)

        yield pause

    monkeypatch.setattr(stopping, "waiting_for", waiting_for)
    assert stopping.end_master() is not None
    assert turns == 1


def test_a_master_that_is_starting_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = take_lock(paths.master_lock(), timeout_s=0)
    assert lock is not None
    found = make_info(birth="of one that has ended")
    waited: list[tuple[int, str]] = []

    @contextmanager
    def waiting_for(what: str) -> Iterator[Any]:
        def pause(pid: int) -> None:
            waited.append((pid, what))
            home.info = found

        yield pause

    monkeypatch.setattr(stopping, "waiting_for", waiting_for)
    assert stopping.end_master() == found
    (pid, what), *_ = waited
    assert pid == os.getpid()  # which holds the lock
    assert what == "the det_jupyter master, which is starting or ending"
    os.close(lock)


def test_everything_is_ended_by_the_master_if_one_runs(home: Home) -> None:
    home.info = make_info(birth="of one that has ended")
    assert stopping.end_everything() == ["the master"]
    assert home.posted[0] == ("/master/stop", {"everything": True})


def test_an_agent_without_a_master_is_ended_in_order_by_a_new_one(home: Home) -> None:
    home.has_agent = True
    home.agents = [{"connected": False}, {"connected": True}]

    def stop() -> None:
        home.info, home.has_agent = None, False

    home.on_stop = stop
    assert stopping.end_everything() == ["an agent without a master"]
    assert home.num_asked == 1  # one of them is enough
    assert ("/master/stop", {"everything": True}) in home.posted


def test_an_agent_that_no_master_can_be_started_for_is_ended_by_force(home: Home) -> None:
    home.has_agent, home.is_startable = True, False
    assert stopping.end_everything() == ["the agent"]
    assert home.posted == []


def test_an_agent_that_does_not_connect_is_not_waited_for_for_long(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def pass_s(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(monotonic=lambda: now, sleep=pass_s)
    monkeypatch.setattr(stopping, "time", clock)
    monkeypatch.setattr(stopping, "_POLL_S", 1.0)
    home.has_agent = True
    home.agents = [{"connected": False}]
    assert stopping.end_everything() == ["an agent without a master", "the agent"]
    assert (home.num_asked, now) == (5, 5.0)


def test_masters_that_others_start_again_and_again_are_a_failure(home: Home) -> None:
    def come_back() -> None:
        home.info = make_info(birth="of one that has ended")

    come_back()
    home.on_stop = come_back
    lock = take_lock(paths.master_lock(), timeout_s=0)
    assert lock is not None
    with pytest.raises(DetError, match="other programs start the master again"):
        stopping.end_everything()
    stops = [path for path, _ in home.posted if path == "/master/stop"]
    assert len(stops) == 5
    os.close(lock)


def test_agents_that_do_not_end_are_named(home: Home) -> None:
    home.has_agent, home.is_startable, home.left = True, False, ["agent box (pid 7)"]
    with pytest.raises(DetError, match=r"still running: agent box \(pid 7\)\. It was killed"):
        stopping.end_everything()


class Program:
    """A program of ours whose lock is gone."""

    def __init__(self, pid: int, *, ends: bool = True, is_alive: bool = True) -> None:
        self.pid, self.ends, self.is_alive = pid, ends, is_alive

    def end(self, patience_s: float) -> bool:
        return self.ends


def test_programs_without_their_locks_are_ended_too(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [[("agent", Program(7)), ("fork server", Program(8, is_alive=False))], []]
    monkeypatch.setattr(stopping, "programs_of", lambda folder: found.pop(0) if found else [])
    assert stopping.end_everything() == ["the agent (pid 7)"]
    left = [("fork server", Program(8, ends=False)), ("master", Program(9, ends=False))]
    monkeypatch.setattr(stopping, "programs_of", lambda folder: left)
    with pytest.raises(DetError, match=r"the fork server \(pid 8\), the master \(pid 9\)"):
        stopping.end_everything()


def test_ranks_of_runs_are_killed_and_named_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = [[1, 2]]
    monkeypatch.setattr(
        stopping, "kill_processes_below", lambda root: (killed.pop() if killed else [], [])
    )
    assert stopping.end_everything() == ["ranks without an agent"]
    assert stopping.end_everything() == []


# what is shown while no master runs


def test_the_agent_without_a_master_is_found_with_the_trials_that_it_trains(home: Home) -> None:
    assert stopping.find_agent_without_master() is None
    home.has_agent = True
    assert stopping.find_agent_without_master() == (0, [])  # of a version that writes no pid
    lock = take_lock(paths.agent_lock(), timeout_s=0)
    assert lock is not None
    for number in ("1.1.1", "2.2.1", "3.3.1", "4.4.1"):
        run = run_dir(paths.data_dir(), number)
        run.path.mkdir(parents=True)
        run.plan.write_text(make_plan(number, []).model_dump_json())
    run_dir(paths.data_dir(), "2.2.1").exit.touch()
    run_dir(paths.data_dir(), "3.3.1").closed.touch()
    run_dir(paths.data_dir(), "4.4.1").plan.write_text("of another version")
    found = stopping.find_agent_without_master()
    assert found is not None
    assert (found[0], [plan.allocation_id for plan in found[1]]) == (os.getpid(), ["1.1.1"])
    os.close(lock)


def test_processes_are_listed_only_if_no_agent_answers_for_them(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "programs_of", lambda folder: [("agent", Program(9))])
    monkeypatch.setattr(stopping, "pids_below", lambda root: [3, 9])
    assert stopping.find_processes_without_agent() == [3, 9]
    home.has_agent = True
    assert stopping.find_processes_without_agent() == []
