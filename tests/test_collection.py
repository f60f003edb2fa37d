"""Every test of the repository is collected by a target of the Makefile.

Tools pass over folders in silence: 293 tests lay in a folder named `build` and ran nowhere.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.rooms import ROOT

TARGETS = ("test", "test-long", "test-gpu", "test-integrations")

# Folders that pytest, ruff, git or what people have git ignore pass over.
PASSED_OVER = (
    "build", "_build", "buck-out", "dist", "env", "venv", "ENV", "wheels", "node_modules",
    "site-packages", "CVS", "_darcs", "*.egg", "*.egg-info",
)  # fmt: skip


class FilesOnly:
    """A pytest plugin: print which files are collected, and import none of them."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Collector:
        print(module_path.relative_to(ROOT).as_posix())
        return _NoTests.from_parent(parent, path=module_path)


class _NoTests(pytest.File):
    def collect(self) -> list[pytest.Item]:
        return []


@pytest.fixture(scope="module")
def files() -> list[str]:
    """Return the files that git has, and those that it would take."""
    return listed("--cached", "--others", "--exclude-standard")


def listed(*options: str) -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", *options], cwd=ROOT, capture_output=True, text=True
    )
    if listing.returncode:
        pytest.skip("not in a git repository")
    return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def test_every_test_file_is_collected_by_a_target(files: list[str]) -> None:
    tests = {name for name in files if fnmatch(Path(name).name, "test_*.py")}
    assert sorted(tests - collected([arguments_of(target) for target in TARGETS])) == []


def arguments_of(target: str) -> list[str]:
    """Return what a target of the Makefile passes to pytest."""
    lines = subprocess.check_output(["make", "-n", target], cwd=ROOT, text=True)
    commands = [line for line in lines.replace("\\\n", " ").splitlines() if "-m pytest" in line]
    assert len(commands) == 1, f"`make {target}` runs pytest {len(commands)} times"
    words = shlex.split(commands[0])
    return words[words.index("pytest") + 1 :]


def collected(runs: list[list[str]]) -> set[str]:
    """Return the files that pytest collects with each of these arguments, without a conftest."""
    code = f"from tests.test_collection import FilesOnly; import pytest\nfor each in {runs}:\n"
    code += (
        " print(pytest.main([*each, *'--collect-only -qq --noconftest'.split()], [FilesOnly()]))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    lines = run.stdout.splitlines()
    ends = [line for line in lines if line.startswith("ExitCode") or line.isdigit()]
    assert ends == [str(pytest.ExitCode.NO_TESTS_COLLECTED)] * len(runs), run.stdout + run.stderr
    return {line for line in lines if line.endswith(".py")}


def test_no_conftest_leaves_a_file_out(files: list[str]) -> None:
    wrong = ("collect_ignore", "pytest_ignore_collect")
    texts = {name: (ROOT / name).read_text() for name in files if name.endswith("conftest.py")}
    assert [name for name, text in texts.items() if any(each in text for each in wrong)] == []


_CLASS = re.compile(r"class (\w+)(?:\(([^)]*)\))?")
_FUNCTION = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def test_no_test_has_a_name_that_is_not_collected(files: list[str]) -> None:
    python = [name for name in files if name.startswith("tests/") and name.endswith(".py")]
    assert uncollected({name: (ROOT / name).read_text() for name in python}) == []


def uncollected(texts: Mapping[str, str]) -> list[str]:
    """Return the tests in these files that pytest passes over.

    It runs those of a class that is named otherwise where another class inherits them.
    """
    statements = [
        (file, statement)
        for file, text in texts.items()
        for statement in re.split(r"^(?=class |def |async def |@)", text, flags=re.MULTILINE)
    ]
    classes = [found.groups("") for _, each in statements if (found := _CLASS.match(each))]
    inherited = {base for _, bases in classes for base in re.findall(r"\w+", bases)}
    passed_over = []
    for file, statement in statements:
        name = of_class[1] if (of_class := _CLASS.match(statement)) else ""
        is_collected = Path(file).name.startswith("test_") and name[:4] in ("", "Test")
        if not is_collected and name not in inherited:
            passed_over += [f"{file}: {test}" for test in _FUNCTION.findall(statement)]
    return passed_over


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("checks.py", "def test_a(): pass"),
        ("checks.py", "class TestA:\n    def test_a(self): pass"),
        ("test_checks.py", "class Checks:\n    async def test_a(self): pass"),
    ],
)
def test_tests_that_are_not_collected_are_found(file: str, code: str) -> None:
    assert uncollected({file: code}) == [f"{file}: test_a"]
    inherits = "class TestThem(Checks): pass"
    assert bool(uncollected({file: code, "test_b.py": inherits})) == ("Checks" not in code)


def test_no_file_is_in_a_folder_that_tools_pass_over(
    files: list[str], pytestconfig: pytest.Config
) -> None:
    patterns = {*PASSED_OVER, *pytestconfig.getini("norecursedirs")}
    patterns.discard(".*")  # .ci
    parts = {part for name in files for part in Path(name).parts[:-1]}
    assert [part for part in sorted(parts) if any(fnmatch(part, each) for each in patterns)] == []
    assert listed("--cached", "--ignored", "--exclude-standard") == []
