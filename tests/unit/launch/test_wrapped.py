"""How a wrapped rank ends, becomes its command, and which mpirun starts it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.launch import chief_launcher, mpi, workers, wrap_rank
from det_jupyter.launch.computers import RunLayout


@pytest.fixture
def child_signal() -> Iterator[None]:
    """Restore the handler that ending by a signal replaces."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("child_signal")
@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (-int(signal.SIGCHLD), 145)])
def test_a_wrapped_rank_ends_as_its_command_did(
    monkeypatch: pytest.MonkeyPatch, code: int, expected: int
) -> None:
    sent: list[tuple[int, int]] = []
    given: list[dict[str, Any]] = []

    def run_workers(*_: object, **options: Any) -> int:
        given.append(options)
        return code

    monkeypatch.setattr(wrap_rank, "run_workers", run_workers)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    assert wrap_rank.main(["0", "sh"]) == expected
    assert given == [{"is_quiet": True}]  # the command has said what was wrong
    assert sent == ([] if code >= 0 else [(os.getpid(), -code)])
    is_default = signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    assert is_default is (code < 0)  # else its handler would keep the signal from ending it


class Became(Exception):
    """What a process would have become."""


@pytest.mark.parametrize("rank_variable", ["1", "0", None])
@pytest.mark.parametrize("error", [None, errno.ENOEXEC, errno.EACCES])
def test_a_rank_becomes_its_command_with_its_variables_and_its_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank_variable: str | None,
    error: int | None,
) -> None:
    given: list[Any] = []
    duplicated: list[tuple[str, int]] = []

    def execvpe(program: str, words: Sequence[str], environ: Mapping[str, str]) -> None:
        given.append((program, words, environ))
        raise Became if error is None else OSError(error, os.strerror(error))

    def dup2(source: int, target: int) -> None:
        duplicated.append((os.readlink(f"/proc/self/fd/{source}"), target))

    monkeypatch.setattr(os, "execvpe", execvpe)
    monkeypatch.setattr(os, "dup2", dup2)
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    if rank_variable is not None:
        monkeypatch.setenv("RANK", rank_variable)
    run = RunLayout(RunDir(tmp_path), ("a", "a"))
    num = len(os.listdir("/proc/self/fd"))
    if error is None:
        with pytest.raises(Became):
            wrap_rank.become(run, 1, ["python", "train.py"])
    else:
        assert wrap_rank.become(run, 1, ["python", "train.py"]) == 126
        said = capsys.readouterr().err
        assert f"wrap_rank: rank 1 cannot run python: {os.strerror(error)}" in said
        assert ("its first line has to name an interpreter" in said) is (error == errno.ENOEXEC)
        assert "rank 1 cannot run python" in run.folder.journal(1).read_text()
    output = str(run.folder.output(1))
    assert duplicated == [(output, 1), (output, 2)]
    assert Path(output).stat().st_mode & 0o777 == 0o600
    assert len(os.listdir("/proc/self/fd")) == num
    ((program, words, environ),) = given
    assert (program, words) == ("python", ["python", "train.py"])
    assert (environ["RANK"], environ["PYTHONUNBUFFERED"]) == ("1", "1")
    # A launcher that sets the rank sets its other variables too.
    assert environ.get("LOCAL_RANK") == (None if rank_variable == "1" else "1")


@pytest.mark.parametrize(
    ("script", "is_open"),
    [
        ("echo 'mpirun (Open MPI) 4.1.4'", True),
        ("echo 'Report bugs to http://www.open-mpi.org/'", True),
        ("echo 'HYDRA build details:'", False),
        ("exit 1", False),
    ],
)
def test_options_are_those_of_the_mpirun_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, is_open: bool
) -> None:
    program = tmp_path / "mpirun"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    started: list[tuple[str, ...]] = []

    def run_on_chief(name: str, job: object, argv: tuple[str, ...], variables: object) -> int:
        started.append(argv)
        return 0

    monkeypatch.setattr(mpi, "find_program", lambda name, how: str(program))
    monkeypatch.setattr(mpi, "run_on_chief", run_on_chief)
    monkeypatch.setattr(mpi, "aborting", lambda command: command)
    assert mpi.main(["-np", "2", "sh", "-c", "true"]) == 0
    (argv,) = started
    assert argv[:3] == (str(program), "-np" if is_open else "-n", "2")
    assert ("--noprefix" in argv) is is_open


@pytest.mark.parametrize("is_there", [True, False])
def test_other_computers_wait_until_the_launcher_of_the_first_has_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_there: bool,
) -> None:
    ended = tmp_path / "ended"
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            ended.write_text("7")
            if not is_there:
                raise KeyboardInterrupt

    monkeypatch.setattr(chief_launcher, "time", SimpleNamespace(sleep=sleep))
    job = chief_launcher.RanksToStart(4, 1, None, ended if is_there else None)
    if is_there:
        assert chief_launcher.run_on_chief("mpi", job, ("mpirun",), {}) == 7
    else:  # nothing tells its end: the agent ends this process
        with pytest.raises(KeyboardInterrupt):
            chief_launcher.run_on_chief("mpi", job, ("mpirun",), {})
    assert len(pauses) == 3
    assert "waiting for it" in capsys.readouterr().err


@pytest.mark.parametrize("is_done", [True, False])
def test_workers_of_a_launcher_that_was_killed_are_killed(is_done: bool) -> None:
    guard = workers._Guard()
    with subprocess.Popen(["sleep", "600"], process_group=0) as worker:
        guard.send(str(worker.pid))
        if is_done:
            guard.close()
        else:
            stdin = guard._process.stdin
            assert stdin is not None
            stdin.close()  # as when the launcher is gone
            guard._process.wait()
        assert guard._process.returncode == 0
        if not is_done:
            worker.wait()
        assert worker.poll() == (None if is_done else -9)
        worker.kill()


@pytest.mark.parametrize("words", [["--with-parent", "0", "sh"], ["0", "sh"]])
def test_a_rank_ends_with_its_launcher_if_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    parents: list[int] = []
    monkeypatch.setattr(wrap_rank, "run_workers", lambda *_, **__: 0)
    monkeypatch.setattr(wrap_rank, "kill_with_parent", parents.append)
    assert wrap_rank.main(words) == 0
    assert parents == ([os.getppid()] if words[0] == "--with-parent" else [])
