"""What belongs to a run is found and ended, also what has left its rank's session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from det_jupyter.contract.host.run_processes import kill_processes_below, kill_run_processes
from det_jupyter.contract.host.rundir import RUN_VARIABLE, RunDir
from det_jupyter.contract.run.control_page import create_page
from tests.waiting import wait_until_executed

# As a script that makes a daemon of itself, and ends: it has no file, parent or session of ours.
DAEMON = """
import os, sys, time
from pathlib import Path
from det_jupyter.contract.run.control_page import ControlPage

page = ControlPage(Path(sys.argv[1]))
if pid := os.fork():
    print(pid)
    sys.exit()
os.setsid()
os.closerange(0, 100)
time.sleep(100)
"""


def make_run(path: Path) -> RunDir:
    path.mkdir()
    run = RunDir(path)
    create_page(run.control)
    return run


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_daemon_that_a_rank_has_forked_ends_with_its_run_alone(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "1.1.1"), make_run(tmp_path / "1.1.2")]
    pids = []
    for run in runs:
        command = [sys.executable, "-c", DAEMON, str(run.control)]
        pids.append(int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    assert kill_run_processes(runs[0]) == pids[:1]
    assert psutil.Process(pids[1]).status() != psutil.STATUS_ZOMBIE
    assert kill_run_processes(runs[1]) == pids[1:]


def test_what_a_program_has_started_ends_with_its_run_alone(tmp_path: Path) -> None:
    run, other = make_run(tmp_path / "1.1.1"), make_run(tmp_path / "1.1.2")
    started = [
        subprocess.Popen(["sleep", "100"], env={RUN_VARIABLE: str(each.path), "PATH": "/bin"})
        for each in (run, other)
    ]
    wait_until_executed(*started)
    for each, process in zip((run, other), started, strict=True):
        assert kill_run_processes(each) == [process.pid]
        assert process.wait() == -9
    assert kill_run_processes(run) == []


def test_processes_are_killed_even_if_finding_them_takes_longer_than_the_timeout(
    tmp_path: Path,
) -> None:
    environment = {RUN_VARIABLE: str(make_run(tmp_path / "1.1.1").path), "PATH": "/bin"}
    with subprocess.Popen(["sleep", "100"], env=environment) as process:
        wait_until_executed(process)
        kill_processes_below(tmp_path, timeout_s=0)
        assert process.wait() == -9


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has mount namespaces")
def test_processes_that_have_another_folder_at_this_path_are_left_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path / "1.1.1").path
    mount = 'mount -t tmpfs none "$0" && mkdir "$1" && echo ready && exec sleep 100'
    with subprocess.Popen(
        ["unshare", "-rm", "sh", "-c", mount, str(tmp_path), str(run)],
        env=os.environ | {RUN_VARIABLE: str(run)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            pytest.skip("mount namespaces cannot be made here")
        assert kill_processes_below(tmp_path) == ([], [])
        process.kill()


def test_what_does_not_end_is_not_said_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "1.1.1")
    environment = {RUN_VARIABLE: str(run.path), "PATH": "/bin"}
    killed, spared = (subprocess.Popen(["sleep", "100"], env=environment) for _ in range(2))
    wait_until_executed(killed, spared)
    kill = psutil.Process.kill

    def kill_but_one(process: psutil.Process) -> None:
        if process.pid != spared.pid:
            kill(process)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(psutil.Process, "kill", kill_but_one)
            assert kill_processes_below(tmp_path, timeout_s=1) == ([killed.pid], [spared.pid])
        assert kill_processes_below(tmp_path) == ([spared.pid], [])
    finally:
        for process in (killed, spared):
            process.kill()
            process.wait()
