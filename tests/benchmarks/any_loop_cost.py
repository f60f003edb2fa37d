"""The cost per step of timing a loop that is not ours, and the part of it that torch's hooks cost.

    python -m tests.benchmarks.any_loop_cost [--quick]

A bare loop trains in short turns, in an order drawn at random:

    bare      without hooks
    empty     with hooks that do nothing; the module's hook is armed for one call: torch's cost
    timed     with ours
    trial     with the marks of a PyTorchTrial, for comparison

The result is the median of the differences to the bare turn of the same round, with its 95 %
interval, in processor time of the thread. Data that are written once a second are measured
separately. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset, dataloader

from det_jupyter.config.sections import Profiling
from det_jupyter.core import RecordList
from det_jupyter.core.timings.any_loop import KEY, LoopTimings
from det_jupyter.core.timings.rank_timings import Timings
from det_jupyter.core.timings.torch_hooks import watch

KEYS = {"benchmark", "cores", "load", "loops"}  # keys of the JSON in the last line

BATCH = torch.randn(4, 8)
WRITTEN = 400  # steps of a record, less than a second
_BEFORE: Any = optimizers._global_optimizer_pre_hooks
_AFTER: Any = optimizers._global_optimizer_post_hooks
ITERATOR: Any = dataloader._BaseDataLoaderIter


class Batches(Dataset[Any]):
    def __init__(self, num: int) -> None:
        self.num = num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> torch.Tensor:
        return BATCH


def loaded(num: int) -> Iterator[Any]:
    return iter(DataLoader(Batches(num), batch_size=None))


def made(num: int) -> Iterator[Any]:
    return (BATCH for _ in range(num))


# By name: modules of the model, a function that returns data, steps per turn.
LOOPS: dict[str, tuple[int, Callable[[int], Iterator[Any]], int]] = {
    "DataLoader, 1 module": (1, loaded, 40),
    "DataLoader, 51 modules": (51, loaded, 40),
    "own batches, 1 module": (1, made, 40),
}


class Hooks:
    """All hooks that are installed in torch at a moment."""

    def __init__(self) -> None:
        self.before = dict(_BEFORE)
        self.after = dict(_AFTER)
        self.next, self.backward = ITERATOR.__next__, torch.autograd.backward

    def install(self) -> None:
        modules._global_forward_pre_hooks.clear()
        for hooks, own in (
            (_BEFORE, self.before),
            (_AFTER, self.after),
        ):
            hooks.clear()
            hooks.update(own)
        ITERATOR.__next__, torch.autograd.backward = self.next, self.backward


def empty_hooks(bare: Hooks) -> Hooks:
    """Return hooks that do nothing, for the calls that our hooks handle."""
    armed: Any = modules._global_forward_pre_hooks

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        pass

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        armed[KEY] = forward

    def forward(module: Any, args: Any) -> None:
        armed.pop(KEY, None)

    def following(iterator: Any) -> Any:
        return bare.next(iterator)

    def backward(*args: Any, **kwargs: Any) -> Any:
        return bare.backward(*args, **kwargs)

    hooks = Hooks()
    hooks.before, hooks.after = {0: before}, {0: after}
    hooks.next, hooks.backward = following, backward
    return hooks


def turn(model: nn.Module, optimizer: Any, batches: Iterator[Any], num: int) -> float:
    """Train, and return the microseconds of processor time per step."""
    began = time.thread_time_ns()
    for batch in batches:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.thread_time_ns() - began) / num / 1e3


def trial_turn(model: nn.Module, optimizer: Any, batches: Iterator[Any], num: int) -> float:
    """Do the same with the marks of our own training loop."""
    timings = Timings(Profiling(), 0)

    def loss_of(batch: Any) -> Any:
        return model(batch).mean()

    def same(batch: Any) -> Any:
        return batch

    to_device, forward = timings.timed("to_device", same), timings.timed("forward", loss_of)
    backward = timings.timed("backward", torch.Tensor.backward)
    step = timings.timed("optimizer", optimizer.step)
    began = time.thread_time_ns()
    for batch in timings.timed_batches(batches):
        backward(forward(to_device(batch)))
        step()
        optimizer.zero_grad()
        timings.end_batch(0)
    return (time.thread_time_ns() - began) / num / 1e3


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median, and its 95 % interval."""
    ordered, num = sorted(values), len(values)
    off = 0.98 * num**0.5
    low, high = ordered[max(0, int(num / 2 - off))], ordered[min(num - 1, int(num / 2 + off))]
    return round(median(values), 1), round(low, 1), round(high, 1)


def measure(name: str, hooks: dict[str, Hooks], loop: LoopTimings, rounds: int) -> dict[str, Any]:
    """Return the medians of one loop."""
    num_modules, data, num = LOOPS[name]
    layers = [nn.Linear(8, 8), *(nn.Identity() for _ in range(num_modules - 2))]
    model = layers[0] if num_modules == 1 else nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    took: dict[str, list[float]] = {kind: [] for kind in hooks}
    for _ in range(rounds):
        for kind in random.sample(list(hooks), len(hooks)):
            hooks[kind].install()
            run = trial_turn if kind == "trial" else turn
            took[kind].append(run(model, optimizer, data(num), num))
            loop.flush()
    hooks["timed"].install()
    turn(model, optimizer, data(WRITTEN), WRITTEN)
    began = time.thread_time_ns()
    loop.flush()
    written = (time.thread_time_ns() - began) / WRITTEN / 1e3
    hooks["bare"].install()

    def between(kind: str, other: str) -> tuple[float, float, float]:
        return interval([a - b for a, b in zip(took[kind], took[other], strict=True)])

    return {
        "bare_us": round(median(took["bare"]), 1),
        "empty_us": between("empty", "bare"),
        "timed_us": between("timed", "bare"),
        "ours_us": between("timed", "empty"),
        "written_us": round(written, 2),
        "trial_us": between("trial", "bare"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    rounds = 40 if parser.parse_args().quick else 400
    torch.set_num_threads(1)
    bare, loop = Hooks(), LoopTimings(RecordList())
    watch(loop)
    hooks = {"bare": bare, "timed": Hooks(), "empty": empty_hooks(bare), "trial": bare}
    found = {}
    for name in LOOPS:
        found[name] = row = measure(name, hooks, loop, rounds)
        print(f"{name:24}" + "".join(f"  {key} {value}" for key, value in row.items()), flush=True)
    load = round(os.getloadavg()[0], 1)
    line = {"benchmark": "any_loop_cost", "cores": os.cpu_count(), "load": load, "loops": found}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
