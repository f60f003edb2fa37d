"""Runs one contender of loop_overhead.py and its bare loop in a process of their own.

    python -m tests.benchmarks.loop_contender NAME

It reads lines `STEP BATCHES`. For each it trains with the bare loop and with the contender, which
take turns at being first, and writes the cost of a batch in both (wall and processor time) as one
line of JSON. The speeds of two processes always differ by some per cent, so only results of the
same process are compared.

torch is loaded only if the contender is installed. The training loops are in loop_pairs.py.
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
RIVALS = {  # by contender: the package that it needs
    "accelerate": "accelerate",
    "lightning": "lightning",
    "determined": "determined",
    "determined_tensorboard": "determined",
}
# Contenders that are compared with our loop without timings.
PROFILED = ("raw_rows", "timings_ddp")
TWO_RANKS = ("ours_ddp", "ours_check", "timings_ddp")
RANK_VARIABLE = "DET_BENCH_RANK"  # set in the second of two ranks


class Cost(NamedTuple):
    """Microseconds per batch: wall time, and processor time of this process.

    On a shared machine only processor time can be compared. It does not include waiting, for
    example for other ranks.
    """

    wall: float
    cpu: float


def main() -> None:
    name = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # so that the output of contenders is not taken for an answer

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
