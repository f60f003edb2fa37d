"""A batch inference that leaves a trace of every record, and what to check of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from det_jupyter.pytorch.experimental import output_files
from tests.integration.rank_support import Gang

# Writes the numbers of the records: at once, and (odd batches) only when a checkpoint begins.
INFERENCE = """
import time
from det_jupyter import core
from det_jupyter.pytorch import MetricReducer
from det_jupyter.pytorch.experimental import TorchBatchProcessor, torch_batch_process

hparams = {}


class Counted(MetricReducer):
    def reset(self):
        self.count, self.sum = 0, 0.0

    def add(self, values):
        self.count += len(values)
        self.sum += sum(value / 7 for value in values)

    def per_slot_reduce(self):
        return self.count, self.sum

    def cross_slot_reduce(self, slots):
        return {"count": sum(c for c, _ in slots), "mean": sum(s for _, s in slots)}


class Tracing(TorchBatchProcessor):
    def __init__(self, context):
        self.context = context
        self.counted = context.wrap_reducer(Counted())
        self.order = context.wrap_reducer(lambda batches: sum(batches, []), "order")
        self.kept = {}

    def process_batch(self, batch, batch_idx):
        time.sleep(hparams["pause_s"])
        numbers = self.context.to_device(batch).tolist()
        self.counted.add(numbers)
        self.order.update(numbers)
        if batch_idx % 2:
            self.kept[batch_idx] = numbers
        else:
            self.write(batch_idx, numbers)

    def write(self, batch_idx, numbers):
        with self.context.upload_path() as path:
            (path / f"{batch_idx}.txt").write_text(" ".join(map(str, numbers)))

    def on_checkpoint_start(self):
        for batch_idx, numbers in self.kept.items():
            self.write(batch_idx, numbers)
        self.kept = {}

    def on_finish(self):
        with self.context.upload_path() as path:
            (path / "finished.txt").write_text("")


def infer():
    hparams.update(core.init().info.hparams)
    torch_batch_process(
        Tracing,
        list(range(hparams["records"])),
        batch_size=3,
        checkpoint_interval=hparams["interval"],
    )
"""


def config(
    *, records: int = 100, pause_s: float = 0.0, interval: int = 2, **changes: Any
) -> dict[str, Any]:
    return {
        "entrypoint": "infer",
        "hyperparameters": {
            "records": records,
            "pause_s": pause_s,
            "interval": interval,
            "global_batch_size": 3,
        },
        "searcher": {"name": "single", "metric": "count", "max_length": {"batches": 1}},
        **changes,
    }


def records_in(checkpoint: Any) -> list[int]:
    """Return the numbers of all records in the checkpoint's files, sorted, repeated ones too."""
    files = [file for file in output_files(checkpoint) if file.name != "finished.txt"]
    return sorted(int(number) for file in files for number in file.read_text().split())


def outputs_of(gang: Gang) -> Path:
    """Return the newest checkpoint's folder."""
    return Path(gang.last_checkpoint().path)
