"""The unit tests on each other Python that pyproject.toml promises and this machine has.

    python -m tests.interpreters [--seconds 240]

For CI, which has minutes: torch for another Python is gigabytes, so the tests that need it or an
optional package are skipped. The whole suite on one: `make test PYTHON=python3.13`.

The exit status is 1 if a test fails, or if what det_jupyter needs cannot be installed. A Python
that is not there, or not ready when the time is over, is named and fails nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ["hatchling", "hypothesis", "nbclient", "nbformat", "pytest", "pytest-timeout"]


def main() -> int:
    """Run them side by side, say what came out; returns the exit status."""
    parser = argparse.ArgumentParser(description="The unit tests on each other Python here.")
    parser.add_argument("--seconds", type=float, default=240.0, help="for all of them")
    deadline = time.monotonic() + parser.parse_args().seconds
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = re.findall(r"Python :: (\d\.\d+)", " ".join(project["classifiers"]))
    others = [each for each in promised if each != "{}.{}".format(*sys.version_info)]
    needed = [each for each in project["dependencies"] if not each.startswith("torch>")] + TOOLS
    with ThreadPoolExecutor(len(others)) as pool:
        results = pool.map(lambda version: test_on(version, needed, deadline), others)
        for version, (said, is_good) in zip(others, results, strict=True):
            print(f"Python {version}: {said}")
            if not is_good:
                return 1
    return 0


def test_on(version: str, needed: list[str], deadline: float) -> tuple[str, bool]:
    """Return what came out on one Python, and whether that is good."""
    python = find(version)
    if python is None:
        return "not on this machine", True
    folder = ROOT / "build" / f"python-{version}"
    log = folder.parent / f"{folder.name}.txt"
    folder.parent.mkdir(exist_ok=True)
    inside = str(folder / "bin/python")
    steps = [
        (str(python), ["venv", str(folder)]),
        (inside, ["pip", "install", "--quiet", "--no-compile", *needed]),
        (inside, ["pytest", "-p", "tests.skip_absent", "-q", "tests/unit"]),
    ]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'compat'}"}
    try:
        with log.open("w") as output:
            for program, arguments in steps:
                done = subprocess.run(
                    [program, "-m", *arguments], cwd=ROOT, env=environment, check=False,
                    stdout=output, stderr=output, timeout=max(0.0, deadline - time.monotonic()),
                )  # fmt: skip
                if done.returncode:
                    return f"failed; the end of {log}:\n{log.read_text()[-4000:]}", False
    except subprocess.TimeoutExpired as over:
        return f"not finished in time, at `python -m {over.cmd[2]}`", True
    return log.read_text().splitlines()[-1], True


def find(version: str) -> Path | None:
    """Return this Python: on the PATH, or one that pyenv has and does not show."""
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-V"], check=False, capture_output=True).returncode == 0:
        return Path(found)
    if shutil.which("pyenv") is None:
        return None
    listed = subprocess.run(["pyenv", "prefix", version], capture_output=True, text=True)
    program = Path(listed.stdout.strip(), "bin", f"python{version}")
    return program if listed.returncode == 0 and program.exists() else None


if __name__ == "__main__":
    sys.exit(main())
