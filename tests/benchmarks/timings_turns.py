"""The cost of timings per batch, measured in one training in which they are switched on and off.

    python -m tests.benchmarks.timings_turns [--batches 10000]

The speeds of two trainings always differ by several per cent; on a shared machine, so do those of
two seconds. So timings are switched within one training, every few batches, and each turn is
compared with the turns before and after it. Other programs disturb only some batches: the value of
a turn is its first quartile, and the result of the training is the median of the differences, with
its 95 % confidence interval (order statistics: Conover, Practical Nonparametric Statistics,
section 3.2). Records that are written once a second are measured at the write. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from det_jupyter import core
from det_jupyter.config import Length
from det_jupyter.core import RecordSink
from det_jupyter.pytorch.training.loop import Loop
from tests.benchmarks.loop_ours import Trial, run
from tests.benchmarks.loop_steps import STEPS, Stopwatch, make_dataset
from tests.benchmarks.quick import arguments

QUICK = "--batches 400"
KEYS = {"benchmark", "tiny", "5ms"}  # keys of the JSON in the last line


class Turns(NamedTuple):
    """The batches of a turn, and the number at its beginning that do not count."""

    batches: int
    warm_up: int


TURNS = {"tiny": Turns(50, 8), "5ms": Turns(10, 2)}
CLOCKS = (time.perf_counter_ns, time.thread_time_ns)
Stamp = tuple[int, ...]  # a time of each of these clocks


class Switched(Loop):
    """A loop whose timings are switched on and off; off is like `profiling.enabled: false`.

    The only difference is that methods of the context are looked up a little slower.
    """

    latest: Switched
    turns: Turns

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        Switched.latest = self
        self.stamps: list[list[Stamp]] = []  # by turn, beginning with one with timings
        self.writing_ns = 0
        timings: Any = self._timings
        timings.timed_batches = partial(self._in_turns, timings.timed_batches)
        timings.journal = partial(self._journal, timings.journal)

    def _in_turns(self, over: Callable[..., Any], stream: Iterable[Any]) -> Iterator[Any]:
        plain, own = iter(stream), vars(self.context)
        timed = {name: own[name] for name in ("to_device", "backward", "step_optimizer")}
        on = (over(plain), self._trial_batch, self._end_batch)
        off = (plain, self.trial.train_batch, None)
        for is_on in cycle((True, False)):
            batches, self._trial_batch, self._end_batch = on if is_on else off
            self.stamps.append([])
            for batch in islice(batches, self.turns.batches):
                self.stamps[-1].append(tuple(clock() for clock in CLOCKS))
                yield batch
            for name, method in timed.items():
                if is_on:
                    del own[name]
                else:
                    own[name] = method

    def _journal(self, journal: Callable[[RecordSink], None], sink: RecordSink) -> None:
        began = time.thread_time_ns()
        journal(sink)
        self.writing_ns += time.thread_time_ns() - began


def measure(step: str, batches: int) -> dict[str, float]:
    """Train; return microseconds per batch without timings, and the cost of timings."""
    turns = Switched.turns = TURNS[step]
    # The training ends in a turn with timings.
    batches -= batches % (2 * turns.batches) - turns.batches // 2
    Trial.step, Trial.watch, Trial.dataset = STEPS[step], Stopwatch(batches), make_dataset()
    with patch.object(Trial, "_loop_class", Switched), tempfile.TemporaryDirectory() as folder:
        run(Path(folder), Length("batches", batches), core.DistributedContext(), {})
    measured = Switched.latest
    found = {"writing_us": measured.writing_ns / (batches / 2) / 1e3}
    for clock, name in enumerate(("wall", "cpu")):
        times = [typical_us(stamps[turns.warm_up :], clock) for stamps in measured.stamps[:-1]]
        costs = sorted(
            on - (before + after) / 2
            for before, on, after in zip(times[1::2], times[2::2], times[3::2], strict=False)
        )
        # Distance from the median of the ranks of the interval's ends.
        spread = 0.98 * len(costs) ** 0.5
        low, high = (round(len(costs) / 2 + sign * spread) for sign in (-1, 1))
        found |= {
            f"without_{name}_us": median(times[1::2]),
            f"cost_{name}_us": median(costs),
            f"low_{name}_us": costs[max(0, low - 1)],
            f"high_{name}_us": costs[min(len(costs) - 1, high)],
        }
    return {key: round(value, 2) for key, value in found.items()}


def measure_steps(batches: int) -> dict[str, dict[str, float]]:
    """Measure each step in trainings of this many batches, and print a line for each."""
    found = {}
    for step in TURNS:
        found[step] = measure(step, batches)
        show(step, found[step])
    return found


def typical_us(stamps: list[Stamp], clock: int) -> float:
    """Return the first quartile of the times of a turn's batches, by one of the clocks."""
    times = sorted(after[clock] - before[clock] for before, after in pairwise(stamps))
    return times[len(times) // 4] / 1e3


def show(step: str, found: dict[str, float]) -> None:
    """Print a line with the cost of the marks by each clock, and of writing."""
    for name in ("wall", "cpu"):
        cost, low, high, without = (
            found[f"{key}_{name}_us"] for key in ("cost", "low", "high", "without")
        )
        print(
            f"in turns, {step:5}{name:5}without {without:8.1f} us, marks {cost:+6.1f} us "
            f"({low:+.1f} to {high:+.1f}), {100 * cost / without:+.2f} % "
            f"({100 * low / without:+.2f} to {100 * high / without:+.2f}); "
            f"writing {found['writing_us']:.1f} us"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, default=10_000, help="of each step")
    options = parser.parse_args(arguments(QUICK))
    torch.set_num_threads(1)
    print(json.dumps({"benchmark": "timings_turns", **measure_steps(options.batches)}))


if __name__ == "__main__":
    main()
