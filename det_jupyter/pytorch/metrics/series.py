"""Metrics of batches on one rank: checked, and kept on the device where they were computed.

Reading a value from a GPU makes the CPU wait for everything queued before it. So values stay on
their device until a flush, where all are read at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from det_jupyter.core.argument_checks import to_json_value
from det_jupyter.pytorch.messages import TrialMistake

Numbers = NDArray[numpy.float64]


@dataclass(frozen=True, slots=True)
class MetricWindow:
    """Values of consecutive batches, float64 on the CPU. Shapes: N names, B batches."""

    names: list[str]
    values_NB: Tensor
    records_B: Tensor

    @classmethod
    def joined(cls, windows: Sequence[MetricWindow]) -> MetricWindow:
        """Return one window of the batches of all windows that have the last one's names."""
        if not windows:
            return cls([], torch.empty(0, 0, dtype=torch.float64), _column([]))
        names = windows[-1].names
        alike = [window for window in windows if window.names == names]
        if len(alike) == 1:  # the usual case: a report is one flush
            return alike[0]
        return cls(
            names,
            torch.cat([window.values_NB for window in alike], dim=1),
            torch.cat([window.records_B for window in alike]),
        )


class MetricSeries:
    """Values of the same metrics, batch after batch, on one rank.

    Args:
        source: Name of the trial's method that returns them, for messages.
        rank: This rank, for messages.
    """

    def __init__(self, source: str, rank: int = 0) -> None:
        self.names: list[str] = []
        self._source = source
        self._rank = rank
        self._values: dict[str, list[float | Tensor]] = {}
        self._records: list[float | Tensor] = []
        # The values of the last batch before the last `take`.
        self._last: dict[str, float | Tensor] = {}
        self._is_named = False

    def __len__(self) -> int:
        return len(self._records)

    def add(self, metrics: dict[str, Any], batch_idx: int, records: float | Tensor) -> None:
        """Add the metrics of one batch with `records` records. Never waits for a device.

        `records` may be another weight of the batch instead. For a tensor or array with several
        elements, the mean is added.

        Raises:
            TrialMistake: A value is no number, or the names differ from those of earlier batches.
        """
        if metrics.keys() != self._values.keys() or not self._is_named:
            self._set_names(metrics, batch_idx)
        for name, values in self._values.items():
            value = metrics[name]
            kind = type(value)  # checking exact types first halves the cost
            if kind is Tensor and value.is_cpu and value.numel() == 1:
                values.append(value.item())
            elif kind is float or kind is int:
                values.append(value)
            else:
                values.append(self._checked(name, value, batch_idx))
        self._records.append(records)

    def has_records(self) -> bool:
        """Return whether a batch since the last `take` had any records."""
        return any(self._records)

    def latest(self) -> dict[str, float | Tensor]:
        """Return the values of the last batch; tensors are on their device."""
        return {name: values[-1] for name, values in self._values.items() if values} or self._last

    def last_row(self) -> list[float | Tensor]:
        """Return the values of the batch that was added last, in the order of `names`."""
        return [values[-1] for values in self._values.values()]

    def take(self) -> MetricWindow:
        """Return the batches since the last call, and remove them. Waits for the device.

        Raises:
            TrialMistake: A value is a complex number, or an integer beyond the largest float;
                `add` does not check this, as it would cost too much.
        """
        self._last = self.latest()
        taken, self._values = self._values, {name: [] for name in self._values}
        records_B, self._records = self._row("weight", self._records), []
        rows = [self._row(name, values) for name, values in taken.items()]
        values_NB = numpy.array(rows, dtype=numpy.float64).reshape(len(rows), len(records_B))
        return MetricWindow(self.names, torch.from_numpy(values_NB), torch.from_numpy(records_B))

    def _set_names(self, metrics: dict[str, Any], batch_idx: int) -> None:
        if self._is_named:
            missing = sorted(set(self.names) - metrics.keys())
            added = sorted(map(str, metrics.keys() - set(self.names)))
            what = [f"lacks {', '.join(missing)}"] * bool(missing)
            what += [f"adds {', '.join(added)}"] * bool(added)
            raise self._mistake(
                batch_idx,
                f"{' and '.join(what)}; every batch has to return the same metrics, "
                f"here {', '.join(self.names) or 'none'}",
            )
        for name in metrics:
            if not isinstance(name, str):
                raise self._mistake(batch_idx, f"got the metric name {name!r}, expected a string")
        self.names, self._is_named = sorted(metrics), True
        self._values = {name: [] for name in self.names}

    def _checked(self, name: str, value: Any, batch_idx: int) -> float | Tensor:
        if isinstance(value, Tensor) and not value.is_complex():
            value = value.detach()
            if value.numel() != 1:
                value = value.double().mean()
            # A copy, because the trial may change this tensor later.
            if value.is_cpu:
                return float(value.item())
            copied: Tensor = value.clone()
            return copied
        if isinstance(value, (int, float, numpy.floating, numpy.integer, numpy.bool_)):
            return float(value)
        if isinstance(value, numpy.ndarray) and value.dtype.kind in "fiub":
            return float(value.mean(dtype=numpy.float64)) if value.size else float("nan")
        raise self._mistake(
            batch_idx,
            f"metric {name!r} is a {type(value).__name__}, expected a number or a tensor; "
            "give anything else to a reducer of your own (context.wrap_reducer)",
        )

    def _row(self, name: str, values: list[float | Tensor]) -> Numbers:
        """Return the values on the CPU. Waits for the device."""
        tensors = [value for value in values if isinstance(value, Tensor)]
        try:
            if not tensors:
                return numpy.array(values, dtype=numpy.float64)
            row = torch.stack([tensor.reshape(()) for tensor in tensors]).double().cpu().numpy()
            if len(tensors) == len(values):
                return row
            read = iter(row.tolist())
            numbers = [next(read) if isinstance(value, Tensor) else value for value in values]
            return numpy.array(numbers, dtype=numpy.float64)
        except (TypeError, OverflowError) as error:
            where = f"{self._source}: rank {self._rank}"
            raise TrialMistake(self._source, f"{where}: metric {name!r}: {error}") from error

    def _mistake(self, batch_idx: int, problem: str) -> TrialMistake:
        where = f"{self._source}: rank {self._rank}, batch {batch_idx}"
        return TrialMistake(self._source, f"{where}: {problem}")


