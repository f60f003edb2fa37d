"""Training as arithmetic: windows, schedulers, boundaries, agreement, generators."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.config import ExperimentConfig, Length, TrainingUnits, parse_config
from det_jupyter.core import DistributedContext, PreemptContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import Batch, Epoch, LRScheduler, TrainUnit
from det_jupyter.pytorch.agreement import Agreement, Decision
from det_jupyter.pytorch.rng import get_states, seed_everything, set_states
from det_jupyter.pytorch.rules import Rules
from det_jupyter.pytorch.steps.position import Position
from det_jupyter.pytorch.training.schedule import (
    Schedule,
    is_due,
    next_due,
    training_units,
)

Mode = LRScheduler.StepMode


def config(**changes: Any) -> ExperimentConfig:
    document = {
        "entrypoint": "T",
        "hyperparameters": {"global_batch_size": 10},
        "searcher": {"name": "single", "metric": "m", "max_length": {"batches": 20}},
        **changes,
    }
    return parse_config(document, default_seed=0)


def rules(**changes: Any) -> Rules:
    return Rules.of(config(**changes), Length("batches", 20))


def optimizer() -> torch.optim.SGD:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


# ---- aggregation windows and learning rates


@given(st.integers(1, 6), st.integers(1, 30))
def test_windows_cover_every_batch_once_and_the_last_one_is_stepped(
    frequency: int, end: int
) -> None:
    covered: list[int] = []
    for batch_idx in range(end):
        position = Position(frequency, batch_idx=batch_idx, end=end)
        if position.is_step:
            covered += position.window
            following = Position(frequency, batch_idx=position.next_step, end=end)
            assert batch_idx < position.next_step
            assert batch_idx + 1 == end or following.is_step
    assert covered == list(range(end))


@pytest.mark.parametrize(
    ("mode", "frequency", "aggregation", "expected"),
    [
        (Mode.STEP_EVERY_BATCH, 1, 1, {i: 1 for i in range(12)}),
        (Mode.STEP_EVERY_BATCH, 3, 1, {2: 1, 5: 1, 8: 1, 11: 1}),
        (Mode.STEP_EVERY_BATCH, 1, 4, {3: 4, 7: 4, 11: 4}),
        (Mode.STEP_EVERY_BATCH, 3, 4, {3: 1, 7: 1, 11: 2}),
        (Mode.STEP_EVERY_OPTIMIZER_STEP, 1, 4, {3: 1, 7: 1, 11: 1}),
        (Mode.STEP_EVERY_OPTIMIZER_STEP, 8, 4, {7: 1}),
        (Mode.STEP_EVERY_EPOCH, 1, 1, {5: 1, 11: 1}),
        (Mode.STEP_EVERY_EPOCH, 2, 1, {11: 1}),
        (Mode.STEP_EVERY_EPOCH, 1, 4, {3: 1, 11: 1}),
        (Mode.MANUAL_STEP, 1, 1, {}),
    ],
)
def test_schedulers_step_with_the_optimizer_and_as_their_mode_says(
    mode: Mode, frequency: int, aggregation: int, expected: dict[int, int]
) -> None:
    units = TrainingUnits(global_batch_size=1, batches_per_epoch=6)
    scheduler = LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer(), 1), mode, frequency)
    steps = {}
    for batch_idx in range(12):
        position = Position(aggregation, batch_idx=batch_idx)
        if position.is_step:
            count = scheduler.steps_after(position.window, position.next_step, units.epoch_of)
            if count:
                steps[batch_idx] = count
    assert steps == expected


def test_a_plateau_scheduler_can_only_be_stepped_by_hand() -> None:
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer())
    LRScheduler(plateau, Mode.MANUAL_STEP)
    with pytest.raises(ConfigError, match="ReduceLROnPlateau needs a metric"):
        LRScheduler(plateau, Mode.STEP_EVERY_EPOCH)
    with pytest.raises(TypeError, match="STEP_EVERY_BATCH"):
        LRScheduler(plateau, "every batch")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="frequency"):
        LRScheduler(plateau, Mode.MANUAL_STEP, frequency=0)


# ---- boundaries


@given(
    st.builds(Length, st.sampled_from(["batches", "records", "epochs"]), st.integers(0, 30)),
    st.sampled_from([0, 3, 10, 37, 64]),
    st.integers(1, 12),
    st.integers(0, 40),
)
def test_the_next_boundary_is_the_first_one_there_is(
    period: Length, records: int, batch_size: int, steps: int
) -> None:
    units = TrainingUnits(
        global_batch_size=batch_size, batches_per_epoch=7, records_per_epoch=records or None
    )
    found = next_due(units, period, steps, end=10**9)
    if period.amount == 0:
        assert found is None
    else:
        assert found is not None
        assert units.is_boundary(period, found)
        between = range(steps + 1, min(found, steps + 300))
        assert not any(units.is_boundary(period, step) for step in between)


def test_the_end_is_a_boundary_where_everything_is_due() -> None:
    schedule = Schedule(
        Rules.of(
            config(scheduling_unit=8, min_validation_period={"batches": 5}), Length("batches", 20)
        ),
        TrainingUnits(global_batch_size=10, batches_per_epoch=4),
        Length("epochs", 5),
    )
    found = [0]
    while found[-1] < schedule.end:
        found.append(schedule.next_boundary(found[-1]))
    assert found == [0, 5, 8, 10, 15, 16, 20]
    assert [step for step in found if schedule.validates_at(step)] == [5, 10, 15, 20]
    assert [step for step in found if schedule.saves_at(step)] == [20]


def test_epochs_without_records_are_passes_over_the_data() -> None:
    units = training_units(rules(), global_batch_size=10, batches_per_pass=5)
    assert units.to_batches(Length("epochs", 2)) == 10


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        (Batch([5, 30, 7]), [5, 7, 30]),
        (Batch(range(0, 100, 12)), [12, 24, 36]),
        (Epoch({1, 3, 9}), [4, 12, 36]),
        (Batch(0), [*range(1, 41)]),  # less than 1: every time
        (Epoch(4), [16, 32]),
        (None, []),
    ],
)
def test_a_script_says_when_by_numbers_or_by_containers(
    period: TrainUnit | None, expected: list[int]
) -> None:
    units = TrainingUnits(global_batch_size=10, batches_per_epoch=4)
    found = [0]
    given = None if period is None else period.to_period()
    while (due := next_due(units, given, found[-1], end=40)) is not None and due <= 40:
        found.append(due)
    assert found[1:] == expected
    assert [s for s in range(41) if is_due(units, given, s)] == expected


def test_training_data_that_cannot_be_counted_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no batches"):
        training_units(rules(), global_batch_size=10, batches_per_pass=0)
    in_epochs = rules(
        searcher={"name": "single", "metric": "m", "max_length": {"epochs": 2}},
    )
    with pytest.raises(ConfigError, match=r"searcher\.max_length: in epochs"):
        training_units(in_epochs, global_batch_size=10, batches_per_pass=None)
    units = training_units(rules(), global_batch_size=None, batches_per_pass=None)
    assert units.to_batches(Length("batches", 7)) == 7


# ---- agreement


class Page:
    """A control page of which nothing is mapped."""

    def __init__(self) -> None:
        self.raised: set[str] = set()

    def is_raised(self, signal: str) -> bool:
        return signal in self.raised

    def acknowledge(self) -> None:
        self.raised.add("acknowledged")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def exchanges(batch_s: list[float]) -> list[tuple[int, Decision]]:
    """Return the batches after which one rank exchanges, when batches take so long."""
    clock, one = Clock(), DistributedContext()
    agreement = Agreement(one, PreemptContext(None, one), steps_completed=0, clock=clock)
    found = []
    for steps, duration in enumerate(batch_s, start=1):
        clock.now += duration
        if steps == agreement.due_at:
            agreement.measure(steps)
            found.append((steps, agreement.exchange(steps, stop=False)))
    return found


def test_exchanges_come_to_one_in_a_fifth_of_a_second() -> None:
    steps = [at for at, _ in exchanges([0.2 / 128] * 2000)]
    assert steps == [1, 3, 7, 15, 31, 63, 127, *range(255, 2000, 128)]


def test_slow_batches_are_exchanged_one_by_one() -> None:
    assert [at for at, _ in exchanges([0.5] * 5)] == [1, 2, 3, 4, 5]


def test_a_slow_first_batch_misleads_only_briefly() -> None:
    steps = [at for at, _ in exchanges([3.0] + [0.002] * 1000)]
    assert steps[:6] == [1, 2, 4, 8, 16, 32]


def test_metrics_are_flushed_at_once_and_then_every_half_second() -> None:
    flushed = [at for at, verdict in exchanges([0.01] * 200) if verdict.flush]
    assert flushed[0] == 1
    gaps = [later - earlier for earlier, later in pairwise(flushed)]
    assert all(50 <= gap <= 70 for gap in gaps)


def test_a_raised_signal_lets_everyone_leave() -> None:
    one, page = DistributedContext(), Page()
    preempt = PreemptContext(page, one)  # type: ignore[arg-type]  # as far as it is used
    agreement = Agreement(one, preempt, steps_completed=0)
    assert not agreement.exchange(1, stop=False).leave
    page.raised.add("preempt")
    assert agreement.exchange(2, stop=False).leave
    assert preempt.should_preempt(auto_ack=False)
    assert "acknowledged" not in page.raised
    assert preempt.should_preempt()
    assert "acknowledged" in page.raised


def test_a_wish_to_stop_is_told() -> None:
    one = DistributedContext()
    agreement = Agreement(one, PreemptContext(None, one), steps_completed=0)
    assert agreement.exchange(1, stop=True).stop
    assert not agreement.exchange(2, stop=False).stop


# ---- random number generators


def draw() -> tuple[float, float, float]:
    return random.random(), float(numpy.random.rand()), float(torch.rand(()))


def test_restored_generators_draw_the_same_again() -> None:
    seed_everything(5)
    draw()
    numpy.random.normal()  # leaves a second number waiting
    states = get_states()
    expected = [draw() for _ in range(3)] + [float(numpy.random.normal())]
    set_states(states)
    assert [draw() for _ in range(3)] + [float(numpy.random.normal())] == expected
