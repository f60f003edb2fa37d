"""The bare loop of the benchmarks, traced by TraceML if it was started by `traceml run`.

    [traceml run] loop_traced.py STEP BATCHES

Writes the cost of a batch to the file that an environment variable names. Needs only torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.loop_steps import (
    STEPS,
    Stopwatch,
    loss_of,
    make_loader,
    make_model,
    make_optimizer,
)

COST_VARIABLE = "DET_BENCH_COST"


def main() -> None:
    step, batches = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    model, loader, watch = make_model(STEPS[step]), make_loader(), Stopwatch(batches)
    optimizer = make_optimizer(model)
    tracing: Callable[[Any], AbstractContextManager[Any]] = nullcontext
    if any(name.startswith("TRACEML") for name in os.environ):
        import traceml_ai  # type: ignore[import-not-found]  # it has an environment of its own

        tracing = traceml_ai.trace_step
    done = 0
    while done < watch.num_trained:
        for batch in loader:
            watch.begin(done)
            with tracing(model):
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
            done += 1
            if done == watch.num_trained:
                break
    Path(os.environ[COST_VARIABLE]).write_text(json.dumps(watch.us_per_batch), encoding="utf-8")


if __name__ == "__main__":
    main()
