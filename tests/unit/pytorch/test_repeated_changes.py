"""Changes of a trial that a checkpoint has are repeated in the order in which they were made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from det_jupyter.contract.messages import Change, ChangeOrder
from det_jupyter.contract.values.lengths import Length
from det_jupyter.pytorch.training.orders import LiveOrders


class Recording(LiveOrders):
    """Notes what is changed of the schedule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.periods: list[Length | None] = []

    def _change_schedule(self, change: Change) -> str:
        self.periods.append(change.min_validation_period)
        return ""


def order(number: int, after: int, period: int) -> ChangeOrder:
    change = Change(min_validation_period=Length("batches", period))
    return ChangeOrder(id=number, steps_completed=after, change=change)


def test_the_change_of_the_later_batch_is_repeated_last_whatever_its_number() -> None:
    planned = [order(1, after=6, period=4), order(2, after=5, period=2)]
    core = SimpleNamespace(orders=SimpleNamespace(planned=planned))
    orders = Recording(cast("Any", None), cast("Any", core), [])
    orders.restore([1, 2])
    orders.begin(cast("Any", None))
    assert orders.periods == [Length("batches", 2), Length("batches", 4)]
