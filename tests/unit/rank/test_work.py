"""What a rank runs besides trial classes and functions: programs and commands."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.contract.run.control_page import ControlPage, create_page
from det_jupyter.contract.values.entrypoints import Command, Program
from det_jupyter.errors import ConfigError
from det_jupyter.rank import work
from det_jupyter.rank.endings import ExitedWith
from det_jupyter.rank.work import CommandRun, ProgramRun, command_text, reported_steps


def test_steps_are_those_of_the_rank_that_came_farthest(tmp_path: Path) -> None:
    create_page(tmp_path / "control")
    page = ControlPage(tmp_path / "control")
    assert reported_steps(page, 3) == 0
    page.batch_writer(1)(8)
    page.batch_writer(2)(5)
    assert (reported_steps(page, 3), reported_steps(page, 1)) == (7, 0)
    page.close()
    run = CommandRun(Command(("true",)), steps=lambda: 7, first=5)
    assert (run.steps_completed, run.trained) == (7, 2)
    run = CommandRun(Command(("true",)), steps=lambda: 0, first=5)
    assert (run.steps_completed, run.trained) == (5, 0)


# programs


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Return what runs a program in this process, which is as before after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["rank"])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    finished: list[str] = []
    monkeypatch.setattr(work, "finish_python", lambda: finished.append("finished"))
    handlers, level = list(logging.root.handlers), logging.root.level

    def run(target: str, *args: str, is_module: bool = False) -> list[str]:
        made = Program(target=target, is_module=is_module, args=tuple(args))
        finished.clear()
        ran = ProgramRun(made, steps=lambda: 0, first=0)
        ran.run()
        return finished

    yield run
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_a_script_is_main_and_finds_what_lies_beside_it(
    program: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "det_beside.py").write_text("value = 7\n")
    (tmp_path / "link.py").symlink_to(folder / "train.py")
    (folder / "train.py").write_text(
        "import logging, sys, det_beside\n"
        "assert __name__ == '__main__'\n"
        "assert sys.modules['__main__'].__dict__ is globals()\n"
        "assert not logging.root.handlers and logging.root.level == logging.WARNING\n"
        "with open('told', 'w') as file:\n"
        "    file.write(f'{det_beside.value} {sys.argv} {__file__} {sys.path[0]}')\n"
    )
    logging.root.setLevel(logging.DEBUG)
    assert program("link.py", "--lr", "1") == ["finished"]
    assert (tmp_path / "told").read_text() == (
        f"7 ['link.py', '--lr', '1'] {tmp_path}/link.py {folder}"
    )
    main = sys.modules["__main__"]
    live = ProgramRun(
        Program(target="x", is_module=False, args=()), steps=lambda: 0, first=0
    ).live()
    assert live["det_beside"] is vars(main)["det_beside"]
    assert "__name__" not in live
    del sys.modules["det_beside"]


@pytest.mark.parametrize("kind", ["folder", "module"])
def test_a_folder_and_a_module_are_run_as_python_runs_them(
    program: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "det_program"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text(
        "import sys\n"
        "with open('told', 'w') as file:\n"
        "    file.write(f'{__name__} {sys.argv[1:]} {sys.path[0]}')\n"
    )
    assert program("det_program", "3", is_module=kind == "module") == ["finished"]
    first = tmp_path if kind == "module" else folder
    assert (tmp_path / "told").read_text() == f"__main__ ['3'] {first}"
    sys.modules.pop("det_program", None)


@pytest.mark.parametrize(
    ("code", "is_module", "message"),
    [
        ("import sys; sys.exit(3)", False, r"^train.py ended with exit code 3 \(sys.exit\)"),
        ("import sys; sys.exit(3)", True, r"^python -m train ended with exit code 3"),
        ("import sys; sys.exit('no')", False, r"exit code 1 \(sys.exit\): no"),
    ],
)
def test_a_program_that_exits_with_a_code_has_failed(
    program: Callable[..., Any], tmp_path: Path, code: str, is_module: bool, message: str
) -> None:
    (tmp_path / "train.py").write_text(code)
    with pytest.raises(ExitedWith, match=message):
        program("train" if is_module else "train.py", is_module=is_module)


def test_a_program_that_exits_with_0_has_ended_well(
    program: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import sys; sys.exit()")
    assert program("train.py") == ["finished"]
    (tmp_path / "train.py").write_text("raise KeyError('lr')")
    with pytest.raises(KeyError, match="lr"):
        program("train.py")


@pytest.mark.parametrize(
    ("code", "target", "message"),
    [
        (b"x = (", "train.py", "entrypoint: .*train.py"),
        (b"x = '\0'", "train.py", "entrypoint: "),
        (b"", "gone.py", r"there is no gone.py in .* \(Python files there: train.py\); the con"),
        (b"", "none/gone.py", r"there is no none/gone.py in .* \(Python files there: none\)"),
    ],
)
def test_a_program_that_is_none_is_refused(
    program: Callable[..., Any], tmp_path: Path, code: bytes, target: str, message: str
) -> None:
    (tmp_path / "train.py").write_bytes(code)
    with pytest.raises(ConfigError, match=message):
        program(target)


def test_each_rank_draws_its_own_numbers(program: Callable[..., Any], tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "train.py").touch()
    drawn = []
    for _ in range(2):
        random.seed(1)
        torch.manual_seed(1)
        np.random.seed(1)
        program("train.py")
        drawn.append((random.random(), float(torch.rand(1)), float(np.random.rand())))
    assert all(first != second for first, second in zip(*drawn, strict=True))


# commands


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the handlers of signals that are sent on to a command."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def run_command(*argv: str) -> CommandRun:
    run = CommandRun(Command(argv), steps=lambda: 0, first=0)
    run.run()
    return run


@pytest.mark.usefixtures("handlers")
def test_a_command_ends_well_or_with_what_its_code_says(tmp_path: Path) -> None:
    run = run_command("sh", "-c", f"cat > {tmp_path}/stdin")
    assert (tmp_path / "stdin").read_bytes() == b""
    assert run.live()["command"] == ["sh", "-c", f"cat > {tmp_path}/stdin"]
    assert run.live()["process"].returncode == 0
    with pytest.raises(ExitedWith, match=r"^the command `exit 3` ended with exit code 3$"):
        run_command("sh", "-c", "exit 3")
    with pytest.raises(ExitedWith, match="was killed by SIGSEGV"):
        run_command("sh", "-c", "kill -SEGV $$")


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_is_passed_on_to_the_command(tmp_path: Path, number: signal.Signals) -> None:
    before, go = signal.getsignal(number), tmp_path / "go"

    def begin() -> None:
        while signal.getsignal(number) is before:
            time.sleep(0.001)
        go.touch()

    wait = f"until [ -e {go} ]; do sleep 0.01; done"
    send = f"kill -{int(number)} $PPID; while :; do sleep 0.01; done"
    thread = threading.Thread(target=begin)
    thread.start()
    with pytest.raises(ExitedWith, match="exit code 7"):
        run_command("sh", "-c", f"trap 'exit 7' {int(number)}; {wait}; {send}")
    thread.join()


@pytest.mark.parametrize(
    ("text", "mode", "argv", "message"),
    [
        (None, 0, ("gone-command",), r"'gone-command' is not there: .* in PATH; .*\./gone-com"),
        (None, 0, ("./run",), r"\./run is not there in the folder that the trial works in"),
        ("#!/gone\n", 0o700, ("./run",), r"\./run names an interpreter that is not there"),
        ("x", 0o600, ("./run",), r"\./run may not be executed; `chmod \+x \./run` allows it"),
        ("x", 0o700, ("./run",), r"\./run is no program; if it is a script, its first line"),
        ("#!/bin/sh", 0o700, ("./run", "x" * 200_000), r"its arguments or variables are too l"),
        ("x", 0o700, ("./run/x",), r"\./run/x cannot be started: Not a directory"),
    ],
)
def test_a_command_that_cannot_be_started_is_told_with_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    mode: int,
    argv: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("run").write_text(text)
        Path("run").chmod(mode)
    with pytest.raises(ConfigError, match=f"^entrypoint: .*{message}"):
        run_command(*argv)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("sh", "-c", "a | b"), "a | b"),
        (("sh", "-c", "a", "b"), "sh -c a b"),
        (("bash", "-c", "a | b"), "bash -c 'a | b'"),
        (("run", "two words"), "run 'two words'"),
    ],
)
def test_a_command_is_told_as_it_was_written(argv: tuple[str, ...], text: str) -> None:
    assert command_text(argv) == text
    assert len(command_text(("run", "x" * 500))) <= 120
    assert os.sep not in text
