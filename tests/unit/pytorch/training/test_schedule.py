"""The boundaries of a run: reports, validations, checkpoints, and the end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.config import ExperimentConfig, Length, TrainingUnits, parse_config
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import Batch, Epoch, TrainUnit
from det_jupyter.pytorch.rules import RunRules
from det_jupyter.pytorch.training.schedule import (
    Schedule,
    is_due,
    next_due,
    training_units,
)


def config(**changes: Any) -> ExperimentConfig:
    document = {
        "entrypoint": "T",
        "hyperparameters": {"global_batch_size": 10},
        "searcher": {"name": "single", "metric": "m", "max_length": {"batches": 20}},
        **changes,
    }
    return parse_config(document, default_seed=0)


def rules(**changes: Any) -> RunRules:
    return RunRules.of(config(**changes), Length("batches", 20))


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
        RunRules.of(
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
    counted = rules(records_per_epoch=40)
    for batch_size, batches in ((10, 8), (None, 18)):  # an epoch of records needs a batch size
        units = training_units(counted, global_batch_size=batch_size, batches_per_pass=9)
        assert units.to_batches(Length("epochs", 2)) == batches
