"""The target of a run: how far it trains, and what the search decides when it is reached.

The run's plan contains the target. A run whose trial may train farther reports that it has reached
the target, keeps its slots, and waits for the search's decision. That is written to the control
page within milliseconds: a farther target if the trial is promoted, or the request to leave.

A script goes through the targets as operations:

    for op in context.searcher.operations():
        while steps < op.length:                # an absolute length, in the unit of max_length
            steps = train_a_batch(...)
        op.report_completed(validate(...))      # then waits for the next one, or the end
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.journal import TargetReached
from det_jupyter.contract.values.lengths import Length
from det_jupyter.contract.values.pauses import growing_pauses
from det_jupyter.core.argument_checks import (
    ContextPart,
    checked_steps,
    find_choice_problem,
    is_number,
    quoted,
    to_json_value,
)
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.journal import RecordSink
from det_jupyter.core.train import TrainContext


class Unit(Enum):
    """The unit of a length."""

    BATCHES = "batches"
    RECORDS = "records"
    EPOCHS = "epochs"


class SearcherOperation:
    """One step of a search: train up to a length, and report the metric there.

    Args:
        target: How far to train, from the trial's beginning.
        full_length: The trial's full length; progress is a fraction of it.
        metric: Name of the searcher metric.
        is_chief: Whether this rank may report.
        train: Takes the reports.
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
        """Report how far the trial has trained.

        Args:
            length: The length from the trial's beginning, in the unit of the operation.

        Raises:
            ValueError: It is not a number from 0 to the operation's length.
            RuntimeError: This rank is not the chief, or the operation is completed.
        """
        self._check("report_progress")
        if not is_number(length) or not 0 <= length <= self.length:
            raise ValueError(
                f"op.report_progress: got {quoted(length)}, expected a number from 0 to "
                f"{self.length}, which is this operation's length in {self._target.unit}"
            )
        is_steps = self._target.unit == "batches" and isinstance(length, int)
        whole = max(self._target.comparable_amount(self._full_length), self.length, 1)
        self._train.report_progress(length / whole, int(length) if is_steps else None)

    def report_completed(self, searcher_metric: Any) -> None:
        """Report that the trial has trained to the operation's length, and the metric there.

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
                f"op.report_completed: got {quoted(searcher_metric)}, expected a number: the "
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
        """Return why the next operation cannot begin; "" if it can."""
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


logger = logging.getLogger(__name__)

_PAUSES_S = (0.001, 0.02)  # pause between two reads of the control page: first and longest


class SearcherMode(Enum):
    """Which ranks iterate over the operations: all, in step with the chief, or only the chief."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"


