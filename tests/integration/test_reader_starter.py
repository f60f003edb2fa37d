"""The reader's starter: what it says when it cannot fork, and what it imports when."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from websocket import create_connection

from det_jupyter._version import __version__
from det_jupyter.connection import find_master
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.run_processes import programs_of
from det_jupyter.errors import DetError
from det_jupyter.master.background import reader_starter
from det_jupyter.master.background.reader_starter import ReaderStarter
from tests.fork_source import REPOSITORY
from tests.integration import reader_stand_in
from tests.integration.master_support import MasterProcess, master_process
from tests.integration.reader_stand_in import ask, target_of
from tests.reader_starters import serve_starter, starter_of
from tests.waiting import wait_until, wait_until_gone


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return tmp_path


def said_of_one(starter: ReaderStarter, log: Path | None = None) -> str:
    """Have a reader started that ends by itself; return what is said of it."""
    path = log or paths.reader_log()
    with socket.create_server(("127.0.0.1", 0)) as listener, path.open("ab") as log_file:
        link = starter.start("secret", listener, log_file.fileno())
    with link, link.makefile() as said:
        return said.read()


def test_pid_and_exit_status_of_each_reader_are_said() -> None:
    with starter_of(target_of("broken")) as starter:
        for _ in range(2):
            pid, status = map(int, said_of_one(starter).split())
            assert status == 1
            assert not psutil.pid_exists(pid)


def test_a_reader_that_cannot_be_forked_is_named_in_the_log_and_the_starter_goes_on() -> None:
    with starter_of(target_of("leaving"), f"{__name__}:fork_after_a_failure") as starter:
        assert said_of_one(starter) == ""
        assert said_of_one(starter).endswith("\n0\n")
    assert "no reader could be forked: [Errno 11] too many" in paths.reader_log().read_text()


def test_a_starter_goes_on_though_the_log_is_full() -> None:
    with starter_of(target_of("leaving"), f"{__name__}:fork_after_a_failure") as starter:
        assert said_of_one(starter, Path("/dev/full")) == ""
        assert said_of_one(starter).endswith("\n0\n")


def fork_after_a_failure(connection: int, target: str) -> None:
    """Be a starter whose first fork fails."""
    fork, results = os.fork, [OSError(errno.EAGAIN, "too many processes")]

    def fork_now() -> int:
        if results:
            raise results.pop()
        return fork()

    pytest.MonkeyPatch().setattr(os, "fork", fork_now)
    serve_starter(connection, target)


def test_a_reader_that_was_installed_since_is_not_imported() -> None:
    with starter_of(serve=f"{__name__}:serve_of_before") as starter:
        assert said_of_one(starter).endswith("\n1\n")
    log = paths.reader_log().read_text()
    assert f"the running master is det_jupyter 0.0.1, and {__version__} was installed since" in log
    assert "master restart` replaces the master" in log


def serve_of_before(connection: int, target: str) -> None:
    """Be the starter of an older version."""
    reader_starter.serve(socket.socket(fileno=connection), target, "0.0.1")


def test_a_starter_that_was_killed_is_replaced_by_one_of_the_masters_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", REPOSITORY)
    with starter_of(target_of("leaving")) as starter:
        starter.process.kill()
        wait_until_gone(starter.process.pid)
        assert said_of_one(starter).endswith("\n0\n")
        assert said_of_one(starter).endswith("\n0\n")
        monkeypatch.setattr(reader_starter, "__version__", "0.0.1")
        starter.kill()
        assert said_of_one(starter).endswith("\n1\n")
    assert "the running master is det_jupyter 0.0.1" in paths.reader_log().read_text()


def test_where_no_other_starter_can_be_started_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", REPOSITORY)
    with starter_of(target_of("leaving")) as starter:
        starter.kill()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "/none")
            for _ in range(2):
                with pytest.raises(DetError, match="master restart` replaces the master"):
                    said_of_one(starter)
        assert said_of_one(starter).endswith("\n0\n")


def test_what_is_imported_before_a_fork_starts_no_thread() -> None:
    modules = "det_jupyter.master.serve, det_jupyter.reader.program"
    text = f"import sys, psutil, {modules}; sys.exit(psutil.Process().num_threads())"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 1


def test_a_starter_ends_by_no_polite_signal_but_with_its_master(home: Path) -> None:
    with master_process(home) as master:
        url = master.start(f"{reader_stand_in.__name__}:serve_with_stand_in").reader_url
        reader = psutil.Process(ask(url)["pid"])
        starter = reader.parent()
        assert starter is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            starter.send_signal(number)
        reader.kill()
        wait_until_gone(reader.pid)
        assert psutil.Process(ask(url)["pid"]).parent() == starter
        assert master.end() == 0
        assert not starter.is_running()


def test_of_starter_and_reader_neither_is_taken_for_a_master(home: Path) -> None:
    with MasterProcess(home).spawn("serve", "--no-agent") as process:
        try:
            info = wait_until(find_master, "it serves")
            header = [f"Authorization: Bearer {info.token}"]
            url = f"{info.reader_url.replace('http', 'ws', 1)}/socket"
            with closing(create_connection(url, header=header, suppress_origin=True)) as page:
                page.recv()
                below = psutil.Process(process.pid).children(recursive=True)
                assert [each.name() for each in below] == ["det-starter", "det-reader"]
                assert [each.cwd() for each in below] == [str(paths.data_dir())] * 2
                assert programs_of(paths.data_dir()) == [
                    ("master", ProcessIdentity.of(process.pid))
                ]
        finally:
            process.terminate()
    assert not any(each.is_running() for each in below)
