"""What timings cost per batch, measured in one training in which they are on and off in turns.

    python -m tests.benchmarks.timings_turns [--batches 20000]

Two trainings never run equally fast, by several per cent, and on a machine that others use too no
two seconds do. So timings are switched within one training, every 50 batches, and each batch is
measured by the processor time of its thread. What others take is in few batches, so the quantiles
below the median are compared: their differences say the same where the number is to be trusted.
What is written once a second is measured where it is done. The step is the tiny one: the marks are
too small a part of a longer one to be seen. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice, pairwise
from pathlib import Path
from time import thread_time_ns
from typing import Any

import torch

from det_jupyter import core
from det_jupyter.config import Length
from det_jupyter.core import RecordSink
from det_jupyter.pytorch.training import planned_run
from det_jupyter.pytorch.training.loop import Loop
from tests.benchmarks.loop_ours import Trial, run
from tests.benchmarks.loop_steps import STEPS, Stopwatch, make_dataset

TURN = 50  # batches
WARM_UP = 8  # of a turn, which are not counted
QUANTILES = (0.1, 0.2, 0.3, 0.4)


class Switched(Loop):
    """A loop whose timings are on and off in turns; off, it is as with `profiling.enabled: false`.

    Only its context's methods are then found a little later than there.
    """

    latest: Switched

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        Switched.latest = self
        self.times_ns: dict[bool, list[int]] = {True: [], False: []}
        self.writing_ns = 0
        timings: Any = self._timings
        timings.over = partial(self._in_turns, timings.over)
        timings.journal = partial(self._journal, timings.journal)

    def _in_turns(self, over: Callable[..., Any], stream: Iterable[Any]) -> Iterator[Any]:
        plain, own = iter(stream), vars(self.context)
        timed = {name: own[name] for name in ("to_device", "backward", "step_optimizer")}
        on = (over(plain), self._trial_batch, self._end_batch)
        off = (plain, self.trial.train_batch, None)
        for is_on in cycle((True, False)):
            batches, self._trial_batch, self._end_batch = on if is_on else off
            stamps = []
            for batch in islice(batches, TURN):
                stamps.append(thread_time_ns())
                yield batch
            self.times_ns[is_on] += [
                after - before for before, after in pairwise(stamps[WARM_UP:])
            ]
            for name, method in timed.items():
                if is_on:
                    del own[name]
                else:
                    own[name] = method

    def _journal(self, journal: Callable[[RecordSink], None], sink: RecordSink) -> None:
        began = thread_time_ns()
        journal(sink)
        self.writing_ns += thread_time_ns() - began


def measure(batches: int) -> dict[str, float]:
    """Train so many batches; return microseconds of one without timings, and what they cost."""
    batches -= batches % (2 * TURN) - TURN // 2  # it ends in a turn with timings
    Trial.step, Trial.watch, Trial.dataset = STEPS["tiny"], Stopwatch(batches), make_dataset()
    with tempfile.TemporaryDirectory(prefix="det-bench-") as folder:
        run(Path(folder), Length("batches", batches), core.DistributedContext(), {})
    measured = Switched.latest
    off, on = (sorted(measured.times_ns[is_on]) for is_on in (False, True))
    found = {"without_us": off[len(off) // 2] / 1e3}
    for quantile in QUANTILES:
        before, after = (times[int(len(times) * quantile)] for times in (off, on))
        found[f"marks_p{100 * quantile:.0f}_us"] = (after - before) / 1e3
    return found | {"writing_us": measured.writing_ns / (batches / 2) / 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, default=20_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    vars(planned_run)["Loop"] = Switched
    found = measure(options.batches)
    print(" ".join(f"{name} {value:.2f}" for name, value in found.items()))
    print(json.dumps({"benchmark": "timings_turns", **found}))


if __name__ == "__main__":
    main()
