"""The tests on other Pythons fail for a failing test, and for nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests import interpreters, skip_absent, skips
from tests.interpreters import TIME_OVER, find, verdict
from tests.processes import wait_until, wait_until_gone

DOTS = "........................................................................ [  1%]\n"


@pytest.mark.parametrize(
    ("step", "problem", "text", "is_good"),
    [
        ("venv", "exit status 1", "ensurepip is not available", True),
        ("pip", "exit status 1", "Connection refused", True),
        ("pip", TIME_OVER, "", True),
        ("pytest", TIME_OVER, f"warning: FE\n{DOTS}..s...", True),
        ("pytest", TIME_OVER, f"{DOTS}...F.", False),
        ("pytest", TIME_OVER, f".E{DOTS}.....", False),
        ("pytest", "exit status 1", f"{DOTS}1 failed, 71 passed in 1 s", False),
        ("pytest", "exit status -11", DOTS, False),
        ("pytest", "exit status 5", "no tests ran", False),
    ],
)
def test_only_a_failing_test_is_a_failure(
    step: str, problem: str, text: str, is_good: bool
) -> None:
    said, came_out = verdict(step, problem, text)
    assert came_out == is_good
    assert f"{step}: {problem}" in said


def test_the_last_line_says_what_came_out() -> None:
    assert verdict("pytest", "", f"{DOTS}\n72 passed in 1 s\n") == ("72 passed in 1 s", True)


def test_what_is_skipped_there_is_no_skip_of_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(skips.FOLDER_VARIABLE, str(tmp_path))
    code = f"import os; raise SystemExit(os.environ.get({skips.FOLDER_VARIABLE!r}))"
    with (tmp_path / "out").open("w") as output:
        assert interpreters.run([sys.executable, "-c", code], output, time.monotonic() + 600) == ""


@pytest.mark.parametrize(
    ("prints", "is_found"),
    [("3 11 3", False), ("3 11 4", True), ("3 14 0", True), ("command not found", False)],
)
def test_a_python_that_is_too_old_or_does_not_run_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, is_found: bool
) -> None:
    monkeypatch.setattr(interpreters, "OLDEST", (3, 11, 4))
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "python3.11"
    status = 0 if prints[0] == "3" else 127
    program.write_text(f"#!/bin/sh\necho {prints}\nexit {status}\n")
    program.chmod(0o755)
    assert find("3.11") == (str(program) if is_found else None)
    assert find("3.12") is None


def test_nothing_is_left_of_a_run_when_the_time_is_over(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"trap '' INT; sleep 600 & echo $! > {note}.new; mv {note}.new {note}; wait"
    process = psutil.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL)
    wait_until(note.exists, "it has started a process")
    below = psutil.Process(int(note.read_text()))
    interpreters.end(process, patience_s=0.1)
    assert process.poll() is not None
    wait_until_gone(below.pid)


def test_a_run_ends_at_its_deadline(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as output:
        assert interpreters.run(["sleep", "600"], output, deadline=0.0) == TIME_OVER


@pytest.mark.parametrize(
    ("absent", "outcome"),
    [("no_torch", "failed"), ("pandas", "skipped"), ("distutils", "failed"), ("imp", "failed")],
)
def test_a_module_that_python_no_longer_has_is_no_optional_package(
    monkeypatch: pytest.MonkeyPatch, absent: str, outcome: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    report = pytest.TestReport(
        "test", ("test.py", 0, "test"), {}, "failed",
        f"ModuleNotFoundError: No module named '{absent}.of_it'", "call",
    )  # fmt: skip
    assert skip_absent.skipped(report, "test.py").outcome == outcome
