"""What a training run tells of itself: the metrics of each batch, and averages at boundaries."""

from __future__ import annotations

import time
from collections.abc import Iterable

from det_jupyter.core import Context
from det_jupyter.pytorch.callbacks import PyTorchCallback
from det_jupyter.pytorch.metrics import TrainingMetrics
from det_jupyter.records import BatchMetrics


class Reporter:
    """Journals training metrics. All ranks call everything after the same batches.

    Args:
        core: This rank's journal and collectives.
        average: Over all ranks; else the metrics are the chief's.
        first: Batches that earlier runs have trained.
    """

    def __init__(self, core: Context, *, average: bool, first: int) -> None:
        self._core = core
        self._flushed_at = first
        self._metrics = TrainingMetrics(core.distributed, average=average)
        self.add = self._metrics.add

    def flush(self, steps: int, end: int) -> None:
        """Journal the metrics of each batch since the last flush. Waits for the device."""
        values = self._metrics.flush()
        if self._core.distributed.is_chief:
            record = BatchMetrics(at=time.time(), first=self._flushed_at + 1, values=values)
            self._core.sink.write(record)
            self._core.train.report_progress(steps / end, steps)
        self._flushed_at = steps

    def report(self, steps: int, end: int, callbacks: Iterable[PyTorchCallback]) -> None:
        """Journal the training metrics' averages over the batches since the last report."""
        self.flush(steps, end)
        averages, matrix = self._metrics.report()
        if self._core.distributed.is_chief:
            self._core.train.report_training_metrics(steps, averages)
        callbacks = list(callbacks)
        if callbacks:
            by_batch = [dict(zip(averages, row, strict=True)) for row in matrix.T.tolist()]
            for callback in callbacks:
                callback.on_training_workload_end(averages, by_batch)
