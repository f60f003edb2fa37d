"""Metrics of batches, on one rank: checked, and kept where they were computed.

Reading a value off a GPU makes the CPU wait for everything queued before it. So values stay on
their device until they are taken, all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from det_jupyter.core.values import to_json_value
from det_jupyter.pytorch.messages import TrialMistake

Numbers = NDArray[numpy.float64]


@dataclass(frozen=True, slots=True)
class Window:
    """Values of consecutive batches, float64 on the CPU. Shapes: N names, B batches."""

    names: list[str]
    values_NB: Tensor
    records_B: Tensor

    @classmethod
    def joined(cls, windows: Sequence[Window]) -> Window:
        """Return one window of all batches of those that have the names of the last one."""
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

    Messages name the rank, and as the source the method of the trial that returns them.
    """

    def __init__(self, source: str, rank: int = 0) -> None:
        self.names: list[str] = []
        self._source = source
        self._rank = rank
        self._values: dict[str, list[float | Tensor]] = {}
        self._records: list[float] = []
        self._last: dict[str, float | Tensor] = {}  # of the batch before the next one
        self._is_named = False
        self._has_tensors = False  # some values are still on their device

    def __len__(self) -> int:
        return len(self._records)

    def add(self, metrics: dict[str, Any], batch_idx: int, records: float) -> None:
        """Take the metrics of one batch of so many records. Never waits for a device.

        A value that is not a scalar counts as its mean.

        Raises:
            TrialMistake: Something is no number, or the names are not those of the batches before.
        """
        if metrics.keys() != self._values.keys() or not self._is_named:
            self._set_names(metrics, batch_idx)
        for name, values in self._values.items():
            value = metrics[name]
            kind = type(value)  # asking for the exact types first saves half of the time
            if kind is Tensor and value.is_cpu and value.numel() == 1:
                values.append(value.item())
            elif kind is float or kind is int:
                values.append(value)
            else:
                values.append(self._held(name, value, batch_idx))
        self._records.append(records)

    def has_records(self) -> bool:
        """Return whether a batch since the last `take` had any."""
        return any(self._records)

    def latest(self) -> dict[str, float | Tensor]:
        """Return the values of the last batch, where they were computed."""
        return {name: values[-1] for name, values in self._values.items() if values} or self._last

    def take(self) -> Window:
        """Return all batches since the last call, and start anew. Waits for the device.

        Raises:
            TrialMistake: A metric is a complex number, or a whole one that is beyond the largest
                float: to ask before costs too much.
        """
        self._last = self.latest()
        taken, self._values = self._values, {name: [] for name in self._values}
        records, self._records = _column(self._records), []
        rows = [self._row(name, values) for name, values in taken.items()]
        values_NB = numpy.array(rows, dtype=numpy.float64).reshape(len(rows), len(records))
        self._has_tensors = False
        return Window(self.names, torch.from_numpy(values_NB), records)

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

    def _held(self, name: str, value: Any, batch_idx: int) -> float | Tensor:
        if isinstance(value, Tensor) and not value.is_complex():
            value = value.detach()
            if value.numel() != 1:
                value = value.double().mean()
            # A copy, because the trial may continue adding to this very tensor.
            if value.is_cpu:
                return float(value.item())
            self._has_tensors = True
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
        try:
            return self._read(values)
        except (TypeError, OverflowError) as error:
            where = f"{self._source}: rank {self._rank}"
            raise TrialMistake(self._source, f"{where}: metric {name!r}: {error}") from error

    def _read(self, values: list[float | Tensor]) -> Numbers:
        if not self._has_tensors:
            return numpy.array(values, dtype=numpy.float64)
        tensors = [value for value in values if isinstance(value, Tensor)]
        if not tensors:
            return numpy.array(values, dtype=numpy.float64)
        row = torch.stack([tensor.reshape(()) for tensor in tensors]).double().cpu().numpy()
        if len(tensors) == len(values):
            return row
        read = iter(row.tolist())
        numbers = [next(read) if isinstance(value, Tensor) else value for value in values]
        return numpy.array(numbers, dtype=numpy.float64)

    def _mistake(self, batch_idx: int, problem: str) -> TrialMistake:
        where = f"{self._source}: rank {self._rank}, batch {batch_idx}"
        return TrialMistake(self._source, f"{where}: {problem}")


def _column(numbers: list[Any]) -> Tensor:
    """Return the numbers in float64. `torch.tensor` takes ten times as long."""
    return torch.from_numpy(numpy.array(numbers, dtype=numpy.float64))


def as_metrics(
    source: str, returned: Any, batch_idx: int | None = None, rank: int = 0
) -> dict[str, Any]:
    """Return what a trial's method `source` returned as a dict; a bare tensor is the loss.

    Without a batch index, the method was not given one batch alone.

    Raises:
        TrialMistake: It is something else.
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
    """Return metrics of any type that JSON has; tensors and arrays become lists.

    Raises:
        TrialMistake: It is no dict, or something in it has no place in JSON.
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
        TrialMistake: They do not; the message names two ranks.
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
