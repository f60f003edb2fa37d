"""The tool that counts the faults which tests notice: what is no measurement is an error."""

from __future__ import annotations

import subprocess
import sys

from tests.rooms import ROOT

_TRY = """
import argparse
from tests import mutants

options = argparse.Namespace(sample=3, minutes=5, seed=1, processes=1)
[outcome] = mutants.try_parts(["storage"], options, mutants.Calls(), [{tests!r}])
print(outcome.tried, len(outcome.survivors), outcome.left_out)
"""


def test_the_faults_of_a_sample_are_tried() -> None:
    ended = _try_storage("tests/unit/storage/test_globs.py")
    tried, survivors, left_out = ended.stdout.splitlines()[-1].split(maxsplit=2)
    assert (tried, left_out, ended.returncode) == ("3", "[]", 0), ended.stderr
    assert int(survivors) == ended.stdout.count("SURVIVED")


def test_a_part_whose_tests_are_not_there_is_an_error() -> None:
    ended = _try_storage("tests/unit/storage/test_gone.py")
    assert ended.returncode == 1
    assert "not found: " in ended.stderr
    assert "so nothing is measured" in ended.stderr


def test_a_part_of_which_no_test_runs_is_an_error() -> None:
    ended = _try_storage("tests/unit/test_examples.py")  # not enough alone
    assert ended.returncode == 1
    assert "no test has run: tests/unit/test_examples.py" in ended.stderr


def _try_storage(tests: str) -> subprocess.CompletedProcess[str]:
    code = _TRY.format(tests=tests)
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
