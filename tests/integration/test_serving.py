"""A whole master in the process of the test, which asks it over HTTP from another thread."""

from __future__ import annotations

import logging
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from det_jupyter._version import __version__
from det_jupyter.config.storages import VARIABLE
from det_jupyter.connection import Session
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.clock_steps import ClockWatch
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import PROTOCOL, MasterInfo, Pause
from det_jupyter.master import serve as module
from det_jupyter.master.background import reader_process
from det_jupyter.master.background.reader_starter import ReaderStarter
from det_jupyter.master.http.guard import Guard
from det_jupyter.master.serve import has_work, serve
from det_jupyter.master.service.agents.agent_access import AgentAccess
from det_jupyter.storage.buckets.process import Transfers
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    bench_with_trial,
    gang_exited,
)
from tests.integration.reader_stand_in import ask, target_of
from tests.processes import wait_until
from tests.reader_starters import NoReaders, starter_of


class Engine:
    """A starter that starts nothing."""

    problem = ""

    def __init__(self) -> None:
        self.num_dismissed = 0
        self.num_kept = 0

    def keep(self, connected: Collection[str]) -> list[str]:
        self.num_kept += 1
        return []

    def is_running(self) -> bool:
        return False

    def why_silent(self, agent_id: str, process: ProcessIdentity) -> str | None:
        return None

    def dismiss(self) -> None:
        self.num_dismissed += 1

    def end_all(self, patience_s: float) -> tuple[list[str], list[str]]:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use an empty home; put logging back as it was."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    paths.runtime_dir()
    for name in ("_FILE_CHECK_S", "_CLOCK_CHECK_S", "_LISTEN_S"):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(module, "transfers", Transfers())  # a master stops those of its program
    names = ["det_jupyter", "uvicorn", "asyncio", "httpx", "py.warnings"]
    before = [(log := logging.getLogger(n), log.level, log.propagate) for n in names]
    signals = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    yield tmp_path
    logging.captureWarnings(False)
    for log, level, propagate in before:
        for file in [each for each in log.handlers if isinstance(each, logging.FileHandler)]:
            log.removeHandler(file)
            file.close()
        log.setLevel(level)
        log.propagate = propagate
    for number, handler in signals:
        signal.signal(number, handler)


def info() -> MasterInfo | None:
    try:
        return MasterInfo.model_validate_json(paths.master_file().read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def play(
    scene: Callable[[Session], object],
    *,
    stops: bool = True,
    starter: ReaderStarter | None = None,
) -> Engine:
    """Serve, and play a scene meanwhile; then stop the master, unless the scene has done that."""
    engine, failures, is_serving = Engine(), list[BaseException](), threading.Event()
    is_serving.set()

    def act() -> None:
        try:
            with closing(Session(wait_until(info, "the master serves"))) as session:
                scene(session)
                if stops:
                    session.post("/master/stop", {})
        except BaseException as error:
            failures.append(error)
            if is_serving.is_set():
                os.kill(os.getpid(), signal.SIGTERM)  # the master ends

    thread = threading.Thread(target=act)
    thread.start()
    try:
        serve(engine, starter or NoReaders())
    finally:
        is_serving.clear()
        thread.join()
    if failures:
        raise failures[0]
    assert info() is None
    return engine


def test_a_master_announces_itself_and_what_it_has_announced_goes_with_it() -> None:
    def scene(session: Session) -> None:
        found = info()
        assert found is not None
        assert stat.S_IMODE(paths.master_file().stat().st_mode) == 0o600
        assert (found.pid, found.version, found.protocol) == (os.getpid(), __version__, PROTOCOL)
        assert found.url.startswith("http://127.0.0.1:")
        assert found.reader_url.startswith("http://127.0.0.1:")
        assert found.reader_url != found.url
        assert found.data_dir == str(paths.data_dir())
        assert found.process.is_alive
        assert session.get("/status")["problems"] == []
        paths.master_file().unlink()
        wait_until(lambda: info() == found, "it is announced again")

    engine = play(scene)
    assert engine.num_kept > 0
    lines = (paths.log_dir() / "master.log").read_text()
    assert "serving at http://127.0.0.1:" in lines
    assert "was removed: written again" in lines
    assert lines.endswith("ended\n")
    assert "HTTP Request" not in lines  # addresses would be in it


def test_the_file_of_a_successor_stays() -> None:
    def scene(session: Session) -> None:
        found = info()
        assert found is not None
        other = found.model_copy(update={"token": "of the successor"})
        paths.write_private(paths.master_file(), other.model_dump_json())

    with pytest.raises(AssertionError):  # of `play`: there is a file
        play(scene)
    found = info()
    assert found is not None
    assert found.token == "of the successor"


def test_a_signal_ends_it_in_order() -> None:
    play(lambda session: os.kill(os.getpid(), signal.SIGTERM), stops=False)
    assert "asked to stop\n" in (paths.log_dir() / "master.log").read_text()


def test_an_idle_master_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.IDLE_VARIABLE, "0.00001")
    serve(Engine(), NoReaders())
    assert info() is None
    assert "idle for 1e-05 hours" in (paths.log_dir() / "master.log").read_text()


def test_a_master_whose_reader_runs_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.IDLE_VARIABLE, "0.00003")  # 0.1 s
    monkeypatch.setattr(reader_process, "_UNUSED_S", 0.0)
    last_request = [0.0]  # seconds ago
    monkeypatch.setattr(Guard, "idle_s", property(lambda _: last_request[0]))

    def scene(session: Session) -> None:
        pid = ask(session.info.reader_url)["pid"]
        last_request[0] = 3600.0
        time.sleep(0.5)
        assert ask(session.info.reader_url)["pid"] == pid
        os.kill(pid, signal.SIGTERM)  # what is left to do is to wait

    with starter_of(target_of("usual")) as starter:
        play(scene, stops=False, starter=starter)
    assert "idle for 3e-05 hours" in (paths.log_dir() / "master.log").read_text()


