"""The master as a process: one runs at a time, whenever one is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from det_jupyter.client.following import follow
from det_jupyter.connection import Session, find_master
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.daemons import PrivateLog
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.contract.host.processes import birth_of, is_frozen
from det_jupyter.contract.messages import PROTOCOL, MasterInfo, RunReport
from det_jupyter.contract.run.journal import Record
from det_jupyter.errors import MasterStopped, MasterUnreachable
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.handles.experiment_handles import NotebookExperiment
from det_jupyter.master import serve, stopping
from det_jupyter.master.service.storing.store import Store
from tests.fake_engine import FakeEngine
from tests.integration.master_support import (
    RUN,
    MasterProcess,
    batches,
    first_step,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_client,
    make_request,
    master_process,
    started,
)
from tests.problems import sentences_of
from tests.processes import processes_of, wait_until


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MasterProcess]:
    """Return a master that has not been started."""
    with master_process(tmp_path) as master:
        yield master


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MasterProcess, MasterInfo]]:
    """Return a running master without an agent; the last test that uses it ends it."""
    with master_process(tmp_path_factory.mktemp("lonely")) as master:
        yield master, master.start()


def submit(info: MasterInfo) -> None:
    with make_client(info) as http:
        answer = http.post("/experiments", json=make_request().model_dump(mode="json"))
        assert answer.status_code == 201, answer.text


def test_of_many_starters_one_becomes_the_master(master: MasterProcess) -> None:
    starters = [master.fork("serve", "--no-agent") for _ in range(5)]
    wait_until(lambda: sum(s.poll() is None for s in starters) == 1, "the others have left")
    wait_until((master.home / "runtime" / "master.json").exists, "the master serves")
    (serving,) = [s for s in starters if s.poll() is None]
    text = (master.home / "runtime" / "master.json").read_text()
    assert MasterInfo.model_validate_json(text).pid == serving.pid
    assert [s.poll() for s in starters if s is not serving] == [0] * 4
    serving.terminate()
    assert serving.wait() == 0
    assert not (master.home / "runtime" / "master.json").exists()


def test_its_files_are_for_the_user_alone(lonely: tuple[MasterProcess, MasterInfo]) -> None:
    master, _ = lonely
    for name in ("runtime/master.json", "data/det.sqlite3", "data/logs/master.log"):
        assert stat.S_IMODE((master.home / name).stat().st_mode) == 0o600, name
    for name in ("runtime", "data", "data/logs"):
        assert stat.S_IMODE((master.home / name).stat().st_mode) == 0o700, name


def test_a_removed_file_comes_back_and_makes_no_second_master(
    lonely: tuple[MasterProcess, MasterInfo],
) -> None:
    master, info = lonely
    shutil.rmtree(master.home / "runtime")
    second = master.spawn("serve", "--no-agent")
    file = master.home / "runtime" / "master.json"
    wait_until(file.exists, "the master is found again")
    assert MasterInfo.model_validate_json(file.read_text()).pid == info.pid
    second.communicate()
    assert second.returncode == 0


def test_people_can_ask_how_it_is(
    lonely: tuple[MasterProcess, MasterInfo], tmp_path: Path
) -> None:
    nobody = MasterProcess(tmp_path)
    code, printed = nobody.run("status")
    assert (code, printed.splitlines()[0]) == (3, "No master runs.")
    assert str(tmp_path) in printed
    assert nobody.run("stop") == (0, "No master runs.\n")
    master, info = lonely
    status, output = master.run("status")
    assert status == 0
    assert f"pid {info.pid}" in output
    assert "No agent has come yet." in output
    status, output = master.run("status", "--json")
    assert json.loads(output)["master"]["pid"] == info.pid
    assert info.token not in output
    assert master.run("start") == (0, f"The master runs: pid {info.pid}, {info.url}\n")


def test_a_stopped_master_is_told_at_once_and_goes_on_when_it_wakes(
    lonely: tuple[MasterProcess, MasterInfo], tmp_path: Path
) -> None:
    master, info = lonely
    os.kill(info.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: is_frozen(info.pid), "the master is stopped")
        starters = {
            errors: master.fork(errors.name, outputs=[tmp_path / "out", errors])
            for errors in (tmp_path / "status", tmp_path / "stop")
        }
        began = time.monotonic()
        session = Session(info, locate=lambda: info)
        with pytest.raises(MasterUnreachable, match=f"kill -CONT {info.pid}`"):
            session.get("/status")
        assert time.monotonic() - began < 15  # half of the timeout for its answer
        for errors, starter in starters.items():
            assert starter.wait() == 1
            assert f"(process {info.pid}) is stopped" in errors.read_text()
            assert f"`kill -CONT {info.pid}` lets it go on" in errors.read_text()
    finally:
        os.kill(info.pid, signal.SIGCONT)
    assert session.get("/status")["master"]["pid"] == info.pid
    session.close()


def test_a_master_that_has_stopped_is_not_taken_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DET_JUPYTER_HOME", str(tmp_path))
    old = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    info = MasterInfo(
        url="", token="", pid=old.pid, birth=birth_of(old.pid) or "", started_at=0.0, version="0",
        protocol=PROTOCOL, python="", data_dir="",
    )  # fmt: skip
    paths.write_private(paths.master_file(), info.model_dump_json())
    held = take_lock(paths.master_lock(), timeout_s=0)  # as the next master does
    assert held is not None
    monkeypatch.setattr(Session, "post", lambda *_: old.communicate())
    try:
        assert stopping.end_master() == info
    finally:
        os.close(held)


def test_a_submission_that_meets_a_stop_is_sent_to_the_next_master(
    lonely: tuple[MasterProcess, MasterInfo],
) -> None:
    master, info = lonely
    with make_client(info) as http, ThreadPoolExecutor() as pool:
        body, sent = make_request().model_dump(mode="json"), []
        trace = {"trace": lambda event, _: sent.append(event)}
        waiting = pool.submit(http.post, "/experiments", json=body, extensions=trace)
        wait_until(lambda: "http11.send_request_body.complete" in sent, "it is sent")
        with make_client(info) as other:
            other.get("/master")  # once this is answered, the other request has been read
        assert master.end() == 0  # it waits for the first agent
        answer = waiting.result()
    assert answer.status_code == 503
    assert answer.json()["error"] == "MasterUnreachable"
    assert sentences_of(answer.json()) == ["the master is stopping; submit again in a moment"]


def test_a_damaged_database_is_named_with_a_remedy(master: MasterProcess) -> None:
    (master.home / "data").mkdir(parents=True)
    (master.home / "data" / "det.sqlite3").write_bytes(b"not a database" * 1000)
    status, _, errors = master.run_with_errors("serve", "--no-agent")
    assert status == 1
    assert "det.sqlite3 cannot be used" in errors
    assert "move it away" in errors
    assert "Traceback" not in errors


def test_a_database_of_another_version_is_named_and_no_agent_stays(master: MasterProcess) -> None:
    (master.home / "data").mkdir(mode=0o700, parents=True)
    Store(master.home / "data" / "det.sqlite3").close()
    with closing(sqlite3.connect(master.home / "data" / "det.sqlite3")) as db:
        db.execute("PRAGMA user_version = 99")
    status, _, errors = master.run_with_errors("serve")
    assert status == 1
    assert "det.sqlite3" in errors
    assert "it belongs to another version of det_jupyter: use that one" in errors
    assert "Traceback" not in errors
    wait_until(lambda: not processes_of(master.home), "the agent has left")


def test_a_start_that_fails_for_any_reason_is_told_in_a_sentence_and_ends_its_agent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DET_JUPYTER_HOME", str(tmp_path))
    monkeypatch.setattr(serve, "Store", {}.pop)  # a KeyError
    engine = FakeEngine(tmp_path / "agents.json")
    engine.keep(())
    with pytest.raises(SystemExit, match=r"det.sqlite3 cannot be used \(KeyError: "):
        serve._open_service(engine)
    wait_until(lambda: not engine.is_running(), "the agents have ended")


def test_killed_in_the_middle_it_loses_and_doubles_nothing(master: MasterProcess) -> None:
    info = master.start()
    agent = master.agent(info)
    submit(info)
    assert agent.next_command()["kind"] == "start_gang"
    offset = 0
    journal = []
    for step in range(1, 31):
        records: list[Record] = [started(), first_step()] if step == 1 else []
        records.append(batches(step, [float(step)]))
        chunk = make_chunk(records, offset=offset)
        journal.append(chunk)
        offset += chunk.size_bytes
    agent.report(gang_started(), *journal[:10])
    master.kill()

    info = master.start()
    agent = master.agent(info, [RunReport(allocation_id=RUN, alive=True)])
    assert agent.stored == {RUN: {"journal-0": journal[10].offset}}
    agent.report(*journal[8:20])  # some of it again
    agent.report(*journal[8:])
    last = make_chunk(last_words(), offset=offset)
    agent.report(last, gang_exited())
    assert agent.next_command()["kind"] == "close_run"
    with make_client(info) as http:
        (curve,) = http.get("/experiments/1/curves").json()
        assert curve["values"] == [float(step) for step in range(1, 31)]
        assert http.get("/experiments/1").json()["state"] == "COMPLETED"
    master.end()


def test_a_gang_that_was_ordered_and_not_heard_of_is_ordered_again(master: MasterProcess) -> None:
    info = master.start()
    agent = master.agent(info)
    submit(info)
    order = agent.next_command()
    master.kill()
    agent = master.agent(master.start())
    assert agent.next_command() == order
    master.end()


def test_running_trials_outlive_a_master_that_is_asked_to_stop(master: MasterProcess) -> None:
    info = master.start()
    agent = master.agent(info)
    submit(info)
    assert agent.next_command()["kind"] == "start_gang"
    agent.report(gang_started())
    code, printed = master.run("status")
    assert code == 0
    assert "”: starting, 0%." in printed
    _, output = master.run("status", "--json")
    assert [each["state"] for each in json.loads(output)["experiments"]] == ["STARTING"]
    status, output = master.run("stop")
    assert (status, output) == (0, "The master has stopped.\n")
    assert master.wait() == 0
    assert agent.commands.empty()  # neither killed nor asked to leave


def test_stopping_everything_kills_what_runs_first(master: MasterProcess) -> None:
    info = master.start()
    agent = master.agent(info)
    submit(info)
    assert agent.next_command()["kind"] == "start_gang"
    agent.report(gang_started())
    stopping = master.fork("stop", "--everything")
    assert agent.next_command()["kind"] == "kill_gang"
    agent.report(gang_exited(code=-9, killed=True))
    assert agent.next_command()["kind"] == "close_run"
    assert agent.next_command()["kind"] == "leave"
    assert (stopping.wait(), master.wait()) == (0, 0)


def test_what_waits_in_a_notebook_starts_no_master_that_was_stopped(
    master: MasterProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(master.home))
    monkeypatch.setattr(follow, "_SILENT_S", 0.5)
    info = master.start()
    agent = master.agent(info)
    submit(info)
    assert agent.next_command()["kind"] == "start_gang"
    agent.report(gang_started())
    seen = threading.Event()
    with ThreadPoolExecutor() as pool:
        connection.client.cache_clear()
        experiment = NotebookExperiment(connection.client(), 1)
        waiting = pool.submit(experiment.wait, on_tick=lambda state: seen.set())
        seen.wait()
        stopping = master.fork("stop", "--everything")
        assert agent.next_command()["kind"] == "kill_gang"
        agent.report(gang_exited(code=-9, killed=True))
        assert (stopping.wait(), master.wait()) == (0, 0)
        error = waiting.exception()
        if error is None:  # the end of the experiment arrived before that of the master
            assert waiting.result() == "CANCELED"
        else:
            assert isinstance(error, MasterStopped)
            assert "no det_jupyter master runs" in str(error)
        connection.client.cache_clear()
    assert find_master() is None


def test_a_master_that_nobody_needs_leaves(master: MasterProcess) -> None:
    master.start(DET_JUPYTER_IDLE_HOURS=str(0.5 / 3600))
    assert master.wait() == 0


def test_a_master_whose_experiments_are_all_paused_leaves(master: MasterProcess) -> None:
    info = master.start(DET_JUPYTER_IDLE_HOURS=str(2 / 3600))
    agent = master.agent(info)
    submit(info)
    assert agent.next_command()["kind"] == "start_gang"
    with make_client(info) as http:
        assert http.post("/experiments/1/pause").status_code == 200
    assert agent.next_command()["kind"] == "signal_gang"
    agent.report(gang_started(), gang_exited(killed=True))
    assert agent.next_command()["kind"] == "close_run"
    assert agent.next_command()["kind"] == "leave"
    assert master.wait() == 0
    with make_client(master.start()) as http:
        assert http.get("/experiments/1").json()["state"] == "PAUSED"


def test_log_that_follows_a_full_one_is_the_user_s_alone_too(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = PrivateLog(tmp_path / "master.log", maxBytes=1, backupCount=1)
        log.doRollover()
        log.close()
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_master_with_an_active_experiment_stays(master: MasterProcess) -> None:
    idle_s = 2  # time to submit in, on a busy machine too
    info = master.start(DET_JUPYTER_IDLE_HOURS=str(idle_s / 3600))
    agent = master.agent(info)
    submit(info)
    assert agent.next_command()["kind"] == "start_gang"
    deadline = time.monotonic() + 1.5 * idle_s
    while time.monotonic() < deadline:  # an agent's own requests do not count
        assert agent.report().status_code == 200
        time.sleep(0.2)
    agent.report(gang_started(), make_chunk(last_words()), gang_exited())
    assert agent.next_command()["kind"] == "close_run"
    assert agent.next_command()["kind"] == "leave"
    assert master.wait() == 0
