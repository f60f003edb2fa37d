"""Orders of users to a running trial: changes, and profiles (traces.py).

All ranks take an order at the same exchange (agreement.py), so they carry it out after the same
batch, and that batch is reported with the change. A checkpoint holds the ids of the changes that
are part of its state. A later run makes the other changes after the reported batch, and, as the
first run did, after the report, validation and checkpoint of a boundary there. So it trains as the
first run did, whether it starts before that batch or after it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from det_jupyter.config import Length
from det_jupyter.contract.messages import Change, ChangeOrder, ProfileOrder
from det_jupyter.contract.run.journal import ChangeMade
from det_jupyter.core import Context
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.steps.learning_rates import change_rates, find_rate_problem
from det_jupyter.pytorch.training.schedule import Schedule
from det_jupyter.pytorch.training.traces import Tracer, traces_folder
from det_jupyter.pytorch.trial.context import PyTorchTrialContext


@dataclass(eq=False)
class LiveOrders:
    """The orders to one run. All ranks call every method after the same batches.

    Attributes:
        after_batch: The loop's list of functions to call after each batch; a profile that is being
            recorded adds one.
        made_at: Batches trained when the last change was made.
    """

    context: PyTorchTrialContext
    core: Context
    after_batch: list[Callable[[Share], None]]

    def __post_init__(self) -> None:
        self._orders = self.core.orders
        self._made: set[int] = set()  # ids of changes that were made
        self._open: list[ChangeOrder] = []  # changes not made yet
        self._tracer: Tracer | None = None
        self.made_at = 0

    def state(self) -> list[int]:
        """Return the ids of the changes that were made, for a checkpoint."""
        return sorted(self._made)

    def restore(self, state: list[int]) -> None:
        """Restore what `state` returned."""
        self._made = set(state)

    def begin(self, schedule: Schedule) -> None:
        """Repeat changes of the schedule from the checkpoint; store the planned other changes."""
        self._schedule = schedule
        planned = self._orders.planned if self._orders else ()
        for order in sorted((o for o in planned if isinstance(o, ChangeOrder)), key=_when):
            if order.id in self._made:
                self._change_schedule(order.change)
            else:
                self._open.append(order)

    def are_waiting(self) -> bool:
        """Return whether new orders are waiting. On the chief only."""
        return self._orders is not None and self._orders.are_waiting()

    def next_after(self, steps: int) -> int:
        """Return the next batch after which a change of an earlier run is to be repeated."""
        due_at = [order.steps_completed or 0 for order in self._open]
        return min((due for due in due_at if due > steps), default=sys.maxsize)

    def carry_out(self, steps: int, *, are_new: bool = False) -> None:
        """Make the changes that are due after this batch; `are_new`: take new orders first."""
        if are_new:
            assert self._orders is not None
            for order in self._orders.take():
                if isinstance(order, ProfileOrder):
                    self._profile(order, steps)
                else:
                    self._open.append(order)
        if not self._open:
            return
        due = [order for order in self._open if (order.steps_completed or 0) <= steps]
        self._open = [order for order in self._open if order not in due]
        for change in sorted(due, key=_when):
            self._make(change, steps)

    def close(self) -> None:
        """End a profile that is being recorded, and write it."""
        if self._tracer is not None:
            self._tracer.close()

    def _make(self, order: ChangeOrder, steps: int) -> None:
        context, change = self.context, order.change
        problem = find_rate_problem(context.optimizers, change) or self._find_problem(change)
        described = []
        if not problem:
            schedulers = [item.scheduler for item in context.lr_schedulers]
            described = [
                change_rates(context.optimizers, schedulers, change),
                self._change_schedule(change),
            ]
            self._made.add(order.id)
            self.made_at = steps
        if self.core.distributed.is_chief and order.steps_completed is None:
            self.core.sink.write(
                ChangeMade(
                    at=time.time(),
                    order_id=order.id,
                    steps_completed=steps,
                    text=", ".join(filter(None, described)),
                    error=problem,
                )
            )

    def _find_problem(self, change: Change) -> str:
        period = change.min_validation_period
        if period is None:
            return ""
        if period.unit == "epochs" and period.amount and not self._schedule.has_epochs:
            return (
                "min_validation_period: got epochs, but the training data has no length; "
                "give it in batches"
            )
        if period.unit == "records" and not self.context.has_batch_size:
            return "min_validation_period: in records, but the trial has no global_batch_size"
        return ""

    def _change_schedule(self, change: Change) -> str:
        period = change.min_validation_period
        if period is None:
            return ""
        before = self._schedule.validate_every(period)
        return f"min_validation_period {_text(before)} → {_text(period)}"

    def _profile(self, order: ProfileOrder, steps: int) -> None:
        info, rank = self.core.info, self.core.distributed.rank
        if rank not in order.profile.ranks or info is None:
            return
        if self._tracer is not None:  # one profile at a time
            self._tracer.close()
            self._tracer = None
            self.after_batch.remove(self._trace)
        folder = traces_folder(info.data_dir, info.experiment_id, info.trial_id)
        tracer = Tracer(order, folder, rank, steps, self.core.sink.write)
        tracer.start(has_own_profiler=self.context.torch_profiler is not None)
        if not tracer.is_over:
            self._tracer = tracer
            self.after_batch.append(self._trace)

    def _trace(self, share: Share) -> None:
        assert self._tracer is not None
        self._tracer.step()
        if self._tracer.is_over:
            self.after_batch.remove(self._trace)
            self._tracer = None


def _text(period: Any) -> str:
    if isinstance(period, Length):
        return str(period) if period.amount else "none"
    return "none" if period is None else str(period)


def _when(order: ChangeOrder) -> tuple[int, int]:
    """Return the sort key of a change: by the batch after which it is made, then by id."""
    return order.steps_completed or 0, order.id
