"""Workers as real processes of a shell: what is passed on, returned and reported."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path

import pytest

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.launch import workers as module
from det_jupyter.launch.computers import RunLayout
from det_jupyter.launch.copies import Tail
from det_jupyter.launch.workers import Worker, exit_code, run_workers
from tests.waiting import wait_until_gone


def shell(script: str, rank: int | None = 0, **facts: object) -> Worker:
    return Worker(rank=rank, argv=("/bin/sh", "-c", script), **facts)  # type: ignore[arg-type]


def test_all_have_ended_well() -> None:
    assert run_workers([shell("true"), shell("true", 1)], "test") == 0


def test_the_exit_code_of_a_shell_is_that_of_a_process_or_of_its_signal() -> None:
    assert [exit_code(code) for code in (0, 3, -9)] == [0, 3, 137]


def test_a_failure_is_returned_and_reported(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_workers([shell("exit 3")], "test") == 3
    assert capfd.readouterr().err == "test: rank 0 failed with exit code 3\n"
    assert run_workers([shell("kill -9 $$", None)], "test") == -9
    assert capfd.readouterr().err == "test: sh was killed by SIGKILL\n"
    assert run_workers([shell("exit 3")], "test", is_quiet=True) == 3
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("num", "others"), [(2, "the other was ended"), (3, "the other 2 were ended")]
)
def test_the_first_failure_ends_the_others_which_are_counted(
    num: int, others: str, capfd: pytest.CaptureFixture[str]
) -> None:
    waiting = [shell("sleep 600", rank) for rank in range(1, num)]
    assert run_workers([shell("exit 4"), *waiting], "test") == 4
    assert capfd.readouterr().err == (
        f"test: the first failure: rank 0 failed with exit code 4; {others}\n"
    )


def test_one_that_does_not_leave_is_killed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.05)
    ready = tmp_path / "ready"
    stubborn = shell(f"trap '' TERM; touch {ready}; while :; do sleep 0.05; done", 1)
    fails = shell(f"until [ -e {ready} ]; do sleep 0.05; done; exit 4")
    assert run_workers([fails, stubborn], "test") == 4


def test_lines_get_their_prefix_and_the_last_ones_of_a_failure_are_repeated(
    capfd: pytest.CaptureFixture[str],
) -> None:
    first = shell("echo wrong >&2; echo one; printf two; exit 3", prefix=b"[rank=0] ")
    assert run_workers([first], "test") == 3
    said = capfd.readouterr()
    assert said.out == "[rank=0] one\n[rank=0] two"
    assert said.err == "[rank=0] wrong\ntest: rank 0 failed with exit code 3\n"
    first = shell("echo one; printf two; exit 3", prefix=b"[rank=0] ")
    other = shell("sleep 600", 1, prefix=b"[rank=1] ")
    assert run_workers([first, other], "test") == 3
    repeated = capfd.readouterr().err.splitlines()[1:]
    assert repeated == ["  [rank=0] one", "  [rank=0] two"]


def test_output_goes_to_the_file_of_the_rank_and_its_failure_to_the_journal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = RunLayout(RunDir(tmp_path), ("a",))
    worker = shell("echo out; echo err >&2; exit 3", output=run.folder.output(0))
    assert run_workers([worker], "test", run=run) == 3
    assert capfd.readouterr().err == "test: rank 0 failed with exit code 3\n"
    assert run.folder.output(0).read_text() == "out\nerr\n"
    assert "rank 0 failed with exit code 3" in run.folder.journal(0).read_text()
    assert run_workers([shell("exit 3", output=tmp_path / "x")], "test") == 3  # of no experiment


@pytest.mark.parametrize(
    ("command", "code", "problem"),
    [
        ("/gone/program", 127, "test: cannot start a worker: /gone/program: No such file or"),
        ("/etc/passwd", 126, "test: cannot start a worker: /etc/passwd: Permission denied"),
    ],
)
def test_a_command_that_cannot_be_started_is_named_and_ends_the_others(
    command: str, code: int, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    workers = [shell("sleep 600"), Worker(rank=1, argv=(command,))]
    assert run_workers(workers, "test") == code
    assert problem in capfd.readouterr().err


def test_a_worker_has_its_variables_and_an_empty_stdin(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = shell('echo "$OWN $HOME"; cat', env={"OWN": "mine"})
    assert run_workers([worker], "test") == 0
    assert capfd.readouterr().out == f"mine {os.environ['HOME']}\n"


def sends(number: int, to: str = "$PPID") -> str:
    return f"kill -{int(number)} {to}; "


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_workers_and_their_end_is_said_to_be_its(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    worker = shell(f"trap 'exit 7' {int(number)}; {sends(number)} while :; do sleep 0.05; done")
    assert run_workers([worker], "test") == 7
    assert capfd.readouterr().err == f"test: ended after {number.name}\n"
    assert signal.getsignal(number) is before


def test_a_signal_that_ends_nothing_is_passed_on_once(capfd: pytest.CaptureFixture[str]) -> None:
    number = int(signal.SIGUSR1)
    script = f"n=0; trap 'n=$((n+1))' {number}; {sends(number)} sleep 0.3; sleep 0.3; exit $n"
    assert run_workers([shell(script)], "test") == 1
    assert capfd.readouterr().err == "test: rank 0 failed with exit code 1\n"


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_workers([shell(f"{sends(signal.SIGHUP)} exit 0")], "test") == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_stays_with_a_handler_that_is_not_pythons() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        assert run_workers([shell(f"{sends(signal.SIGINT)} sleep 0.2; exit 0")], "test") == 0
        assert received == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_a_worker_leaves_behind_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert run_workers([shell(f"sleep 600 & echo $! > {pid}")], "test") == 0
    wait_until_gone(int(pid.read_text()))


def test_a_tail_has_the_last_ten_lines_as_a_terminal_shows_them() -> None:
    tail = Tail()
    for number in range(4000):
        tail.add(b"line %d of the output, which is long\n" % number)
    tail.add(b" 10%\r 20%\r\nlast\n\n")
    assert tail.lines()[:2] == [
        "line 3992 of the output, which is long",
        "line 3993 of the output, which is long",
    ]
    assert tail.lines()[-2:] == [" 20%", "last"]
    assert len(tail.lines()) == 10
    tail.add(b"y" * 100_000)
    assert tail.lines() == ["y" * 300]


def test_a_file_of_output_is_private_and_stdin_is_the_launchers_if_a_worker_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tmp_path / "words"
    words.write_text("from stdin")
    before = os.dup(0)
    source = os.open(words, os.O_RDONLY)
    os.dup2(source, 0)
    monkeypatch.setattr(sys, "__stdin__", sys.__stdin__ or io.StringIO())
    try:
        for closes, expected in ((True, ""), (False, "from stdin")):
            output = tmp_path / f"output-{closes}"
            assert run_workers([shell("cat", output=output, closes_stdin=closes)], "test") == 0
            assert output.read_text() == expected
            assert output.stat().st_mode & 0o777 == 0o600
        words.write_text("again")
        os.lseek(0, 0, os.SEEK_SET)
        terminal = shell("cat", output=tmp_path / "terminal", closes_stdin=False)
        with monkeypatch.context() as patch:
            patch.setattr(os, "isatty", lambda descriptor: descriptor == 0)
            assert run_workers([terminal], "test") == 0
        assert (tmp_path / "terminal").read_text() == ""  # reading it would stop the worker
        with monkeypatch.context() as patch:
            patch.setattr(sys, "__stdin__", None)
            assert run_workers([terminal], "test") == 0
        assert (tmp_path / "terminal").read_text() == ""
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(source)
