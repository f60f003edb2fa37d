"""Reports of metrics and progress, which become records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from det_jupyter.bounds import MAX_COUNT, find_value_problem
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.records import (
    BatchMetrics,
    MetricsReported,
    Progress,
    Record,
)

_SHOWN = 60  # characters of a value that is refused


class RecordSink(Protocol):
    """Takes records, in order: the journal of a rank, or a list outside of experiments."""

    def write(self, record: Record) -> None:
        """Store the record before returning."""


class RecordList:
    """A RecordSink for scripts and notebooks."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        """See RecordSink."""
        self.records.append(record)


class TrainContext:
    """Reports of the chief. Values are checked alike in experiments and outside.

    Args:
        sink: Gets the reports.
        distributed: This rank's place.
        on_steps: Called with the steps completed at each report and each `note_steps`.
    """

    def __init__(
        self,
        sink: RecordSink,
        distributed: DistributedContext,
        *,
        on_steps: Callable[[int], None] = lambda steps_completed: None,
    ) -> None:
        self._sink = sink
        self._distributed = distributed
        self._on_steps = on_steps
        self._steps_completed = 0

    def note_steps(self, steps_completed: int) -> None:
        """Note the steps completed without a report. Any rank may call."""
        self._steps_completed = checked_steps(steps_completed)
        self._on_steps(self._steps_completed)

    def get_steps(self) -> int:
        """Return the steps completed that were noted last."""
        return self._steps_completed

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Report the training metrics of the batches up to `steps_completed`.

        Args:
            steps_completed: Batches trained since the beginning of the trial.
            metrics: Their averages.
            batch_metrics: The values of each of these batches, all with the same names.
        """
        steps_completed = checked_steps(steps_completed)
        values, num_batches = _by_name(batch_metrics or ()), len(batch_metrics or ())
        if num_batches > max(1, steps_completed):
            raise ValueError(
                f"batch_metrics: got {num_batches} batches, expected at most the "
                f"{steps_completed} of steps_completed"
            )
        self.report_metrics("training", steps_completed, metrics)
        if values:
            first = steps_completed - num_batches + 1
            self._sink.write(BatchMetrics(at=time.time(), first=first, values=values))

    def report_validation_metrics(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        trained: Mapping[str, float] | None = None,
    ) -> None:
        """Report the metrics of a validation; `trained` as in `report_metrics`."""
        self.report_metrics("validation", steps_completed, metrics, trained)

    def report_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: Mapping[str, Any],
        trained: Mapping[str, float] | None = None,
    ) -> None:
        """Report metrics of any group: "training", "validation", or a name of your own.

        Args:
            group: The group.
            steps_completed: Batches trained since the beginning of the trial.
            metrics: The values.
            trained: The same amount of training by unit: batches, records, epochs.

        Raises:
            ValueError: A name, the step or a value cannot be reported; the message says which.
            RuntimeError: This rank is not the chief.
        """
        self._check_chief("report_metrics")
        if not isinstance(group, str) or not group or "." in group:
            raise ValueError(f"report_metrics: got group {group!r}, expected a name without dots")
        record = MetricsReported(
            at=time.time(),
            group=group,
            steps_completed=checked_steps(steps_completed),
            metrics=_checked_metrics(metrics),
            trained=_checked_amounts(trained or {}),
        )
        self.note_steps(steps_completed)
        self._sink.write(record)

    def report_progress(self, progress: float, steps_completed: int | None = None) -> None:
        """Report the progress of the trial, as a fraction of its length.

        Args:
            progress: Between 0 and 1.
            steps_completed: Batches trained; by default, those of the last report.
        """
        self._check_chief("report_progress")
        is_number = isinstance(progress, (int, float)) and not isinstance(progress, bool)
        if not is_number or not 0 <= progress <= 1:
            raise ValueError(f"report_progress: got {progress!r}, expected a number from 0 to 1")
        if steps_completed is not None:
            self.note_steps(steps_completed)
        record = Progress(
            at=time.time(), steps_completed=self._steps_completed, fraction=float(progress)
        )
        self._sink.write(record)

    def _check_chief(self, method: str) -> None:
        if not self._distributed.is_chief:
            rank = self._distributed.rank
            raise RuntimeError(
                f"{method}: only the chief (rank 0) reports, and this is rank {rank}; "
                "guard the call with `if context.distributed.rank == 0`"
            )


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return f"an {type(value).__name__} of thousands of digits"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def checked_steps(steps_completed: Any) -> int:
    """Check a number of batches and return it.

    Raises:
        ValueError: It is no whole number from 0 to 2**53.
    """
    if isinstance(steps_completed, bool) or not isinstance(steps_completed, int):
        raise ValueError(
            f"steps_completed: got {_shown(steps_completed)}, expected a whole number"
        )
    if steps_completed < 0:
        raise ValueError(f"steps_completed: got {_shown(steps_completed)}, expected 0 or more")
    if steps_completed > MAX_COUNT:
        raise ValueError(f"steps_completed: got {_shown(steps_completed)}, expected at most 2**53")
    return steps_completed


def _checked_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics: got {type(metrics).__name__}, expected a dict of metrics")
    for name in metrics:
        if not isinstance(name, str):
            raise ValueError(f"metrics: got the name {name!r}, expected a string")
    return {name: to_json_value(f"metric {name!r}", value) for name, value in metrics.items()}


def _checked_amounts(trained: Mapping[str, float]) -> dict[str, float]:
    for unit, amount in trained.items():
        is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
        if not is_number or not 0 <= amount <= MAX_COUNT:
            raise ValueError(
                f"trained[{unit!r}]: got {_shown(amount)}, expected a number from 0 to 2**53"
            )
    return dict(trained)


def to_json_value(where: str, value: Any) -> Any:
    """Return the value as JSON types: numbers, strings, booleans, None, lists and dicts.

    Tensors and arrays become lists, or numbers without dimensions; keys become strings. NaN and
    infinities stay, as records can hold them. Waits for the device of a tensor.

    Raises:
        ValueError: Something in it is of another type or too large; the message says where.
    """
    try:
        plain = _plain(where, value)
    except RecursionError:
        raise ValueError(f"{where}: got lists or dicts in one another without end") from None
    if problem := find_value_problem(plain, depth=2):  # it will be in a dict and in a list
        raise ValueError(f"{where}: got {problem}")
    return plain


def _plain(where: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor) or hasattr(value, "tolist"):  # numpy's arrays and scalars
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(f"{where}[{name!r}]", item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(f"{where}[{index}]", item) for index, item in enumerate(value)]
    raise ValueError(
        f"{where}: got {type(value).__name__}, expected a number, or what JSON can hold "
        "(strings, booleans, None, lists, dicts; arrays and tensors become lists)"
    )


def _by_name(batch_metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    if not batch_metrics:
        return {}
    names = batch_metrics[0].keys()
    for index, metrics in enumerate(batch_metrics):
        if metrics.keys() != names:
            raise ValueError(
                f"batch_metrics[{index}]: got {sorted(metrics)}, expected {sorted(names)}"
            )
    return {
        name: [to_json_value(f"batch metric {name!r}", metrics[name]) for metrics in batch_metrics]
        for name in names
    }
