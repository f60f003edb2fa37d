"""How long a checkpoint blocks training: `python -m tests.benchmarks.saving_hold [--mb 400]`.

One rank on the CPU, a model of this many megabytes, one step of an optimizer without state. It
measures the time for which the training thread is blocked: by the whole of a checkpoint that is
written at once, and by `begin` and `finish` of one that is written in the background. The first
`begin` is measured separately, since its memory is new. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from det_jupyter.contract.trial.origin import Origin
from det_jupyter.core import CheckpointContext, DistributedContext, RecordList
from det_jupyter.pytorch import PyTorchTrialContext
from det_jupyter.pytorch.checkpoints.saver import Saver
from det_jupyter.pytorch.checkpoints.training_state import Parts
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.storage.directory import DirectoryStorage
from tests.benchmarks.quick import arguments

QUICK = "--mb 40"
KEYS = {
    "size_mb",
    "at_once_s",
    "begin_first_s",
    "begin_s",
    "finish_s",
    "step_alone_ms",
    "step_beside_ms",
}  # keys of the JSON in the last line

_ROUNDS = 5
_LAYER_MB = 10


def make_saver(folder: Path, size_mb: int) -> tuple[Saver, Callable[[], None]]:
    """Return a saver of a model of this size, and a step of its training."""
    distributed = DistributedContext()
    context = PyTorchTrialContext(distributed=distributed, device=torch.device("cpu"))
    rows = _LAYER_MB * 250
    layers = [nn.Linear(100, rows, bias=False) for _ in range(size_mb // _LAYER_MB * 10)]
    model = context.wrap_model(nn.ModuleList(layers))
    context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    storage = CheckpointContext(DirectoryStorage(folder), RecordList(), distributed, {})
    saver = Saver(storage, Parts(context=context, callbacks=Callbacks({})), Origin(trial_class=""))
    x = torch.randn(8, 100)

    def step() -> None:
        for layer in layers[:20]:
            layer(x)

    return saver, step


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=400)
    size_mb = parser.parse_args(arguments(QUICK)).mb
    with tempfile.TemporaryDirectory() as folder:
        saver, step = make_saver(Path(folder), size_mb)
        alone = statistics.median(timed(step) for _ in range(200))

        def begin() -> None:
            saver.begin(steps_completed=1)

        first = timed(begin)
        saver.finish()
        at_once, begins, finishes, beside = [], [], [], []
        for _ in range(_ROUNDS):
            at_once.append(timed(begin) + timed(saver.finish))
            begins.append(timed(begin))
            while not saver.is_written:
                beside.append(timed(step))
            finishes.append(timed(saver.finish))
            for uuid in [path.name for path in Path(folder).iterdir()]:
                saver.storage.delete(uuid)
    result = {
        "size_mb": size_mb,
        "at_once_s": statistics.median(at_once),
        "begin_first_s": first,
        "begin_s": statistics.median(begins),
        "finish_s": statistics.median(finishes),
        "step_alone_ms": 1000 * alone,
        "step_beside_ms": 1000 * statistics.median(beside),
    }
    for name, value in result.items():
        print(f"{name:16} {value:10.4g}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
