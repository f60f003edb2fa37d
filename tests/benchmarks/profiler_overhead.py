"""The cost of timings per batch: our loop with and without them, and TraceML with a bare loop.

    python -m tests.benchmarks.profiler_overhead [--quick] [--traceml FOLDER]

On one rank they are switched on and off within one training (timings_turns.py). With raw rows, and
on two ranks, trainings with and without timings take turns (the contenders of loop_overhead.py).
The result is the median of the differences of neighbours, in wall time and in processor time. On a
shared machine, use the difference of the least processor times, as other programs can only
increase times.

TraceML (PyPI: traceml-ai) is measured on the same step in a bare loop: two processes in turn, one
under `traceml run`, since that patches torch for the whole process. `--traceml` is the folder of
an environment, which is created if it does not exist; without this option, TraceML is measured if
it is installed. The last line is JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import site
import subprocess
import sys
import time
import venv
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from det_jupyter import core
from det_jupyter.config import Length
from det_jupyter.config.sections import Profiling
from det_jupyter.core.timings.rank_timings import Timings
from tests.benchmarks.loop_contender import PROFILED, Cost
from tests.benchmarks.loop_overhead import ROOT, started
from tests.benchmarks.loop_steps import STEPS
from tests.benchmarks.loop_traced import COST_VARIABLE
from tests.benchmarks.timings_turns import measure_steps

WORDS = {
    "raw_rows": "timings, and raw rows",
    "timings_ddp": "timings, 2 ranks",
    "traceml": "TraceML, a bare loop",
}
Size = dict[str, tuple[int, int]]  # by step: number of batches, number of rounds
FULL: Size = {"tiny": (1000, 10), "5ms": (100, 5)}
QUICK: Size = {"tiny": (200, 3)}
Pair = tuple[Cost, Cost]  # costs of a batch: without timings, with them


def measure_ours(size: Size) -> dict[tuple[str, str], list[Pair]]:
    """Return the pairs of each of our contenders and steps; the contenders take turns."""
    with ExitStack() as on_exit:
        found = [on_exit.enter_context(started(name, sys.executable)) for name in PROFILED]
        for process in found:
            process.answer()  # waits until the process is ready
        for step, (batches, rounds) in size.items():
            for _ in range(rounds):
                for process in found:
                    process.measure(step, batches)
        return {
            (process.name, step): pairs
            for process in found
            for step, pairs in process.times.items()
        }


def measure_traceml(size: Size, folder: Path | None) -> dict[tuple[str, str], list[Pair]]:
    """Return the pairs of TraceML; none if it is not installed."""
    python = Path(sys.executable) if folder is None else traceml_python(folder)
    if folder is None and importlib.util.find_spec("traceml_ai") is None:
        print("TraceML: left out (it is not installed; see --traceml)")
        return {}
    script = str(Path(__file__).with_name("loop_traced.py"))
    traced = [str(python.with_name("traceml")), "run", "--mode", "summary", script, "--args"]
    return {
        ("traceml", step): [
            (
                run_once([str(python), script, step, str(batches)], str(python)),
                run_once([*traced, step, str(batches)], str(python)),
            )
            for _ in range(max(1, rounds // 3))
        ]
        for step, (batches, rounds) in size.items()
    }


def run_once(command: list[str], python: str) -> Cost:
    """Return the cost of a batch in one process."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cost"
        places = {"PYTHONPATH": str(ROOT), COST_VARIABLE: str(path)}
        path_of = {"PATH": f"{Path(python).parent}:{os.environ['PATH']}"}
        subprocess.run(
            command,
            cwd=folder,
            env=os.environ | places | path_of,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return Cost(*json.loads(path.read_text(encoding="utf-8")))


def traceml_python(folder: Path) -> Path:
    """Return the interpreter of TraceML's environment; create it if it does not exist."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        ours = next(folder.glob("lib/python*/site-packages")) / "ours.pth"
        ours.write_text("\n".join(site.getsitepackages()) + "\n")
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "traceml-ai==0.5.0"], check=True
        )
    return python


def measure_alone(batches: int = 20_000) -> tuple[float, float]:
    """Return the least processor time of the marks of a batch, and of reading them, in us.

    No model is trained, so the result is the same on a busy machine. In a training, where steps
    empty the caches, the time is longer.
    """

    class Context:
        distributed = core.DistributedContext()
        stepping = SimpleNamespace(set_timer=bool)

        def to_device(self, batch: int) -> int:
            return batch

        def backward(self, loss: int) -> None:
            pass

        def step_optimizer(self, optimizer: int) -> None:
            pass

    def train_batch(batch: int) -> None:
        context.backward(batch)
        context.step_optimizer(batch)

    context, timings = Context(), Timings(Profiling(), 0)
    marking, reading = [], []
    with timings.timing_context(context):
        forward = timings.timed("forward", train_batch)
        for _ in range(7):
            began_at = time.process_time()
            for batch in timings.timed_batches(iter(range(batches))):
                forward(context.to_device(batch))
                timings.end_batch(1)
            marked_at = time.process_time()
            timings.flush()
            marking.append(marked_at - began_at)
            reading.append(time.process_time() - marked_at)
    return min(marking) / batches * 1e6, min(reading) / batches * 1e6


def journal_bytes_per_hour(batches: int) -> float:
    """Return the bytes that a rank journals for its timings in an hour of 5 ms steps."""
    from tests.benchmarks.loop_ours import Trial, run
    from tests.benchmarks.loop_steps import Stopwatch, make_dataset

    Trial.step, Trial.watch, Trial.dataset = STEPS["5ms"], Stopwatch(batches), make_dataset()
    with TemporaryDirectory() as folder:
        length = Length("batches", batches)
        run(Path(folder), length, core.DistributedContext(), {})
        lines = (Path(folder) / "journal-0").read_text(encoding="utf-8").splitlines()
    timings = [line for line in lines if json.loads(line)["kind"] == "step_times"]
    seconds: float = sum(json.loads(line)["seconds"] for line in timings)
    return 3600 * sum(map(len, timings)) / seconds


def show(found: dict[tuple[str, str], list[Pair]]) -> dict[str, float]:
    """Print the table, and return its numbers by their keys."""
    numbers = {}
    head = ("step", "without us", "with us", "cost us", "least us", "quartiles", "%")
    print("{:26}{:>6}{:>12}{:>10}{:>9}{:>10}{:>18}{:>8}".format("", *head))
    for (name, step), pairs in found.items():
        for clock, ending in (("wall", ""), ("cpu", "_cpu")):
            befores, afters = (
                [getattr(cost, clock) for cost in costs] for costs in zip(*pairs, strict=True)
            )
            costs = sorted(after - before for before, after in zip(befores, afters, strict=True))
            cost, least = median(costs), min(afters) - min(befores)
            share = 100 * cost / median(befores)
            quartiles = f"{costs[len(costs) // 4]:.1f} to {costs[-1 - len(costs) // 4]:.1f}"
            words = f"{WORDS[name]:22}{clock:4}{step:>6}"
            print(
                f"{words}{median(befores):12.1f}{median(afters):10.1f}{cost:9.1f}{least:10.1f}"
                f"{quartiles:>18}{share:8.2f}"
            )
            numbers[f"{name}_{step}_us{ending}"] = round(cost, 2)
            numbers[f"{name}_{step}_least_us{ending}"] = round(least, 2)
            numbers[f"{name}_{step}_percent{ending}"] = round(share, 3)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a look at it, in seconds")
    parser.add_argument("--traceml", type=Path, metavar="FOLDER", help="its environment")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    marking_us, reading_us = measure_alone()
    print(
        f"alone, a batch: marks {marking_us:.2f} us, reading them {reading_us:.2f} us", flush=True
    )
    alone = {"marks_us": round(marking_us, 2), "reading_us": round(reading_us, 2)}
    in_turns = measure_steps(1000 if options.quick else 10_000)
    numbers = alone | show(measure_ours(size) | measure_traceml(size, options.traceml))
    per_hour = journal_bytes_per_hour(100 if options.quick else 1000)
    print(f"a rank journals {per_hour / 1e6:.1f} MB of timings in an hour")
    rest = {"in_turns": in_turns, "journal_bytes_per_hour": round(per_hour)}
    print(json.dumps({**numbers, **rest}))


if __name__ == "__main__":
    main()
