"""What the tests leave out is on one list (tests/skips.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import skips, unsteady
from tests.rooms import ROOT
from tests.skips import Note

NO_GPU = "there is no CUDA device"


@pytest.fixture(autouse=True)
def _nothing_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what the run of CI that these tests are in has left out."""
    monkeypatch.delenv(skips.LEFT_OUT_VARIABLE, raising=False)


def test_the_line_names_what_is_left_out_and_how_to_get_it() -> None:
    reasons = [NO_GPU, "no wandb", "needs keras", "something new"]
    assert skips.left_out(reasons) == (
        "left out: 2 of MLflow, W&B and Keras (make test-integrations EXTRAS=ci); 1 of GPUs "
        "(make test-gpu, where there is one); 1 others (see above); what takes longer (make "
        "test-long)"
    )


@pytest.mark.parametrize(
    ("reason", "is_meant"), [(NO_GPU, True), ("no wandb", False), ("something new", False)]
)
def test_a_skip_that_is_not_meant_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    reason: str, is_meant: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv(skips.FOLDER_VARIABLE, str(tmp_path))
    skips.write(Note({"tests/a.py::test_a": reason, "tests/b.py::test_b": "no wandb"}, []))
    skips.write(Note({}, ["tests/b.py::test_b"]))  # the next run has what the first had not
    assert skips.main(str(tmp_path)) == (0 if is_meant else 1)
    said = capsys.readouterr().out
    assert f"skipped: 1: {reason}" in said
    assert ("tests/a.py::test_a" in said) is not is_meant
    assert "tests/b.py" not in said


def test_what_ci_installs_later_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(skips.FOLDER_VARIABLE, str(tmp_path))
    lacking = {"tests/b.py": "could not import 'keras.src'", "tests/a.py::test_a": "no wandb"}
    others = {"tests/c.py::test_c": NO_GPU, "tests/d.py::test_d": "no mlflow"}
    skips.write(Note(lacking | others, []))
    skips.write(Note({}, ["tests/d.py::test_d"]))
    assert skips.again(str(tmp_path), "integrations") == 0
    assert capsys.readouterr().out == "tests/b.py\ntests/a.py::test_a\n", "in their order"
    assert skips.main(str(tmp_path)) == 1
    monkeypatch.setenv(skips.LEFT_OUT_VARIABLE, " integrations pythons")
    assert skips.main(str(tmp_path)) == 0, "CI had no time for it"


def test_runs_of_which_there_is_no_note_fail(tmp_path: Path) -> None:
    assert skips.main(str(tmp_path)) == 1


TESTS = """
import pytest
def test_that_runs(): pass
@pytest.mark.skip(reason="something new")
def test_that_is_skipped(): pass
"""
MODULE = 'import pytest\npytest.importorskip("no_such_module")\ndef test_a(): pass\n'


# Only the process that prints the summary imports ours.
CONFTEST = """
def pytest_terminal_summary(terminalreporter, exitstatus):
    from tests import conftest
    conftest.pytest_terminal_summary(terminalreporter, exitstatus)
"""


@pytest.mark.parametrize("options", [[], ["-p", "xdist", "-n", "1"]], ids=["alone", "xdist"])
def test_a_run_notes_the_tests_and_modules_that_it_skips(
    tmp_path: Path, options: list[str]
) -> None:
    if "-n" in options:
        pytest.importorskip("xdist")
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_some.py").write_text(TESTS)
    (folder / "test_module.py").write_text(MODULE)
    (folder / "conftest.py").write_text(CONFTEST)
    notes = tmp_path / "notes"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "--rootdir", str(tmp_path), str(folder)],
        cwd=tmp_path, capture_output=True, text=True,
        env={
            **os.environ, "PYTHONPATH": str(ROOT), skips.FOLDER_VARIABLE: str(notes),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "left out: 2 others (see above)" in run.stdout
    assert skips.never_run(notes) == {
        "tests/test_module.py": "could not import 'no_such_module': No module named "
        "'no_such_module'",
        "tests/test_some.py::test_that_is_skipped": "something new",
    }
    assert skips.main(str(notes)) == 1


FAILING = """
import pytest
from pathlib import Path

def is_first(name):
    marker = Path(__file__).with_name(name)
    was_there = marker.exists()
    marker.touch()
    return not was_there

@pytest.fixture
def late():
    assert not is_first("late")

def test_once(): assert not is_first("once")
def test_set_up(late): pass
def test_fine(): pass
"""


def run_failing(folder: Path, notes: Path, source: str) -> int:
    """Run tests, then what has failed once more, as CI does; return the status of the latter."""
    (folder / "test_failing.py").write_text(source)
    (folder / "conftest.py").write_text(CONFTEST)
    env = os.environ | {
        "PYTHONPATH": str(ROOT), skips.FOLDER_VARIABLE: str(notes),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    first = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), "."]
    subprocess.run(first, cwd=folder, env=env, capture_output=True, check=False)
    again = [sys.executable, "-m", "tests.unsteady", str(notes)]
    return subprocess.run(again, cwd=folder, env=env, capture_output=True, check=False).returncode


def test_what_fails_once_is_run_again_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes"
    assert run_failing(tmp_path, notes, FAILING) == 0
    assert skips.main(str(notes)) == 0
    said = capsys.readouterr().out
    assert said.count("unsteady: ") == 2
    assert "unsteady: test_failing.py::test_once failed among others" in said
    first, second = skips.notes(notes)
    assert (first.status, second.status, second.failed) == (1, 0, [])
    assert set(second.ran) == {
        f"test_failing.py::test_{name}" for name in ("once", "set_up", "fine")
    }


@pytest.mark.parametrize(
    "source",
    [
        "def test_always(): assert False",
        "this is no Python",
    ],
    ids=["fails again", "no test was run"],
)
def test_what_fails_for_good_fails_ci(tmp_path: Path, source: str) -> None:
    assert run_failing(tmp_path, tmp_path / "notes", source) == 1


def test_a_run_that_was_broken_off_is_no_unsteady_test(tmp_path: Path) -> None:
    assert unsteady.main(str(tmp_path)) == 1, "there is no note of a run"
    with pytest.raises(ValueError, match="status 2, before all were run"):
        unsteady.files_of(Note({}, [], ["tests/a.py::test_a"], 2))


def test_failures_in_many_files_mean_more_than_a_busy_computer() -> None:
    failed = [f"tests/{file}.py::test_{number}" for file in "abc" for number in range(9)]
    files = ["tests/a.py", "tests/b.py", "tests/c.py"]
    assert unsteady.files_of(Note({}, [], failed, 1)) == files
    with pytest.raises(ValueError, match="tests of 4 files have failed; 3 may be unsteady"):
        unsteady.files_of(Note({}, [], [*failed, "tests/d.py::test_d"], 1))
