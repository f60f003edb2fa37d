"""The tool that counts the faults which tests notice: what is no measurement is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rooms import ROOT

pytestmark = pytest.mark.long

_TRY = """
import argparse
from tests import mutants

options = argparse.Namespace(sample=3, minutes=5, seed=1, processes=1)
[outcome] = mutants.try_parts(["storage"], options, mutants.Calls(), [{tests!r}])
print(outcome.tried, len(outcome.survivors), outcome.left_out)
"""


def test_a_part_whose_tests_are_not_there_is_an_error() -> None:
    ended = _try_storage("tests/unit/storage/test_gone.py")
    assert ended.returncode == 1
    assert "not found: " in ended.stderr
    assert "so nothing is measured" in ended.stderr


def test_a_part_of_which_no_test_runs_is_an_error(tmp_path: Path) -> None:
    skipped = tmp_path / "test_skipped.py"
    skipped.write_text("import pytest\n@pytest.mark.skip\ndef test_nothing(): pass\n")
    ended = _try_storage(str(skipped))
    assert ended.returncode == 1
    assert f"no test has run: {skipped}" in ended.stderr


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


def _try_storage(tests: str) -> subprocess.CompletedProcess[str]:
    code = _TRY.format(tests=tests)
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
