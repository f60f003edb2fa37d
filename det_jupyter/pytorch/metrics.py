"""Metrics of batches: kept where they were computed, checked, averaged over batches and ranks.

Reading a value off a GPU makes the CPU wait for everything queued before it. So values stay on
their device until a flush, which every rank makes at the same batch, about twice a second: it
waits once for all values of the window, and one all-reduce averages them over the ranks.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch.mistakes import TrialMistake


class MetricSeries:
    """Values of the same metrics, batch after batch."""

    def __init__(self, source: str) -> None:
        self.source = source  # the method that returns them, for messages
        self.names: list[str] = []
        self._values: dict[str, list[float | torch.Tensor]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, metrics: dict[str, Any], batch_idx: int) -> None:
        """Take the metrics of one batch; a value that is not a scalar counts as its mean.

        Raises:
            TrialMistake: Something is no number, or the names are not those of the batches before.
        """
        if metrics.keys() != self._values.keys():
            self._set_names(metrics, batch_idx)
        for name, values in self._values.items():
            value = metrics[name]
            if type(value) is torch.Tensor and value.is_cpu and value.numel() == 1:
                values.append(value.item())  # by far the most common case; 0.2 us
            else:
                values.append(self._held(name, value))
        self._length += 1

    def take(self) -> torch.Tensor:
        """Return the values, `[names, batches]` in float64 on the CPU, and begin anew."""
        rows = [_row(values) for values in self._values.values()]
        self._values = {name: [] for name in self._values}
        self._length = 0
        return torch.stack(rows) if rows else torch.empty(0, 0, dtype=torch.float64)

    def _set_names(self, metrics: dict[str, Any], batch_idx: int) -> None:
        if self.names:
            missing = sorted(set(self.names) - metrics.keys())
            added = sorted(map(str, metrics.keys() - set(self.names)))
            what = [f"lacks {', '.join(missing)}"] * bool(missing)
            what += [f"adds {', '.join(added)}"] * bool(added)
            raise TrialMistake(
                self.source,
                f"{self.source}: batch {batch_idx} {' and '.join(what)}; "
                f"every batch has to return the same metrics, here {', '.join(self.names)}",
            )
        for name in metrics:
            if not isinstance(name, str):
                raise TrialMistake(
                    self.source,
                    f"{self.source}: got the metric name {name!r}, expected a string",
                )
        self.names = sorted(metrics)
        self._values = {name: [] for name in self.names}

    def _held(self, name: str, value: Any) -> float | torch.Tensor:
        if isinstance(value, torch.Tensor):
            if value.numel() != 1:
                value = value.double().mean()
            # A copy, because the trial may go on adding to this very tensor.
            return float(value.item()) if value.is_cpu else value.detach().clone()
        if isinstance(value, (int, float, numpy.number, numpy.bool_)):
            return float(value)
        if isinstance(value, numpy.ndarray) and value.dtype.kind in "fiub":
            return float(value.mean())
        raise TrialMistake(
            self.source,
            f"{self.source}: metric {name!r} is a {type(value).__name__}, "
            "expected a number or a tensor",
        )


def as_metrics(source: str, returned: Any) -> dict[str, Any]:
    """Return what a trial's method returned as a dict of metrics; a bare tensor is the loss."""
    if isinstance(returned, dict):
        return returned
    if isinstance(returned, torch.Tensor) and source == "train_batch":
        return {"loss": returned}
    either = ", or the loss" if source == "train_batch" else ""
    raise TrialMistake(
        source,
        f"{source} returned {_described(returned)}, expected a dict of metrics "
        f"such as {{'loss': loss}}{either}",
    )


class TrainingMetrics:
    """Training metrics of all ranks, since the last flush and since the last report."""

    def __init__(self, distributed: DistributedContext, *, average: bool) -> None:
        self._distributed = distributed
        self._average = average and distributed.size > 1
        self._series = MetricSeries("train_batch")
        self._names_agreed = False
        self._flushed: list[torch.Tensor] = []  # [names, batches] each, since the last report
        self.add = self._series.add

    def flush(self) -> dict[str, list[float]]:
        """Return the values of each batch since the last flush. Collective."""
        matrix = self._series.take()
        if self._average:
            self._agree_on_names()
            matrix = self._distributed.reduce_(matrix, "sum") / self._distributed.size
        self._flushed.append(matrix)
        return dict(zip(self._series.names, matrix.tolist(), strict=True))

    def report(self) -> tuple[dict[str, float], torch.Tensor]:
        """Return the averages over all batches flushed since the last report, and all values.

        The values are `[names, batches]`, the names those of the averages.
        """
        matrix = torch.cat(self._flushed, dim=1)
        self._flushed = []
        averages = dict(zip(self._series.names, matrix.mean(dim=1).tolist(), strict=True))
        return averages, matrix

    def _agree_on_names(self) -> None:
        """Check, once, that all ranks return the same metrics: else sums would be nonsense."""
        if self._names_agreed:
            return
        chiefs, *others = self._distributed.allgather(self._series.names)
        for rank, names in enumerate(others, start=1):
            if names != chiefs:
                raise TrialMistake(
                    "train_batch",
                    f"train_batch: rank {rank} returns {', '.join(names)}, "
                    f"rank 0 {', '.join(chiefs)}; all ranks have to return the same metrics",
                )
        self._names_agreed = True


def _row(values: list[float | torch.Tensor]) -> torch.Tensor:
    """Return the values as one float64 tensor on the CPU. Waits for the device."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not tensors:
        return torch.tensor(values, dtype=torch.float64)
    if len(tensors) == len(values):
        return torch.stack([tensor.reshape(()) for tensor in tensors]).double().cpu()
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


def _described(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
