"""How long a change of its number of slots holds the training of an elastic trial.

    python -m tests.benchmarks.resizing [--changes 5] [--mb 0]

A trial of one or two ranks trains. A trial of one slot comes, so that it goes on with one rank,
and ends, so that it goes on with two after 10 s. The time is from the end of the last batch before
the change to the end of the first one after it, on rank 0. Prints one line of JSON:

    fewer_p50_s, fewer_max_s   from two ranks to one
    more_p50_s, more_max_s     from one rank to two
    repeated                   batches that were trained twice, or not at all
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from det_jupyter.client import Client, Experiment
from tests.benchmarks.quick import arguments
from tests.benchmarks.recovery import TRIAL, End, ends_of
from tests.processes import det_home
from tests.trials import submit
from tests.waiting import wait_until

QUICK = "--changes 1"
KEYS = {
    "state_mb", "fewer_p50_s", "fewer_max_s", "more_p50_s", "more_max_s", "repeated",
}  # fmt: skip


def start(client: Client, folder: Path, slots: Any, width: int, batches: int) -> Experiment:
    """Submit a trial that writes when each rank ends a batch into the folder."""
    folder.mkdir()
    config = {
        "name": "resizing",
        "entrypoint": "Measured",
        "hyperparameters": {
            "global_batch_size": 16,
            "folder": str(folder),
            "width": width,
            "has_reducer": False,
        },
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": batches}},
        "min_validation_period": {"batches": batches},
        "resources": {"slots_per_trial": slots},
    }
    return submit(client, config, TRIAL)


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=5, help="changes in each direction")
    parser.add_argument("--mb", type=float, default=0.0, help="size of weights and optimizer")
    options = parser.parse_args(arguments(QUICK))
    width = max(16, int(options.mb * 1e6 / (3 * 4 * 33)))
    changed_at = list[float]()
    with tempfile.TemporaryDirectory(prefix="res-") as name:
        root = Path(name)
        with det_home(root / "home", {"DET_JUPYTER_CPU_SLOTS": "2"}) as home:
            client = home.client()
            trial = start(client, root / "trial", {"min": 1, "max": 2}, width, 10**6)
            wait_for(trial, root / "trial", 1)
            for number in range(options.changes):
                other = start(client, root / f"other-{number}", 1, 16, 20)
                wait_for(trial, root / "trial", 2 * number + 2)
                other.wait()
                wait_for(trial, root / "trial", 2 * number + 3)
            changed_at = [size.at for size in client.trial(trial.trial.id).sizes[1:]]
            trial.kill()
            trial.wait()
            client.session.close()
        ends = ends_of(root / "trial", 1)[0]
    holds = [hold_at(ends, at) for at in changed_at]
    fewer, more = holds[::2], holds[1::2]
    print(
        json.dumps(
            {
                "state_mb": round(width * 33 * 12 / 1e6, 1),
                "fewer_p50_s": round(statistics.median(fewer), 3),
                "fewer_max_s": round(max(fewer), 3),
                "more_p50_s": round(statistics.median(more), 3),
                "more_max_s": round(max(more), 3),
                "repeated": sum(b.batch != a.batch + 1 for a, b in pairwise(ends)),
            }
        )
    )


def wait_for(trial: Experiment, folder: Path, num_sizes: int) -> None:
    """Block until the trial has had so many sizes, and trains with the last one."""

    def trains() -> bool:
        view = trial.trial.view
        ends = ends_of(folder, 1)[0]
        return len(view.sizes) >= num_sizes and bool(ends) and ends[-1].at > view.sizes[-1].at

    wait_until(trains, f"it trains with size {num_sizes}")
    time.sleep(0.5)


def hold_at(ends: list[End], at: float) -> float:
    """Return the time between the batches before and after a moment."""
    return next(b.at - a.at for a, b in pairwise(ends) if b.at > at)


if __name__ == "__main__":
    main()
