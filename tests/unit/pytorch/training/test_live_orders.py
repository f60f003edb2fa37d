"""Profiles that are ordered of a running trial, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch

from det_jupyter.contract.messages import Change, ChangeOrder, Profile, ProfileOrder
from det_jupyter.contract.run.journal import TraceSaved
from det_jupyter.contract.values.lengths import Length
from det_jupyter.core.journal import RecordList
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.training.live_orders import LiveOrders


class Run:
    """A run of one rank that takes orders."""

    def __init__(self, folder: Path, *, own_profiler: Any = None) -> None:
        self.sink = RecordList()
        self.calls: list[Callable[[Share], None]] = []
        self.waiting: list[ProfileOrder] = []
        core: Any = SimpleNamespace(
            orders=SimpleNamespace(planned=(), take=lambda: self.waiting),
            info=SimpleNamespace(data_dir=folder, experiment_id=1, trial_id=2),
            distributed=SimpleNamespace(rank=0, is_chief=True),
            sink=self.sink,
        )
        context: Any = SimpleNamespace(torch_profiler=own_profiler)
        self.orders = LiveOrders(context, core, self.calls)
        self.steps = 0

    def order(self, number: int) -> None:
        self.waiting = [ProfileOrder(id=number, profile=Profile(steps=2))]
        self.orders.carry_out(self.steps, are_new=True)

    def train(self, batches: int) -> None:
        for _ in range(batches):
            torch.ones(2).sum()
            self.steps += 1
            for call in self.calls.copy():
                call(Share(1, 1))

    def ended(self) -> list[tuple[int, bool]]:
        """Return the orders whose end was reported, and whether there is a trace."""
        saved = [record for record in self.sink.records if isinstance(record, TraceSaved)]
        return [(record.order_id, bool(record.path)) for record in saved]


def test_a_refused_profile_does_not_disturb_the_next_one(tmp_path: Path) -> None:
    run = Run(tmp_path, own_profiler=object())
    for number in (1, 2, 3):
        run.order(number)
        run.train(2)
    run.orders.close()
    assert run.ended() == [(1, False), (2, False), (3, False)]
    assert run.calls == []


def test_a_further_profile_ends_the_one_before_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.order(1)
    run.train(4)
    assert len(run.calls) == 1
    run.order(2)
    assert [number for number, _ in run.ended()] == [1]
    assert len(run.calls) == 1
    run.train(4)
    run.orders.close()
    assert [number for number, _ in run.ended()] == [1, 2]


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