class SearcherContext(ContextPart):
    """The target of this run, and the operations of a script.

    Args:
        target: How far to train, counted from the trial's beginning.
        is_last: Whether the trial is completed there.
        page: The chief's control page; None on other ranks and outside of experiments.
        distributed: The ranks of the run.
        sink: Stores the chief's report that the target is reached.
        train: Takes the reports of operations; None where there are no operations.
        metric: Name of the searcher metric.
        full_length: The trial's full length if it is known; by default the target.
        on_leave: Called when the operations end though the trial is not completed.
    """

    def __init__(
        self,
        target: Length,
        *,
        is_last: bool,
        page: ControlPage | None,
        distributed: DistributedContext,
        sink: RecordSink,
        train: TrainContext | None = None,
        metric: str = "searcher metric",
        full_length: Length | None = None,
        on_leave: Callable[[], object] = lambda: None,
    ) -> None:
        self.target = target
        self.is_last = is_last
        self._page = page
        self._distributed = distributed
        self._sink = sink
        self._train = train
        self.metric = metric
        self._full_length = full_length
        self._on_leave = on_leave
        self._operation: SearcherOperation | None = None  # the last one of operations()

    def get_configured_units(self) -> Unit:
        """Return the unit of lengths: that of `searcher.max_length`."""
        return Unit(self.target.unit)

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """Yield the operations of this run: how far to train next.

        Each has a `length`, counted from the trial's beginning. Call `report_completed` on it
        before the next one. When they end, save a checkpoint and end the script.
        Collective in the mode WorkersAskChief: all ranks must iterate over them.

        Args:
            searcher_mode: Whether all ranks iterate over them.
            auto_ack: Whether the end of the operations acknowledges a request to leave.

        Raises:
            RuntimeError: An operation was not completed; or ChiefOnly, and this is not the chief.
        """
        self.check_open("searcher.operations")
        if problem := find_choice_problem(searcher_mode, SearcherMode):
            raise ValueError(f"searcher.operations: {problem}")
        is_shared = searcher_mode is SearcherMode.WorkersAskChief
        if not is_shared and not self._distributed.is_chief:
            raise RuntimeError(
                "searcher.operations: only the chief (rank 0) goes through them in "
                f"SearcherMode.ChiefOnly, and this is rank {self._distributed.rank}"
            )
        return self._operations(self._distributed if is_shared else None, auto_ack)

    def _operations(
        self, together: DistributedContext | None, auto_ack: bool
    ) -> Iterator[SearcherOperation]:
        """Yield operations, in step with the ranks of `together` if it is not None."""
        assert self._train is not None
        while True:
            operation = SearcherOperation(
                self.target,
                full_length=self._full_length or self.target,
                metric=self.metric,
                is_chief=self._distributed.is_chief,
                train=self._train,
            )
            self._operation = operation
            yield operation
            is_asked, problem = _value_of_chief(
                together, (self._is_asked_to_leave(), operation.problem())
            )
            if not is_asked and problem:
                raise RuntimeError(problem)
            if problem or not self._continues(together):
                has_more = problem or not self.is_last  # the next operation belongs to a later run
                if auto_ack and has_more:
                    self._on_leave()
                return

    def _continues(self, together: DistributedContext | None) -> bool:
        """Report that the target is reached; return whether there is a farther one."""
        if self.is_last:  # reported when the script has ended
            return self._set_target(self._farther_target(), together)
        assert self._train is not None
        self.report_reached(self._train.get_steps())
        return self._set_target(
            self._wait_for_target() if self._distributed.is_chief else None, together
        )

    def warn_if_left(self) -> None:
        """Warn if the script ends within an operation without a request to leave."""
        operation = self._operation
        if operation is None or not operation.problem() or self._is_asked_to_leave():
            return
        if self._train is not None and self._train.early_exit is not None:
            return
        logger.warning(
            "searcher.operations: the script ends before it has called op.report_completed for "
            "%d %s%s",
            operation.length,
            operation.unit.value,
            "; the trial counts as completed" if self._page is not None else "",
        )

    def _is_asked_to_leave(self) -> bool:
        return self._page is not None and self._page.check("preempt")

    def report_reached(self, steps_completed: int) -> None:
        """Report that the trial has trained, validated and saved up to its target."""
        if self._distributed.is_chief:
            self._sink.write(
                TargetReached(
                    at=time.time(),
                    steps_completed=checked_steps(steps_completed),
                    target=self.target,
                )
            )

    def was_extended(self) -> bool:
        """Set `target` to a farther one and return True, if there is one. Does not wait.

        Collective: all ranks must call it.
        """
        return self._set_target(self._farther_target(), self._distributed)

    def await_next(self) -> bool:
        """Wait for a farther target, set `target` and return True; False if requested to leave.

        Collective: all ranks must call it.
        """
        found = self._wait_for_target() if self._distributed.is_chief else None
        return self._set_target(found, self._distributed)

    def _set_target(
        self, found: tuple[int, bool] | None, together: DistributedContext | None
    ) -> bool:
        found = _value_of_chief(together, found)
        if found is None:
            return False
        amount, self.is_last = found
        self.target = Length(self.target.unit, amount)
        return True

    def _farther_target(self) -> tuple[int, bool] | None:
        """Return the amount and `is_last` of the control page's target, if it is farther."""
        found = self._page.target() if self._page is not None else None
        return found if found and found[0] > self.target.amount else None

    def _wait_for_target(self) -> tuple[int, bool] | None:
        """Wait for the next target and return it; None if the run is requested to leave."""
        if self._page is None:
            return None
        pauses = growing_pauses(*_PAUSES_S)
        while not self._page.check("preempt"):
            if found := self._farther_target():
                return found
            time.sleep(next(pauses))
        return None


def _value_of_chief(together: DistributedContext | None, value: Any) -> Any:
    return together.broadcast(value) if together is not None else value
