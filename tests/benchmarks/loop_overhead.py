"""The cost of the training loop per batch, against bare PyTorch loops over the same data.

    python -m tests.benchmarks.loop_overhead [--quick] [--rivals FOLDER]

One CPU thread for each rank; a tiny step, in which the loop dominates, and one of about 5 ms.
Contenders take turns, round after round. The results are the median ratio to the bare loop that
ran in the same process just before or after (loop_contender.py), and the median difference to it
in microseconds a batch (keys with `us_`). Each is given in wall time and in processor time (keys
with `_cpu`). On a shared machine use processor time, but not for two ranks, which wait for each
other.

The bare loop has torch's DataLoader, of the same TensorDataset. Our loader selects the rows of
such a dataset at once, which saves more than the whole loop costs. So in "with our data" the bare
loop gets rows that are selected in the same way, and in "a Dataset class" neither can do so.

Rivals that are not installed are left out. `--rivals` measures them in an environment in that
folder, which is created if it does not exist: Determined's pins conflict with ours. The last line
is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.loop_contender import OURS, RIVALS, Cost

ROOT = Path(__file__).parents[2]
PACKAGES = ["accelerate", "lightning", "determined==0.38.1", "tensorboard", "appdirs"]
WORDS = {
    "ours": "ours, metrics",
    "ours_timings": "ours, metrics and raw timings",
    "ours_rows": "ours, metrics; both with our data",
    "ours_rows_timings": "ours, metrics and raw timings; likewise",
    "ours_dataset": "ours, metrics; a Dataset class",
    "ours_dataset_timings": "ours, metrics and raw timings; likewise",
    "ours_ddp": "ours on 2 ranks, against bare DDP",
    "ours_check": "2 ranks, against check_ranks: never",
    "accelerate": "accelerate",
    "lightning": "Lightning",
    "determined": "Determined, TensorBoard off",
    "determined_tensorboard": "Determined, TensorBoard on",
}


Size = dict[str, tuple[int, int]]  # by step: number of batches, number of rounds
# Short rounds, because the speed of a machine changes.
FULL: Size = {"tiny": (300, 11), "5ms": (100, 5)}
QUICK: Size = {"tiny": (200, 1), "5ms": (100, 1)}
# Beginnings of names: with a longer step their effect cannot be seen.
TINY_ONLY = ("ours_rows", "ours_dataset")


@dataclass
class Process:
    """A contender's process, and its costs by step: pairs of bare and own."""

    name: str
    popen: subprocess.Popen[str]
    times: dict[str, list[tuple[Cost, Cost]]] = field(default_factory=dict)

    def answer(self) -> dict[str, Any]:
        """Return its next answer, empty if it has failed."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"absent": "it failed, see above"}
        return answer

    def measure(self, step: str, batches: int) -> bool:
        """Measure once more; return whether that was possible."""
        if step != "tiny" and self.name.startswith(TINY_ONLY):
            return True
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{step} {batches}\n")
        self.popen.stdin.flush()
        answer = self.answer()
        if not is_there(self, answer):
            return False
        self.times.setdefault(step, []).append((Cost(*answer["bare"]), Cost(*answer["own"])))
        return True


@contextmanager
def started(name: str, python: str) -> Iterator[Process]:
    """Run a contender; it ends when its stdin is closed.

    It has its own working folder, because Determined copies that into each checkpoint.
    """
    with (
        TemporaryDirectory() as folder,
        subprocess.Popen(
            [python, "-m", "tests.benchmarks.loop_contender", name],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "XDG_DATA_HOME": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as popen,
    ):
        yield Process(name, popen)


def rivals_python(folder: Path) -> str:
    """Return the interpreter of the rivals' environment; create it if it does not exist.

    Our packages are available in it after its own, so that all train with the same torch.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        ours = next(folder.glob("lib/python*/site-packages")) / "ours.pth"
        ours.write_text("\n".join(site.getsitepackages()) + "\n")
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run(
            [*install, "--constraint", str(ROOT / "constraints.txt"), *PACKAGES], check=True
        )
    return str(python)


def measured(size: Size, pythons: dict[str, str]) -> dict[str, float]:
    """Measure contenders in turn, and print the table; return ratios and differences by keys.

    Args:
        size: The numbers of batches and rounds.
        pythons: The interpreter of each contender.
    """
    with ExitStack() as on_exit:
        found = [on_exit.enter_context(started(*item)) for item in pythons.items()]
        present = [process for process in found if is_there(process, process.answer())]
        print(
            f"{'':45}{'step':>6}{'bare us':>10}{'own us':>10}{'more us':>10}{'ratio':>8}"
            f"{'quartiles':>16}"
        )
        ratios: dict[str, float] = {}
        for step, (batches, rounds) in size.items():
            for _ in range(rounds):
                present = [process for process in present if process.measure(step, batches)]
            for process in present:
                if step in process.times:
                    ratios |= show(process.name, step, process.times[step])
        return ratios


def is_there(process: Process, answer: dict[str, Any]) -> bool:
    """Return whether the contender has an answer; if not, print why."""
    if "absent" in answer:
        print(f"{WORDS[process.name]}: left out ({answer['absent']})")
    return "absent" not in answer


def show(name: str, step: str, costs: list[tuple[Cost, Cost]]) -> dict[str, float]:
    """Print two lines of the table, and return their ratios and differences by their keys.

    Args:
        costs: Costs of a batch: of the bare loop, and of the contender.
    """
    found = {}
    key = _key(name, step)
    for clock, ending in (("wall", ""), ("cpu", "_cpu")):
        pairs = [(getattr(bare, clock), getattr(own, clock)) for bare, own in costs]
        bare, own = (median(times) for times in zip(*pairs, strict=True))
        each = sorted(own / bare for bare, own in pairs)
        ratio, more = median(each), median(own - bare for bare, own in pairs)
        spread = f"{each[len(each) // 4]:.3f}-{each[-1 - len(each) // 4]:.3f}"
        words = f"{WORDS[name]:40} {clock:4}{step:>6}"
        print(f"{words}{bare:10.1f}{own:10.1f}{more:10.1f}{ratio:8.3f}{spread:>16}", flush=True)
        found[f"{key}{ending}"] = round(ratio, 4)
        found[f"{key.replace('ratio', 'us')}{ending}"] = round(more, 1)
    return found


def _key(name: str, step: str) -> str:
    """Return the key of a result; results with an aim have a short one."""
    if name == "ours_timings":
        return f"ratio_{step}"
    if name == "ours_ddp":
        return "ratio_ddp" if step == "tiny" else f"ratio_ddp_{step}"
    if name.startswith(TINY_ONLY):
        return f"ratio_{name.removeprefix('ours_')}"
    what = "metrics" if name == "ours" else name.removeprefix("ours_")
    return f"ratio_{step}_{what}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a look at it, in seconds")
    parser.add_argument("--rivals", type=Path, metavar="FOLDER", help="their environment")
    parser.add_argument("--only", nargs="+", choices=WORDS, default=list(WORDS))
    options = parser.parse_args()
    theirs = rivals_python(options.rivals) if options.rivals else sys.executable
    pythons = dict.fromkeys(OURS, sys.executable) | dict.fromkeys(RIVALS, theirs)
    wanted = {name: python for name, python in pythons.items() if name in options.only}
    print(json.dumps(measured(QUICK if options.quick else FULL, wanted)))


if __name__ == "__main__":
    main()
