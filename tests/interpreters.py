"""Runs the unit tests on each other Python that pyproject.toml supports and this machine has.

    python -m tests.interpreters [--seconds 240]

For CI, which has minutes: torch for another Python is gigabytes, so the tests that need it or an
optional package are skipped. The whole suite on one: `make test PYTHON=python3.13`.

The exit status is 1 only if a test fails. A Python that is missing or too old, for which pip
fails, or that takes too long, is reported but is no failure.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import psutil

from tests.skips import FOLDER_VARIABLE

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROMISED = re.findall(r"Python :: (\d\.\d+)", " ".join(PROJECT["classifiers"]))
OLDEST = tuple(map(int, re.findall(r"\d+", PROJECT["requires-python"])))
TOOLS = ["hatchling", "hypothesis", "nbclient", "nbformat", "pytest", "pytest-timeout"]
TOOLS += PROJECT["optional-dependencies"]["cluster"]  # tests of tunnels create certificates
TIME_OVER = "not finished in time"
NEEDED = [each for each in PROJECT["dependencies"] if not each.startswith("torch>")] + TOOLS
# A line of pytest's progress dots that contains a failure.
FAILURE = re.compile(r"^[.sxX]*[FE][.sxXFE]*( +\[ *\d+%\])?$", re.MULTILINE)


def main() -> int:
    """Run all Pythons in parallel and print the results; return the exit status."""
    parser = argparse.ArgumentParser(description="The unit tests on each other Python here.")
    parser.add_argument("--seconds", type=float, default=240.0, help="for all of them")
    deadline = time.monotonic() + parser.parse_args().seconds
    others = [each for each in PROMISED if each != "{}.{}".format(*sys.version_info)]
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(check, each, build / f"python-{each}", deadline) for each in others]
        results = [run.result() for run in runs]
    for version, (said, _) in zip(others, results, strict=True):
        print(f"Python {version}: {said}")
    return 0 if all(is_good for _, is_good in results) else 1


def check(version: str, folder: Path, deadline: float) -> tuple[str, bool]:
    """Test one Python in a new environment; return a sentence, and whether no test has failed."""
    python = find(version)
    if python is None:
        return f"not on this machine, or not {PROJECT['requires-python']}", True
    inside = str(folder / "bin/python")
    log = folder.with_name(f"{folder.name}.txt")
    with log.open("w", encoding="utf-8") as output:
        for program, arguments in (
            (python, ["venv", "--clear", str(folder)]),
            (inside, ["pip", "install", "-qq", "--no-compile", *NEEDED]),
            (inside, ["pytest", "-p", "tests.skip_absent", "-q", "-rfE", "tests/unit"]),
        ):
            if problem := run([program, "-m", *arguments], output, deadline):
                break
    return verdict(arguments[0], problem, log.read_text(encoding="utf-8", errors="replace"))


def verdict(step: str, problem: str, text: str) -> tuple[str, bool]:
    """Return a sentence on a run that ended at this step, and whether no test has failed."""
    if not problem:
        return text.splitlines()[-1], True
    is_good = step != "pytest" or (problem == TIME_OVER and not FAILURE.search(text))
    if is_good and problem == TIME_OVER:
        return f"{step}: {problem}", True
    said = "not tested" if is_good else "failed"
    return f"{said}: {step}: {problem}\n{text[-4000:]}", is_good


def find(version: str) -> str | None:
    """Return the path of this Python: on PATH, or one of pyenv; None if there is none."""
    hidden = Path(printed("pyenv", "prefix", version), "bin", f"python{version}")
    for program in (shutil.which(f"python{version}"), str(hidden)):
        facts = program and printed(program, "-c", "import sys; print(*sys.version_info[:3])")
        if facts and tuple(map(int, facts.split())) >= OLDEST:
            return program
    return None


def printed(*command: str) -> str:
    """Return the output of a command; "" if it fails or does not exist."""
    try:
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def run(command: list[str], output: TextIO, deadline: float) -> str:
    """Run a command until the deadline at most; return the problem, "" if there is none."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'compat'}"}
    environment.pop("PYTEST_ADDOPTS", None)  # it may name plugins that are not installed there
    # Tests skipped because torch is missing do not count as skips of CI.
    environment.pop(FOLDER_VARIABLE, None)
    process = psutil.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )
    try:
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except psutil.TimeoutExpired:
        end(process)
        return TIME_OVER
    return f"exit status {status}" if status else ""


def end(process: psutil.Popen, patience_s: float = 10.0) -> None:
    """Interrupt a test process, so that it ends its processes; then kill what is left."""
    below = process.children(recursive=True)
    process.send_signal(signal.SIGINT)
    with suppress(psutil.TimeoutExpired):
        process.wait(patience_s)
    with suppress(psutil.NoSuchProcess):
        below += process.children(recursive=True)
    for each in [*below, process]:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