def test_checkpoints_go_to_the_folder_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/var/tmp/mine")

    def scene(session: Session) -> None:
        assert session.get("/master")["checkpoint_storage"] == "/var/tmp/mine"

    play(scene)


def test_pools_are_those_of_the_file_also_after_it_is_gone() -> None:
    paths.data_dir()
    paths.pools_file().write_text("pools: [{pool_name: night, agents: [n*]}]")

    def names(session: Session) -> list[str]:
        return [pool["name"] for pool in session.get("/cluster")["pools"]]

    found: list[list[str]] = []
    play(lambda session: found.append(names(session)))
    paths.pools_file().unlink()
    play(lambda session: found.append(names(session)))
    assert "night" in found[0]
    assert "night" not in found[1]


def test_a_file_of_pools_that_cannot_be_read_is_a_problem_and_the_pools_stay() -> None:
    paths.data_dir()
    paths.pools_file().write_text("pools: [{pool_name: night, agents: [n*]}]")
    play(lambda session: None)
    paths.pools_file().write_text("pools: {")

    def scene(session: Session) -> None:
        (problem,) = session.get("/status")["problems"]
        assert problem.startswith("not followed: ")
        assert "night" in [pool["name"] for pool in session.get("/cluster")["pools"]]

    play(scene)


def test_stored_agents_are_away_until_they_come() -> None:
    with bench_with_trial(paths.data_dir() / "det.sqlite3"):
        pass

    def scene(session: Session) -> None:
        (agent,) = session.get("/status")["agents"]
        assert (agent["id"], agent["connected"]) == (AGENT, False)
        assert session.get("/trials/1")["allocation"]["id"] == RUN

    play(scene)
    bench = Bench(paths.data_dir() / "det.sqlite3")
    assert bench.service.machine.state.agents[AGENT].is_away
    bench.service.close()


def test_a_step_of_the_clock_is_told_to_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [0.0, 30.0, 12.0]
    monkeypatch.setattr(ClockWatch, "step_s", lambda _: steps.pop() if steps else 0.0)
    play(lambda session: wait_until(lambda: not steps, "the clock was set"))
    lines = (paths.log_dir() / "master.log").read_text()
    assert "set by +12.0 s" in lines
    assert "set by +30.0 s" in lines


def test_agents_elsewhere_can_connect_as_soon_as_their_port_is_free() -> None:
    access = AgentAccess(paths.data_dir() / "agents")
    access.add("b")
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        access.set_port(port)

        def scene(session: Session) -> None:
            def problems() -> Any:
                return session.get("/status")["problems"]

            (problem,) = wait_until(problems, "the port is taken")
            assert f"port {port}, which cannot be opened" in problem
            other.close()
            wait_until(lambda: not problems(), "the port is open")
            socket.create_connection(("127.0.0.1", port)).close()

        play(scene)


@pytest.mark.parametrize("everything", [False, True])
def test_what_runs_goes_on_unless_everything_is_to_end(everything: bool) -> None:
    with bench_with_trial(paths.data_dir() / "det.sqlite3"):
        pass

    def scene(session: Session) -> None:
        session.post("/master/stop", {"everything": everything})

    play(scene, stops=False)
    bench = Bench(paths.data_dir() / "det.sqlite3")
    state = bench.service.machine.state.experiment(1).state
    assert (state == "ACTIVE") != everything
    bench.service.close()


def test_a_database_that_cannot_be_used_is_named(home: Path) -> None:
    path = paths.data_dir() / "det.sqlite3"
    path.write_bytes(b"no database" * 1000)
    engine = Engine()
    with pytest.raises(SystemExit, match=r"sqlite3 cannot be used \(.*\); move it away"):
        serve(engine, NoReaders())
    assert engine.num_dismissed == 1


def test_a_full_disk_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    (paths.data_dir() / "det.sqlite3").mkdir()
    reserve = paths.data_dir() / "reserve"
    reserve.write_bytes(bytes(5000))
    monkeypatch.setattr(paths, "find_full_folder", lambda: "/data is full")
    with pytest.raises(SystemExit, match=r"^/data is full$"):
        serve(Engine(), NoReaders())
    assert not reserve.exists()  # so that there is room for the start


def test_an_experiment_that_may_start_or_runs_is_work(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "det.sqlite3")
    assert not has_work(bench.service)
    bench.service.close()
    with bench_with_trial(tmp_path / "other.sqlite3") as bench:
        assert has_work(bench.service)
        bench.service.apply(Pause(experiment_id=1, at_once=True))
        assert has_work(bench.service)  # its ranks have not ended
        bench.report(gang_exited(code=137))
        assert not has_work(bench.service)


def test_lines_of_libraries_are_kept_only_if_they_matter() -> None:
    def scene(session: Session) -> None:
        logging.getLogger("httpx").info("HTTP Request: POST https://secret")
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        logging.getLogger("asyncio").warning("a task was never awaited")
        logging.getLogger("det_jupyter.x").info("a decision")
        logging.getLogger("det_jupyter.x").debug("a detail")

    play(scene)
    text = (paths.log_dir() / "master.log").read_text()
    assert "WARNING asyncio: a task was never awaited" in text
    assert "INFO det_jupyter.x: a decision" in text
    for line in ("secret", "Invalid HTTP", "a detail"):
        assert line not in text