def _column(numbers: list[Any]) -> Tensor:
    """Return the numbers as a float64 tensor. `torch.tensor` takes ten times as long."""
    return torch.from_numpy(numpy.array(numbers, dtype=numpy.float64))


def as_metrics(
    source: str, returned: Any, batch_idx: int | None = None, rank: int = 0
) -> dict[str, Any]:
    """Return the return value of a trial's method as a dict; a bare tensor is the loss.

    Args:
        source: Name of the method: only `train_batch` may return a tensor.
        returned: The return value.
        batch_idx: Index of the batch; None for methods that are not called for one batch.
        rank: This rank.

    Raises:
        TrialMistake: The method returned something else.
    """
    if isinstance(returned, dict):
        return returned
    is_training = source == "train_batch"
    if isinstance(returned, Tensor) and is_training:
        return {"loss": returned}
    kind = "None" if returned is None else f"a {type(returned).__name__}"
    where = "" if batch_idx is None else f" for batch {batch_idx} on rank {rank}"
    raise TrialMistake(
        source,
        f"{source} returned {kind}{where}, expected a dict of metrics "
        f"such as {{'loss': loss}}{', or the loss' if is_training else ''}",
    )


def as_json_metrics(source: str, returned: Any) -> dict[str, Any]:
    """Return metrics as values that JSON can hold; tensors and arrays become lists.

    Raises:
        TrialMistake: `returned` is no dict, or has a value that JSON cannot hold.
    """
    metrics = as_metrics(source, returned)
    try:
        return {
            str(name): to_json_value(f"{source}: metric {name!r}", value)
            for name, value in metrics.items()
        }
    except ValueError as error:
        raise TrialMistake(source, str(error)) from None


def check_same_names(source: str, by_rank: dict[int, list[str]]) -> None:
    """Check that the ranks return metrics of the same names.

    Raises:
        TrialMistake: The names differ; the message names two ranks.
    """
    first, expected = next(iter(by_rank.items()))
    for rank, names in by_rank.items():
        if names != expected:
            raise TrialMistake(
                source,
                f"{source}: rank {rank} returns {', '.join(names) or 'nothing'}, "
                f"rank {first} {', '.join(expected) or 'nothing'}; "
                "all ranks have to return the same metrics",
            )
