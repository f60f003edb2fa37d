"""Reporting a training run: the metrics of each batch, and averages at boundaries."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from det_jupyter.contract.run.journal import BatchMetrics, Progress
from det_jupyter.core import Context
from det_jupyter.core.timings.rank_timings import NO_TIMINGS, AnyTimings
from det_jupyter.pytorch.metrics.series import MetricWindow
from det_jupyter.pytorch.metrics.training_metrics import LossWatch, TrainingMetrics
from det_jupyter.pytorch.reducers.custom_reducers import Reducers
from det_jupyter.pytorch.trial.callback_runner import Callbacks

_MAX_BATCHES_IN_NOTE = 5


class Reporter:
    """Journals training metrics. All ranks must call every method after the same batches.

    `add(metrics, batch_idx, records)` adds this rank's metrics of one batch; `records` is the
    number of its records, 0 for a stand-in.

    Args:
        core: This rank's journal and collectives.
        average: Average over all ranks; False: report the chief's metrics.
        first: Batches that earlier runs have trained.
        reducers: The custom reducers, whose metrics are reported with the averages.
        watch: Checks the losses at each flush.
        timings: Time the parts of a report.
    """

    def __init__(
        self,
        core: Context,
        *,
        average: bool,
        first: int,
        reducers: Reducers | None = None,
        watch: LossWatch | None = None,
        timings: AnyTimings = NO_TIMINGS,
    ) -> None:
        self._core = core
        self._flushed_at = first
        self._reducers = reducers or Reducers()
        self._reduce = timings.timed("reduce_metrics", self._reducers.reduce)
        self._metrics = TrainingMetrics(
            core.distributed, average=average, watch=watch, timings=timings
        )
        self.add, self.latest = self._metrics.add, self._metrics.latest
        self.last_row = self._metrics.last_row

    def flush(self, steps: int) -> None:
        """Journal the metrics of each batch up to `steps`, since the last flush.

        Waits for the device. Progress is not journaled before the next report: the master derives
        it from the batches meanwhile.
        """
        values = self._metrics.flush(first_step=self._flushed_at + 1)
        self._reducers.took_part |= self._metrics.has_records
        if self._core.distributed.is_chief:
            record = BatchMetrics(at=time.time(), first=self._flushed_at + 1, values=values)
            self._core.sink.write(record)
            self._core.train.note_steps(steps)
        self._flushed_at = steps
        self._metrics.check_losses()

    def flush_alone(self, steps: int, rows_of: Callable[[int, int, int], torch.Tensor]) -> None:
        """Journal the metrics of each batch up to `steps`, when other ranks have ended.

        Args:
            rows_of: As for `TrainingMetrics.flush_alone`, given also the first and the last batch.

        Raises:
            TrialMistake: A loss is not finite, and the policy is to stop: nothing is to be saved.
        """
        first = self._flushed_at + 1
        if steps < first - 1:  # of a window that is trained again
            self._metrics.drop_last(first - 1 - steps)
        elif steps >= first:
            values = self._metrics.flush_alone(partial(rows_of, first, steps), first)
            self._core.sink.write(BatchMetrics(at=time.time(), first=first, values=values))
            self._flushed_at = steps
            self._metrics.check_losses()

    def report(self, steps: int, end: int, callbacks: Callbacks) -> dict[str, Any]:
        """Journal the averages over the batches since the last report, and return them.

        They are the same on all ranks if metrics are averaged, and empty if no batch was trained.

        Args:
            steps: Batches trained.
            end: Batches of the whole training.
            callbacks: Get the averages, and the metrics of each batch.
        """
        self.flush(steps)
        if self._core.distributed.is_chief:
            self._core.train.report_progress(steps / end, steps)
        means, values_NB = self._metrics.report()
        if not values_NB.shape[1]:
            return {}
        custom = self._reduce(
            self._core.distributed,
            "training",
            took_part=self._reducers.took_part,
            taken=list(means),
        )
        self._reducers.reset("training")
        averages = {**means, **custom}
        if self._core.distributed.is_chief:
            self._core.train.report_training_metrics(steps, averages)
        if callbacks.overrides("on_training_workload_end"):
            by_batch = [dict(zip(means, row, strict=True)) for row in values_NB.T.tolist()]
            callbacks.on_training_workload_end(averages, by_batch)
        return averages

    def report_last(self, end: int, error: BaseException) -> None:
        """Report the batches since the last flush, when the training ends with an error.

        Not collective: other ranks may have ended. So metrics that would be averaged over the
        ranks are not journaled; the error gets a note with this rank's values instead.
        """
        window, first = self._metrics.take_own(), self._flushed_at + 1
        num_batches = window.values_NB.shape[1]
        if num_batches == 0:
            return
        self._flushed_at += num_batches
        if self._metrics.is_averaged:
            error.add_note(_describe_last(window, first, self._core.distributed.rank))
        elif self._core.distributed.is_chief:
            values = dict(zip(window.names, window.values_NB.tolist(), strict=True))
            self._core.sink.write(BatchMetrics(at=time.time(), first=first, values=values))
        steps = self._flushed_at
        progress = Progress(at=time.time(), steps_completed=steps, fraction=min(1.0, steps / end))
        self._core.sink.write(progress)

    def state(self) -> dict[str, Any]:
        """Return the batches since the last report, for a checkpoint. Call it after a flush."""
        return self._metrics.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned: the chief's state on all ranks if they average."""
        self._metrics.restore(state)


def _describe_last(window: MetricWindow, first: int, rank: int) -> str:
    """Return a line with this rank's last values of a window that begins at step `first`."""
    rows = list(enumerate(window.values_NB.T.tolist(), start=first - 1))[-_MAX_BATCHES_IN_NOTE:]
    rows_text = [
        f"batch {index}: "
        + ", ".join(f"{name} {value:.6g}" for name, value in zip(window.names, row, strict=True))
        for index, row in rows
    ]
    return f"Of rank {rank} alone, and not on the curves: {'; '.join(rows_text)}."
