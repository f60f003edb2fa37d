"""One contender of loop_overhead.py, in a process of its own, always beside its bare loop.

    python -m tests.benchmarks.loop_contender NAME

Reads `STEP BATCHES` line by line, trains bare and as the contender does, in turn first, and writes
what a batch cost in both (wall and processor time) as one line of JSON. Two processes never run
equally fast, by some per cent: so only what ran in the same one is compared.

torch is loaded only if the contender is installed. What trains is in loop_pairs.py.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, NamedTuple

OURS = (
    "ours",
    "ours_timings",
    "ours_rows",
    "ours_rows_timings",
    "ours_dataset",
    "ours_dataset_timings",
    "ours_ddp",
    "ours_check",
)
RIVALS = {  # by their packages
    "accelerate": "accelerate",
    "lightning": "lightning",
    "determined": "determined",
    "determined_tensorboard": "determined",
}
PROFILED = ("raw_rows", "timings_ddp")  # against ours without timings
TWO_RANKS = ("ours_ddp", "ours_check", "timings_ddp")
RANK_VARIABLE = "DET_BENCH_RANK"  # of the second process of two


class Cost(NamedTuple):
    """Microseconds of a batch: the clock's, and those of this process's processor time.

    On a machine that others use too only the latter can be compared. It leaves out waiting, for
    other ranks as well.
    """

    wall: float
    cpu: float


def main() -> None:
    name = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what contenders print is no answer

    def tell(answer: dict[str, Any]) -> None:
        if RANK_VARIABLE not in os.environ:
            answers.write(json.dumps(answer) + "\n")

    try:
        if name in RIVALS:
            importlib.import_module(RIVALS[name])
        import torch

        from tests.benchmarks.loop_pairs import serve

        torch.set_num_threads(1)
        serve(name, tell)
    except ImportError as error:
        tell({"absent": str(error)})


if __name__ == "__main__":
    main()
