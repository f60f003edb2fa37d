"""What the timings of a loop that is not ours cost per step: torch's hooks, and marks.

    python -m tests.benchmarks.any_loop_cost [--quick]

A bare loop trains in turns with hooks that report and with hooks that return at once, on one core;
what counts is the median of the differences of neighbours, in processor time of the thread, with
what is written once a second. Before these, the loop is measured without hooks. On a machine that
others use too, look at the difference of the least times: what others take only ever adds.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import nn

from det_jupyter.core import RecordList
from det_jupyter.core.timings.any_loop import LoopTimings
from det_jupyter.core.timings.torch_hooks import watch

STEPS = 200  # of a turn
BATCH = torch.randn(4, 8)


class Batches(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        return BATCH


def loaded() -> Iterator[Any]:
    return iter(torch.utils.data.DataLoader(Batches(), batch_size=None))


def made() -> Iterator[Any]:
    return (BATCH for _ in range(STEPS))


LOOPS: dict[str, tuple[int, Callable[[], Iterator[Any]]]] = {  # modules of the model, data
    "DataLoader, 1 module": (1, loaded),
    "DataLoader, 51 modules": (51, loaded),
    "own batches, 1 module": (1, made),
}


def turn(model: nn.Module, optimizer: Any, batches: Iterator[Any]) -> float:
    """Train, and return microseconds of processor time per step."""
    began = time.thread_time_ns()
    for batch in batches:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.thread_time_ns() - began) / STEPS / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    num_turns = 5 if parser.parse_args().quick else 9
    torch.set_num_threads(1)
    loops = {}
    for name, (num, data) in LOOPS.items():
        layers = [nn.Linear(8, 8) for _ in range(num)]
        model = layers[0] if num == 1 else nn.Sequential(*layers[1:])
        loops[name] = (model, torch.optim.SGD(model.parameters(), lr=1e-3), data)

    def one_turn(name: str) -> float:
        model, optimizer, data = loops[name]
        return turn(model, optimizer, data())

    bare = {name: [one_turn(name) for _ in range(num_turns)][2:] for name in loops}
    loop = LoopTimings(RecordList())
    watch(loop)
    found: dict[str, dict[str, float]] = {}
    for name in loops:
        one_turn(name)
        thread, pairs = loop.thread, []
        for _ in range(num_turns):
            timed = one_turn(name)
            loop.disarm()
            loop.thread = -1
            idle = one_turn(name)
            loop.thread = thread
            pairs.append((idle, timed))
        least_idle, least_timed = (min(each) for each in zip(*pairs, strict=True))
        found[name] = {
            "without_hooks_us": round(min(bare[name]), 2),
            "idle_us": round(least_idle, 2),
            "timed_us": round(least_timed, 2),
            "median_difference_us": round(median(b - a for a, b in pairs), 2),
            "least_difference_us": round(least_timed - least_idle, 2),
        }
    print(f"{'processor time per step, in us':30}" + "".join(f"{k:>24}" for k in found[name]))
    for name, row in found.items():
        print(f"{name:30}" + "".join(f"{value:24.2f}" for value in row.values()))
    print(json.dumps({"benchmark": "any_loop_cost", "cores": os.cpu_count(), "loops": found}))


if __name__ == "__main__":
    main()
