"""How the processes of fork servers and of ranks are started."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from det_jupyter.agent.starting import spawn
from det_jupyter.agent.starting.rank_processes import exit_code_of
from det_jupyter.agent.starting.spawn import KERNEL_NAME, kernel_argv
from det_jupyter.agent.starting.zygote_process import start_zygote
from det_jupyter.contract.host import paths
from det_jupyter.errors import LaunchError

PYTHON = """#!{python}
import os, socket, sys
print(os.getcwd(), os.getpgid(0) == os.getpid(), sys.argv[1:4], sys.argv[6:])
print(os.read({lifeline}, 4))
socket.socket(fileno=int(sys.argv[5])).sendall(b"hello")
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    for folder in (paths.log_dir(), paths.data_dir()):
        folder.mkdir(parents=True, exist_ok=True)


def test_a_fork_server_has_its_socket_the_lifeline_and_a_private_log(tmp_path: Path) -> None:
    lifeline, write_end = os.pipe()
    python = tmp_path / "python"
    python.write_text(PYTHON.format(python=sys.executable, lifeline=lifeline))
    python.chmod(0o700)
    os.write(write_end, b"life")
    os.write(write_end, b"line")
    logs = set()
    try:
        for word in (b"life", b"line"):
            started = start_zygote(str(python), lifeline_fd=lifeline, target="module:function")
            with started.connection as connection:
                assert connection.recv(5) == b"hello"
                assert connection.recv(1) == b""  # the server alone had the other end
            assert started.process.wait() == 0
            logs.add(started.log)
            assert started.log.read_text().splitlines() == [  # of the last start alone
                f"{paths.data_dir()} True ['-P', '-m', 'det_jupyter.rank.zygote'] "
                "['--target', 'module:function']",
                repr(word),
            ]
    finally:
        os.close(lifeline)
        os.close(write_end)
    (log,) = logs
    assert log.parent == paths.log_dir()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["missing", "not executable", "below a file", "no program"])
def test_an_interpreter_that_is_none_is_a_final_error(tmp_path: Path, kind: str) -> None:
    python = tmp_path / "python"
    if kind != "missing":
        python.write_text("nothing\n")
        python.chmod(0o700 if kind == "no program" else 0o600)
    if kind == "below a file":
        python /= "python"
    num = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LaunchError, match=f"the interpreter {python} cannot be started: "):
        start_zygote(str(python), lifeline_fd=0, target="module:function")
    assert len(os.listdir("/proc/self/fd")) == num


def test_a_start_that_may_succeed_later_is_an_error_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(subprocess, "Popen", fail)
    num = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BlockingIOError):
        start_zygote(sys.executable, lifeline_fd=0, target="module:function")
    assert len(os.listdir("/proc/self/fd")) == num


def test_a_rank_is_started_as_the_kernel_spec_of_its_interpreter_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = str(tmp_path / "env" / "bin" / "python")
    assert kernel_argv(python)[:3] == [python, "-m", "det_jupyter.rank"]  # that of this checkout
    folder = tmp_path / "env" / "share" / "det_jupyter" / "kernels" / KERNEL_NAME
    folder.mkdir(parents=True)
    argv = ["python", "-m", "module", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv}))
    assert kernel_argv(python) == [python, *argv[1:]]
    (folder / "kernel.json").unlink()
    monkeypatch.setattr(spawn, "__file__", str(tmp_path / "a" / "b" / "c" / "d" / "spawn.py"))
    with pytest.raises(LaunchError, match=f"det-worker is missing from {folder.parent}; install"):
        kernel_argv(python)


def test_the_exit_code_of_a_process_is_known_until_it_is_reaped() -> None:
    processes = [subprocess.Popen(["sh", "-c", line]) for line in ("exit 3", "kill -9 $$")]
    with subprocess.Popen(["sleep", "3600"]) as living:
        for process in processes:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert [exit_code_of(process.pid) for process in [*processes, living]] == [3, -9, None]
        living.kill()
    assert [process.wait() for process in processes] == [3, -9]
    assert [exit_code_of(process.pid) for process in processes] == [None, None]
