"""One operation of a search: train up to a length, and report the metric there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from det_jupyter.contract.values.lengths import Length
from det_jupyter.core.train import TrainContext
from det_jupyter.core.values import is_number, shown, to_json_value


class Unit(Enum):
    """The unit of a length."""

    BATCHES = "batches"
    RECORDS = "records"
    EPOCHS = "epochs"


class SearcherOperation:
    """Training up to a length; made by `searcher.operations()`.

    Args:
        target: The length, from the trial's beginning.
        full_length: The trial's; progress is a fraction of it.
    """

    def __init__(
        self,
        target: Length,
        *,
        full_length: Length,
        metric: str,
        is_chief: bool,
        train: TrainContext,
    ) -> None:
        self._target = target
        self._full_length = full_length
        self._metric = metric
        self._is_chief = is_chief
        self._train = train
        self._is_completed = False

    @property
    def length(self) -> int:
        """How far to train: an absolute length, in the unit of `searcher.max_length`."""
        return self._target.amount

    @property
    def unit(self) -> Unit:
        return Unit(self._target.unit)

    def report_progress(self, length: float) -> None:
        """Report how far the training is.

        Args:
            length: In the unit of the operation, from the trial's beginning.

        Raises:
            ValueError: It is no number from 0 to the operation's length.
            RuntimeError: This rank is not the chief, or the operation is completed.
        """
        self._check("report_progress")
        if not is_number(length) or not 0 <= length <= self.length:
            raise ValueError(
                f"op.report_progress: got {shown(length)}, expected a number from 0 to "
                f"{self.length}, which is this operation's length in {self._target.unit}"
            )
        is_steps = self._target.unit == "batches" and isinstance(length, int)
        whole = max(self._target.comparable_amount(self._full_length), self.length, 1)
        self._train.report_progress(length / whole, int(length) if is_steps else None)

    def report_completed(self, searcher_metric: Any) -> None:
        """Report that the training has come to the operation's length, and the metric there.

        The metric counts as a validation if none was reported at this step.

        Raises:
            ValueError: It is no number.
            RuntimeError: This rank is not the chief, or the operation is completed.
        """
        self._check("report_completed")
        value = to_json_value("op.report_completed: the searcher metric", searcher_metric)
        if isinstance(value, Mapping) and set(value) == {self._metric}:
            value = value[self._metric]
        if not is_number(value):
            raise ValueError(
                f"op.report_completed: got {shown(searcher_metric)}, expected a number: the "
                f"searcher metric {self._metric!r}"
            )
        steps = self._train.get_steps()
        if self._target.unit == "batches":
            steps = max(steps, self.length)
        validated_at, metrics = self._train.get_validated()
        if validated_at != steps or self._metric not in metrics:
            self._train.report_validation_metrics(steps, {self._metric: value})
        self._is_completed = True

    def problem(self) -> str:
        """Return why there is no next operation yet; empty if there is none."""
        if self._is_completed or not self._is_chief:
            return ""
        return (
            f"searcher.operations: the operation of length {self.length} was not completed; call "
            "op.report_completed(metric) on the chief before the next one"
        )

    def _check(self, call: str) -> None:
        if not self._is_chief:
            raise RuntimeError(
                f"op.{call}: only the chief (rank 0) reports; guard the call with "
                "`if context.distributed.rank == 0`"
            )
        if self._is_completed:
            raise RuntimeError(
                f"op.{call}: this operation of length {self.length} was reported completed "
                "already; take the next one of searcher.operations()"
            )
