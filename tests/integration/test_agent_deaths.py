"""Somebody is killed: nothing is orphaned, lost, or told twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from det_jupyter.contract.host.processes import birth_of
from det_jupyter.contract.host.rundir import RUN_VARIABLE
from det_jupyter.contract.messages import KillGang, Leave, StartGang
from tests.integration.agent_support import (
    AgentProcess,
    FakeMaster,
    agent_with_master,
    assert_gone,
    files_of,
    make_plan,
    torch_built_for,
    write_torch,
)
from tests.integration.master_support import MasterProcess
from tests.processes import is_gone, processes_of, wait_until, wait_until_gone

pytestmark = pytest.mark.usefixtures("light_torch")
FOREVER = [["sleep", 3600]]


@pytest.fixture(scope="module")
def survivors(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[AgentProcess, FakeMaster]]:
    folder = tmp_path_factory.mktemp("survivors")
    write_torch(folder / "packages", torch_built_for(None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder / "packages"))
        with agent_with_master(folder / "home") as pair:
            yield pair


@pytest.fixture
def lasting(
    survivors: tuple[AgentProcess, FakeMaster],
) -> Iterator[tuple[AgentProcess, FakeMaster]]:
    """Return an agent that outlives the test, without any run, and its master."""
    agent, master = survivors
    yield survivors
    assert master.mistakes == []
    runs = files_of(agent.home, "1.1.1").path.parent

    def are_closed() -> bool:  # a link that was breaking may have swallowed the order
        left = [run.name for run in runs.iterdir()] if runs.exists() else []
        for run in left:
            master.close(run)
        return not left

    wait_until(are_closed, "all runs are closed")


def socket_folder(home: Path) -> Path:
    return Path((home / "runtime" / "agent.sockets").read_text())


def numbers(text: str) -> list[int]:
    return [json.loads(line)["line"] for line in text.splitlines()]


def test_everything_dies_with_the_agent_and_the_next_one_tells_the_rest(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with agent_with_master(home) as (agent, master):
        acts = {"0": [["tick", 0.002]], "1": [["tear", '{"torn'], *FOREVER]}
        started = master.begin(make_plan("1.1.1", acts))
        wait_until(lambda: master.text("1.1.1", "journal-0"), "records come")
        sockets = socket_folder(home)
        zygotes = agent.zygotes()
        agent.crash()
        pids = [*(zygote.pid for zygote in zygotes), *(rank.pid for rank in started.ranks)]
        wait_until_gone(*pids)
        assert processes_of(home) == []

        with AgentProcess(home, {}, []):
            ended = master.end_of("1.1.1")
        assert (ended.lost, ended.killed, ended.first_failed) == (True, False, None)
        assert ended.exit_codes == {0: None, 1: None}
        assert [(run.allocation_id, run.alive) for run in master.registrations[-1].runs] == [
            ("1.1.1", False)
        ]
        assert master.registrations[-1].session != master.registrations[0].session
        journal = files_of(home, "1.1.1").journal(0).read_text()
        assert master.text("1.1.1", "journal-0") == journal[: journal.rfind("\n") + 1]
        assert master.text("1.1.1", "journal-1") == ""  # a torn line is no record
        assert not sockets.exists()


def test_end_that_an_agent_could_not_tell_is_told_by_the_next_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with agent_with_master(home) as (agent, master):
        master.begin(make_plan("1.1.1", {"0": FOREVER, "1": [["sleep", 0.5], ["exit", 3]]}))
        master.stop()
        wait_until(files_of(home, "1.1.1").exit.exists, "the gang is over")
        agent.crash()
        master.start()
        with AgentProcess(home, {}, []):
            ended = master.end_of("1.1.1")
            assert (ended.exit_codes, ended.first_failed, ended.lost) == ({0: -9, 1: 3}, 1, False)
            wait_until(lambda: master.is_linked, "the successor is linked")
            master.close("1.1.1")
            run = files_of(home, "1.1.1").path
            wait_until(lambda: not run.exists(), "the run is closed")
        registrations = len(master.registrations)
        with AgentProcess(home, {}, []):
            wait_until(lambda: len(master.registrations) > registrations, "the third registers")
        assert master.registrations[-1].runs == []


def test_zygote_that_dies_takes_its_gangs_along_and_a_new_one_takes_over(
    lasting: tuple[AgentProcess, FakeMaster],
) -> None:
    agent, master = lasting
    started = master.begin(make_plan("1.1.1", [["journal", 5], *FOREVER]))
    journal = files_of(agent.home, "1.1.1").journal(0)
    wait_until(lambda: journal.exists() and journal.read_text().count("\n") == 5, "it is written")
    (zygote,) = agent.zygotes()
    zygote.kill()
    ended = master.end_of("1.1.1")
    assert (ended.lost, ended.killed, ended.exit_codes) == (True, False, {0: None, 1: None})
    assert all(is_gone(rank.pid) for rank in started.ranks)
    assert numbers(master.text("1.1.1", "journal-0")) == [0, 1, 2, 3, 4]
    again = master.begin(make_plan("1.1.2", FOREVER))
    assert again.note == "forked from the zygote"
    assert master.kill("1.1.2").killed


def test_zygote_that_is_stopped_keeps_nobody_from_being_killed_or_started(
    lasting: tuple[AgentProcess, FakeMaster], tmp_path: Path
) -> None:
    agent, master = lasting
    master.begin(make_plan("2.1.1", FOREVER))
    gate = tmp_path / "gate"
    acts = {"0": [["await", str(gate)], ["exit", 3]], "1": FOREVER}
    ends = master.begin(make_plan("3.1.1", acts))
    (zygote,) = agent.zygotes()
    zygote.suspend()
    ended = master.kill("2.1.1")
    assert (ended.killed, ended.exit_codes) == (True, {0: -9, 1: -9})
    gate.touch()
    ended = master.end_of("3.1.1")  # by itself, which the zygote does not tell either
    assert (ended.first_failed, ended.lost, ended.exit_codes) == (0, False, {0: 3, 1: -9})
    master.order(StartGang(plan=make_plan("2.1.2", FOREVER)))
    wait_until(files_of(agent.home, "2.1.2").path.exists, "the gang is being started")
    time.sleep(1)  # the zygote has been asked by now
    ended = master.kill("2.1.2")  # which waits for the zygote, and not for long
    assert (ended.killed, ended.exit_codes) == (True, {0: None, 1: None})
    assert "2.1.2" not in master.started
    zygote.resume()
    wait_until_gone(*[rank.pid for rank in ends.ranks])
    wait_until(lambda: "the request is too old" in _zygote_log(agent.home), "it is refused")
    assert master.begin(make_plan("4.1.1", FOREVER)).note == "forked from the zygote"
    assert master.kill("4.1.1").killed


def _zygote_log(home: Path) -> str:
    return "".join(log.read_text() for log in (home / "data" / "logs").glob("zygote-*.out"))


def test_gang_trains_on_without_a_master_and_the_next_one_gets_everything(
    lasting: tuple[AgentProcess, FakeMaster],
) -> None:
    agent, master = lasting
    home = agent.home
    started = master.begin(make_plan("5.1.1", [["tick", 0.002]]))
    for _ in range(3):
        before = len(master.registrations)
        had = master.text("5.1.1", "journal-0")
        master.stop()
        size = files_of(home, "5.1.1").journal(0).stat().st_size
        wait_until(
            lambda: files_of(home, "5.1.1").journal(0).stat().st_size > size + 2000,  # noqa: B023
            "ranks write on",
        )
        master.start()
        wait_until(lambda: len(master.registrations) > before, "the agent is back")  # noqa: B023
        wait_until(lambda: len(master.text("5.1.1", "journal-0")) > len(had), "records come")  # noqa: B023
    assert not any(is_gone(rank.pid) for rank in started.ranks)
    last = master.registrations[-1]
    assert last.session == master.registrations[0].session
    assert [(run.allocation_id, run.alive) for run in last.runs] == [("5.1.1", True)]
    wait_until(lambda: master.is_linked, "the agent is linked")
    master.kill("5.1.1")
    for rank in (0, 1):
        told = numbers(master.text("5.1.1", f"journal-{rank}"))
        assert told == list(range(len(told)))
        assert len(told) > 100


def test_batch_whose_answer_is_lost_is_not_stored_twice(
    lasting: tuple[AgentProcess, FakeMaster],
) -> None:
    _, master = lasting
    master.begin(make_plan("6.1.1", [["tick", 0.002]]))
    for _ in range(3):
        before = len(master.registrations)
        master.forget_answers = True
        wait_until(lambda: len(master.registrations) > before, "the agent links again")  # noqa: B023
        master.forget_answers = False
    wait_until(lambda: len(master.text("6.1.1", "journal-0")) > 4000, "records come")
    wait_until(lambda: master.is_linked, "the agent is linked")
    master.order(KillGang(allocation_id="6.1.1"))
    wait_until(lambda: _asked_again(master), "the gang is over")
    told = numbers(master.text("6.1.1", "journal-0"))
    assert told == list(range(len(told)))


def _asked_again(master: FakeMaster) -> bool:
    """Whether the end was told; a link that was breaking may have swallowed the order."""
    if "6.1.1" not in master.exited:
        master.order(KillGang(allocation_id="6.1.1"))
    return "6.1.1" in master.exited


@pytest.mark.parametrize("how", ["signal", "command"])
def test_agent_that_is_told_to_leave_leaves_nothing_behind(tmp_path: Path, how: str) -> None:
    home = tmp_path / "home"
    with agent_with_master(home) as (agent, master):
        started = master.begin(make_plan("1.1.1", FOREVER))
        sockets = socket_folder(home)
        if how == "signal":
            agent.process.terminate()
        else:
            master.order(Leave())
        assert agent.process.wait() == 0
        assert_gone(home)
        assert all(is_gone(rank.pid) for rank in started.ranks)
        assert not sockets.exists()
        ended = master.end_of("1.1.1")
        assert (ended.lost, ended.killed) == (True, False)


def test_second_agent_of_a_computer_leaves_at_once(
    lasting: tuple[AgentProcess, FakeMaster],
) -> None:
    agent, master = lasting
    registrations = len(master.registrations)
    with AgentProcess(agent.home, {}, []) as second:
        assert second.process.wait() == 0
    assert len(master.registrations) == registrations
    assert agent.process.poll() is None


def test_agent_without_a_master_stays_only_as_long_as_a_gang_lives(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with agent_with_master(home, options=["--leave-after-s", "2"]) as (agent, master):
        gate = tmp_path / "gate"
        master.begin(make_plan("1.1.1", [["await", str(gate)]]))
        master.stop()
        with pytest.raises(psutil.TimeoutExpired):
            psutil.Process(agent.process.pid).wait(timeout=3)
        gate.touch()
        assert agent.process.wait() == 0
        assert_gone(home)
        assert json.loads(files_of(home, "1.1.1").exit.read_text())["exit_codes"] == {
            "0": 0,
            "1": 0,
        }


def test_idle_agent_rests(lasting: tuple[AgentProcess, FakeMaster]) -> None:
    """Counted by how often its processes go to sleep: whoever polls does so all the time."""
    agent, master = lasting
    master.begin(make_plan("7.1.1", []))
    master.end_of("7.1.1")
    master.close("7.1.1")
    run = files_of(agent.home, "7.1.1").path
    wait_until(lambda: not run.exists(), "the run is closed")
    processes = [psutil.Process(agent.process.pid), *agent.zygotes()]

    def activity() -> int:
        sleeps = sum(process.num_ctx_switches().voluntary for process in processes)
        return sleeps + master.num_requests

    def rests() -> bool:
        before = activity()
        time.sleep(1)
        return activity() - before < 10  # the master's signs of life come each 5 s

    wait_until(rests, "agent and zygote rest")


def test_agent_without_a_free_descriptor_keeps_its_gangs_and_tells_later(
    lasting: tuple[AgentProcess, FakeMaster],
) -> None:
    agent, master = lasting
    started = master.begin(make_plan("8.1.1", [["tick", 0.01]]))
    process = psutil.Process(agent.process.pid)
    limits = process.rlimit(psutil.RLIMIT_NOFILE)
    assert limits is not None
    process.rlimit(psutil.RLIMIT_NOFILE, (3, limits[1]))
    wait_until(lambda: "cannot be read" in agent.log.read_text(), "it cannot read")
    master.order(StartGang(plan=make_plan("9.1.1", FOREVER)))
    ended = master.end_of("9.1.1")
    assert "Too many open files" in ended.error
    assert not ended.error_is_final
    had = master.text("8.1.1", "journal-0")
    process.rlimit(psutil.RLIMIT_NOFILE, limits)
    wait_until(lambda: len(master.text("8.1.1", "journal-0")) > len(had), "records come")
    assert not any(is_gone(rank.pid) for rank in started.ranks)
    master.kill("8.1.1")
    told = numbers(master.text("8.1.1", "journal-0"))
    assert told == list(range(len(told)))


def test_survivors_of_a_dead_agent_are_ended_before_the_next_one_registers(
    tmp_path: Path,
) -> None:
    """Where the system does not end them by itself (macOS): their pids are on record."""
    home = tmp_path / "home"
    with agent_with_master(home) as (agent, master):
        started = master.begin(make_plan("1.1.1", FOREVER))
        wait_until(files_of(home, "1.1.1").ranks.exists, "the ranks are on record")
        agent.crash()
        wait_until(lambda: not processes_of(home), "all processes are gone")
        survivor = psutil.Popen(["sleep", "3600"], start_new_session=True)
        records = json.loads(files_of(home, "1.1.1").ranks.read_text())
        assert [record["pid"] for record in records] == [rank.pid for rank in started.ranks]
        records[0] |= {"pid": survivor.pid, "birth": birth_of(survivor.pid)}
        records[1]["pid"] = os.getpid()  # a pid that has been given to another process since
        files_of(home, "1.1.1").ranks.write_text(json.dumps(records))
        with AgentProcess(home, {}, []):
            master.end_of("1.1.1")
            assert survivor.wait() == -signal.SIGKILL


@pytest.mark.parametrize("state", ["runs", pytest.param("stopped", marks=pytest.mark.long)])
def test_stopping_everything_ends_an_agent_whose_master_was_killed(
    tmp_path: Path, state: str
) -> None:
    home = tmp_path / "home"
    with agent_with_master(home) as (agent, master):
        master.begin(make_plan("1.1.1", FOREVER))
        master.stop()
        if state == "stopped":
            os.kill(agent.process.pid, signal.SIGSTOP)
        command = MasterProcess(home)
        code, printed = command.run("status")
        assert code == 3
        assert f"An agent (pid {agent.process.pid}) runs without a master" in printed
        assert "trains trial 1 of experiment 1." in printed
        code, printed = command.run("stop", "--everything")
        assert (code, processes_of(home)) == (0, []), printed
        assert command.run("stop", "--everything") == (0, "Nothing runs.\n")


def test_what_a_killed_agent_has_left_is_named_by_status_and_ended_on_request(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    run = files_of(home, "1.1.1").path
    command = MasterProcess(home)
    with subprocess.Popen(["sleep", "3600"], env=os.environ | {RUN_VARIABLE: str(run)}) as daemon:
        try:
            code, printed = command.run("status")
            assert code == 3
            assert f"Processes run without a master (pid {daemon.pid});" in printed
            code, printed = command.run("stop", "--everything")
            assert (code, printed) == (0, "Ended: ranks without an agent. Nothing runs now.\n")
            assert daemon.wait() == -signal.SIGKILL
        finally:
            daemon.kill()
    assert "without a master" not in command.run("status")[1]
