"""wrap_rank gives a rank's lines to the rank, and is otherwise as if it were not there."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.launch_support import (
    environment,
    failures,
    launch,
    make_run,
    script,
    start,
    wait_for_files,
)
from tests.processes import wait_until_gone

PRINTS = r"""
import os, sys
out = sys.stdout.buffer
out.write(b"\r 50%|#####     |\r100%|##########|\n")
out.write(b"x" * 300_000 + b"\n")
for _ in range(20_000):
    out.write("höher ".encode())
out.write(b"\n\xff\xfe no text\n")
out.flush()
os.write(2, b"to stderr, no line end")
sys.exit(7)
"""
PRINTED = (
    b"\r 50%|#####     |\r100%|##########|\n"
    + b"x" * 300_000
    + b"\n"
    + "höher ".encode() * 20_000
    + b"\n\xff\xfe no text\n"
)


def test_lines_get_the_rank_and_stay_as_they_are(tmp_path: Path) -> None:
    done = launch("wrap_rank", "3", sys.executable, script(tmp_path, PRINTS))
    assert done.returncode == 7
    assert done.stdout.replace(b"[rank=3] ", b"") == PRINTED
    assert done.stdout.startswith(b"\r[rank=3]  50%|#####     |\r[rank=3] 100%|")
    assert done.stdout.count(b"[rank=3] ") == 5
    assert done.stderr == b"[rank=3] to stderr, no line end"


def test_in_an_experiment_the_rank_prints_into_its_own_file(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run")
    output = tmp_path / "run" / "output-1"
    output.write_bytes(b"earlier\n")
    done = launch("wrap_rank", "1", "--", sys.executable, script(tmp_path, PRINTS), env=env)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"", b"")
    assert output.read_bytes() == b"earlier\n" + PRINTED + b"to stderr, no line end"


def test_in_an_experiment_the_rank_is_the_process_that_was_started(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run")
    shows = script(
        tmp_path,
        """
        import os
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
        print(os.getpid(), *(os.environ[name] for name in names))
        os.kill(os.getpid(), 9)
        """,
    )
    process = start("wrap_rank", "1", sys.executable, shows, env=env)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "run" / "output-1").read_text() == f"{process.pid} 1 1 2\n"


def test_lines_of_the_launcher_stay_there_where_that_is_asked_for(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run")
    done = launch("wrap_rank", "--no-redirect-stdio", "1", "echo", "here", env=env)
    assert done.stdout == b"[rank=1] here\n"


def test_ranks_beyond_the_slots_print_where_their_launcher_prints(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run")
    done = launch("wrap_rank", "2", "echo", "here", env=env)
    assert done.stdout == b"[rank=2] here\n"
    assert not (tmp_path / "run" / "output-2").exists()


def test_the_first_variable_that_is_set_has_the_rank() -> None:
    env = environment(SECOND="5", THIRD="6")
    done = launch("wrap_rank", "FIRST,SECOND,THIRD", "echo", "x", env=env)
    assert done.stdout == b"[rank=5] x\n"


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        ("", 2, "expected a rank and a command"),
        ("1", 2, "expected a rank and a command"),
        ("--loud 1 echo", 2, "got --loud; usage"),
        ("-1 echo", 2, "got -1; usage"),
        ("1.5 echo", 2, "got the rank '1.5'"),
        ("NOT_SET,NEITHER echo", 2, "none of the variables NOT_SET, NEITHER is set"),
        ("HOME echo", 2, "the variable HOME is '"),
        ("1 no-such-program", 127, "rank 1 cannot run no-such-program: there is no such command"),
    ],
)
def test_wrong_usage_is_told_in_a_line(words: str, code: int, problem: str) -> None:
    done = launch("wrap_rank", *words.split())
    assert done.returncode == code
    assert done.stderr.decode().startswith(f"wrap_rank: {problem}")
    assert done.stderr.count(b"\n") == 1


def test_a_command_that_is_not_there_fails_the_rank_though_its_launcher_may_not_notice(
    tmp_path: Path,
) -> None:
    env = make_run(tmp_path / "run")
    assert launch("wrap_rank", "1", "no-such-program", env=env).returncode == 127
    (failure,) = failures(tmp_path / "run", 1)
    assert failure.error == "rank 1 cannot run no-such-program: there is no such command"
    text = script(tmp_path, "echo no interpreter is named\n", "text")
    text.chmod(0o755)
    assert launch("wrap_rank", "0", text, env=env).returncode == 126
    (failure,) = failures(tmp_path / "run", 0)
    assert failure.error == (
        f"rank 0 cannot run {text}: Exec format error: its first line has to name an interpreter"
    )
    assert (tmp_path / "run" / "output-0").read_text() == f"wrap_rank: {failure.error}\n"


def test_signals_are_passed_on_and_the_command_decides_what_they_do(tmp_path: Path) -> None:
    notes = script(
        tmp_path,
        """
        import signal, sys, time
        numbers = ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM")
        for name in numbers:
            signal.signal(getattr(signal, name), lambda n, frame: print(signal.Signals(n).name))
        print("ready")
        for _ in range(200):
            time.sleep(0.1)
        """,
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    process = start("wrap_rank", "0", sys.executable, notes)
    signal.signal(signal.SIGHUP, before)
    assert process.stdout is not None
    assert process.stdout.readline() == b"[rank=0] ready\n"
    for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM"):
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"[rank=0] {name}\n".encode()
    process.kill()
    process.communicate()


def test_a_command_that_a_signal_ends_ends_its_wrapper_by_that_signal() -> None:
    done = launch("wrap_rank", "0", "sh", "-c", "kill -TERM $$")
    assert done.returncode == -signal.SIGTERM


def test_a_wrapper_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    command = f"echo $$ > {tmp_path}/pid; exec sleep 60"
    process = start("wrap_rank", "0", "sh", "-c", command)
    pid = int(wait_for_files(tmp_path, "pid")[0])
    process.kill()
    process.communicate()
    wait_until_gone(pid)


def test_a_process_that_holds_the_output_does_not_hold_the_wrapper(tmp_path: Path) -> None:
    away = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 3600' &"
    command = f"{away} while [ ! -s {tmp_path}/pid ]; do sleep 0.01; done; echo done"
    done = launch("wrap_rank", "0", "sh", "-c", command)
    holder = psutil.Process(int((tmp_path / "pid").read_text()))
    status = holder.status()
    holder.kill()
    assert (done.returncode, done.stdout) == (0, b"[rank=0] done\n")
    assert status == psutil.STATUS_SLEEPING


def test_a_reader_that_leaves_ends_the_command_as_without_a_wrapper() -> None:
    process = start("wrap_rank", "0", "yes")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == -signal.SIGPIPE
    assert process.stderr is not None
    process.stderr.close()


def test_launchers_start_without_torch_and_pydantic() -> None:
    code = (
        "import sys\n"
        "from det_jupyter.launch import deepspeed, horovod, mpi, torch_distributed, wrap_rank\n"
        "assert not {'torch', 'pydantic', 'IPython'} & sys.modules.keys()\n"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
