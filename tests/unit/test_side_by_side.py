"""Tests side by side: a process that crashes fails one test, and the others are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rooms import ROOT

pytest.importorskip("xdist")

TESTS = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_some(number):
    if __name__.endswith("c") and number == 1:
        os._exit(1)
"""
# Only the process that hands out tests imports ours.
CONFTEST = """
def pytest_xdist_make_scheduler(config, log):
    from tests import conftest
    return conftest.pytest_xdist_make_scheduler(config, log)
"""


def test_a_crash_fails_one_test_and_the_others_run(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = subprocess.run(
        [
            sys.executable,
            *["-m", "pytest", "-p", "xdist", "-n", "2", "--dist", "loadfile"],
            *["-p", "no:cacheprovider"],
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert "1 failed, 11 passed" in run.stdout, run.stdout
    assert "crashed while running 'test_c.py::test_some[1]'" in run.stdout
