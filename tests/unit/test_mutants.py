"""The tool that counts the faults which tests notice: what is no measurement is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rooms import ROOT

_FORK = """
import os
from det_jupyter.storage.globs import matching
from tests import mutants
calls = mutants.Calls()
calls.note("a test")
if (pid := os.fork()) == 0:
    matching(["a"], ["a"])
    os._exit(0)
os.waitpid(pid, 0)
calls.add_forks()
code = matching.__code__
print((code.co_filename, code.co_firstlineno) in calls.by["a test"])
"""
_KILL = """
import os, subprocess, time
from tests import mutants

other = subprocess.Popen(["sleep", "60"])
time.sleep(0.05)  # the clock of processes ticks a hundred times a second
if os.fork() == 0:
    mutants.keep_others_alive()
    own = subprocess.Popen(["sleep", "60"], start_new_session=True)
    for kill, pid in [(os.kill, other.pid), (os.kill, -1), (os.kill, 0), (os.killpg, 1)]:
        try:
            kill(pid, 9)
        except PermissionError as error:
            print(str(error).replace(str(other.pid), "other"), flush=True)
    os.killpg(own.pid, 9)
    print(own.wait(), flush=True)
    os._exit(0)
os.wait()
print(other.poll())
other.kill()
"""
_TRY = """
import argparse
from tests import mutants

options = argparse.Namespace(sample=3, minutes=5, seed=1, processes=1)
[outcome] = mutants.try_parts(["storage"], options, mutants.Calls(), [{tests!r}])
print(outcome.tried, len(outcome.survivors), outcome.left_out)
"""


@pytest.mark.long
def test_a_part_whose_tests_are_not_there_is_an_error() -> None:
    ended = _try_storage("tests/unit/storage/test_gone.py")
    assert ended.returncode == 1
    assert "not found: " in ended.stderr
    assert "so nothing is measured" in ended.stderr


@pytest.mark.long
def test_a_part_of_which_no_test_runs_is_an_error(tmp_path: Path) -> None:
    skipped = tmp_path / "test_skipped.py"
    skipped.write_text("import pytest\n@pytest.mark.skip\ndef test_nothing(): pass\n")
    ended = _try_storage(str(skipped))
    assert ended.returncode == 1
    assert f"no test has run: {skipped}" in ended.stderr


@pytest.mark.long
def test_a_sample_is_tried_without_the_tests_that_fail_without_a_fault(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text(
        "from det_jupyter.storage.globs import matching\n"
        "def test_right(): assert matching(['a', 'b'], ['a']) == ['a']\n"
        "def test_wrong(): assert matching(['a', 'b'], ['a']) == ['b']\n"
    )
    ended = _try_storage(str(broken))
    assert "test_broken.py::test_wrong: it fails without a fault" in ended.stdout
    assert "assert ['a'] == ['b']" in ended.stderr
    assert "test_right" not in ended.stdout
    tried, survivors, *_ = ended.stdout.splitlines()[-1].split()
    assert (tried, int(survivors)) == ("3", ended.stdout.count("SURVIVED"))


def test_a_fault_kills_only_what_its_tests_have_started() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _KILL], cwd=ROOT, capture_output=True, text=True, check=True
    )
    refused = [f"process {pid} is not of this test" for pid in ("other", -1, 0, 1)]
    assert ended.stdout.splitlines() == [*refused, "-9", "None"]


def test_what_the_fork_of_a_test_calls_counts_as_called_by_the_test() -> None:
    # In a process of its own: what traces calls here, as of other tests, would be lost.
    ended = subprocess.run(
        [sys.executable, "-c", _FORK], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr


def _try_storage(tests: str) -> subprocess.CompletedProcess[str]:
    code = _TRY.format(tests=tests)
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
