"""The only list of skipped tests: what is skipped, why, and how to run it.

At the end of each run, one line names what was skipped. If `DET_TESTS_SKIPPED` names a folder, the
run records there what it skipped, what it ran, and what failed:

    python -m tests.skips FOLDER               what none of the recorded runs has run, and why
    python -m tests.skips FOLDER again STEP    the tests of these that a later step of CI runs

The exit status of the first is 1 if there is a skip that is not on this list. `.ci/run` ends with
this command; the steps for which it had no time are in `DET_TESTS_LEFT_OUT`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

FOLDER_VARIABLE, LEFT_OUT_VARIABLE = "DET_TESTS_SKIPPED", "DET_TESTS_LEFT_OUT"


def _always() -> bool:
    return True


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


@dataclass(frozen=True)
class Known:
    """An intended skip.

    Args:
        reasons: Matches the reasons of such skips; a regular expression.
        what: What is skipped.
        how: How to run it.
        step: The step of `.ci/run` that runs it; "" if no step does.
        may_run: Whether CI can run that step on this computer.
    """

    reasons: str
    what: str
    how: str
    step: str = ""
    may_run: Callable[[], bool] = _always

    @property
    def is_meant(self) -> bool:
        """Whether CI may skip it, on this computer and in the time that CI had."""
        left_out = os.environ.get(LEFT_OUT_VARIABLE, "").split()
        return not self.step or not self.may_run() or self.step in left_out


KNOWN = (
    Known(
        "there is no Chromium", "what is drawn in a browser",
        "as root: apt-get install chromium", step="chromium", may_run=_may_install,
    ),
    Known(
        "no mlflow|no wandb|keras|not an environment of all trainers",
        "MLflow, W&B and Keras", "make test-integrations EXTRAS=ci", step="integrations",
    ),
    Known(
        "deepspeed", "DeepSpeed, which compiles an extension for minutes",
        "make test-integrations EXTRAS=integrations",
    ),
    Known("mpirun|mpi4py", "MPI", "apt-get install openmpi-bin; pip install mpi4py"),
    Known("CUDA device|who computes", "GPUs", "make test-gpu, where there is one"),
    Known(
        "no PostgreSQL", "dumps of a real PostgreSQL",
        "as root: apt-get install postgresql; make test-long",
    ),
    Known("no Azurite", "Azure's protocol", "npm install --global azurite; make test-long"),
    Known("no Slurm", "Slurm", "apt-get install slurm-wlm munge"),
    Known("another user|give files away", "other users", "run the tests as root"),
    Known(
        "no disk can be mounted|no control group|kernel's log cannot be read|mount namespaces",
        "full disks, control groups and mounts", "root of a machine of its own, in no container",
    ),
    Known("no IPv6", "IPv6", "a computer with it"),
    Known("looks at no running trials", "Optuna's GPSampler beside running trials", "Optuna 5"),
    Known("reads /proc|asks /proc|no /proc|Linux", "what only Linux has", "Linux"),
)  # fmt: skip


def known(reason: str) -> Known | None:
    """Return the entry of this list for a reason; None if there is none."""
    return next((each for each in KNOWN if re.search(each.reasons, reason)), None)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test or a module was skipped."""
    _, _, reason = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, "")
    return str(reason).removeprefix("Skipped: ")


def left_out(reasons: Iterable[str]) -> str:
    """Return one line on what was skipped, and on how to run it."""
    counts = Counter(known(reason) for reason in reasons)
    parts = [
        f"{count} of {each.what} ({each.how})" if each else f"{count} others (see above)"
        for each, count in counts.most_common()
    ]
    return f"left out: {'; '.join(parts)}; what takes longer (make test-long)"


@dataclass(frozen=True)
class Note:
    """What a run has recorded.

    Args:
        skipped: The reasons of skips, by test or module.
        ran: The tests that were run.
        failed: Those of them that failed.
        status: The exit status of pytest.
    """

    skipped: Mapping[str, str]
    ran: Collection[str]
    failed: Collection[str] = ()
    status: int = 0


def write(note: Note) -> None:
    """Record a run, if `DET_TESTS_SKIPPED` is set."""
    if folder := os.environ.get(FOLDER_VARIABLE):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{time.time_ns()}.json").write_text(json.dumps(asdict(note)))


def notes(folder: Path) -> list[Note]:
    """Return what runs have recorded, in their order."""
    return [Note(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def never_run(folder: Path) -> dict[str, str]:
    """Return what was skipped in a recorded run, and run in no other, with the reasons."""
    found = notes(folder)
    ran = {name for each in found for name in each.ran}
    ran |= {name.partition("::")[0] for name in ran}
    skipped = {name: reason for each in found for name, reason in each.skipped.items()}
    return {name: reason for name, reason in skipped.items() if name not in ran}


def again(folder: str, step: str) -> int:
    """Print the tests that no run has run and that a step of CI can run here, one per line.

    They are in the order of the files, as a journey continues where the one before ended.
    """
    for name, reason in never_run(Path(folder)).items():
        if (each := known(reason)) is not None and each.step == step and each.may_run():
            print(name)
    return 0


def main(folder: str) -> int:
    """Print what has failed once, and what no run has run; return 1 for an unknown reason."""
    found = notes(Path(folder))
    if not found:
        print(f"{folder} has no note of a run", file=sys.stderr)
        return 1
    for name in sorted({name for each in found for name in each.failed}):
        print(f"unsteady: {name} failed among others, and passed when it was run once more")
    skipped = never_run(Path(folder))
    unknown = 0
    for reason, count in Counter(skipped.values()).most_common():
        each = known(reason)
        is_known = each is not None and each.is_meant
        unknown += not is_known
        print(f"skipped: {count}: {reason}" + ("" if is_known else "  <- not meant"))
        if not is_known:
            print(*(f"    {name}" for name in skipped if skipped[name] == reason), sep="\n")
    print(f"skipped in all runs: {len(skipped)} tests and modules", end="")
    print(f"; {unknown} reasons are not in tests/skips.py, or not meant here" if unknown else "")
    return 1 if unknown else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case [folder, "again", step]:
            sys.exit(again(folder, step))
        case [folder]:
            sys.exit(main(folder))
        case _:
            sys.exit(f"see the first lines of {__file__}")
