"""Which checkpoints are kept: the documented example, its edge cases, and those in use."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.config.storages import Storage
from det_jupyter.contract.messages import CheckpointView
from det_jupyter.contract.values.direction import Direction
from det_jupyter.master.machine.rules.retention import select_kept

Bank = list[CheckpointView]
_NUMBERS = st.integers(min_value=0, max_value=4)
_METRICS = st.one_of(
    st.none(), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 0.5, 1.0]), st.floats(-9, 9)
)


def checkpoint(number: int, trial_id: int, metric: float | None) -> CheckpointView:
    return CheckpointView(
        uuid=str(number),
        experiment_id=1,
        trial_id=trial_id,
        steps_completed=10 * number,
        path=f"/checkpoints/{number}",
        size_bytes=1,
        created_at=100.0 + number,
        searcher_metric=metric,
    )


def keep(
    experiment_best: int, trial_best: int, trial_latest: int, smaller_is_better: bool = True
) -> tuple[Storage, Direction]:
    storage = Storage(
        save_experiment_best=experiment_best,
        save_trial_best=trial_best,
        save_trial_latest=trial_latest,
    )
    return storage, Direction.of(smaller_is_better=smaller_is_better)


DOCUMENTED: Bank = [
    checkpoint(1, 1, None),
    checkpoint(2, 1, None),
    checkpoint(3, 1, 0.6),
    checkpoint(4, 1, 0.5),
    checkpoint(5, 1, 0.4),
    checkpoint(6, 2, None),
    checkpoint(7, 2, 0.2),
    checkpoint(8, 2, 0.3),
    checkpoint(9, 2, None),
    checkpoint(10, 2, None),
]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ((0, 0, 0), set()),
        ((2, 0, 0), {8, 7}),
        ((5, 0, 0), {8, 7, 5, 4, 3}),
        ((99, 0, 0), {8, 7, 5, 4, 3}),
        ((0, 1, 0), {7, 5}),
        ((0, 3, 0), {8, 7, 5, 4, 3}),
        ((0, 99, 0), {8, 7, 5, 4, 3}),
        ((0, 0, 1), {10, 5}),
        ((0, 0, 3), {10, 9, 8, 5, 4, 3}),
        ((2, 1, 0), {8, 7, 5}),
        ((2, 0, 1), {10, 8, 7, 5}),
        ((0, 1, 1), {10, 7, 5}),
        ((2, 1, 1), {10, 8, 7, 5}),
    ],
)
def test_the_documented_table(policy: tuple[int, int, int], expected: set[int]) -> None:
    assert select_kept(DOCUMENTED, *keep(*policy)) == {str(number) for number in expected}


@pytest.mark.parametrize(
    ("policy", "deleted"),
    [
        ((0, 0, 0), {1, 2, 3, 4}),
        ((0, 0, 1), {1, 2, 3}),
        ((0, 1, 0), {2, 3, 4}),
        ((1, 0, 0), {2, 3, 4}),
        ((1, 1, 0), {2, 3, 4}),
        ((0, 1, 1), {2, 3}),
        ((1, 0, 1), {2, 3}),
        ((1, 1, 1), {2, 3}),
    ],
)
def test_one_trial_that_gets_worse(policy: tuple[int, int, int], deleted: set[int]) -> None:
    bank = [checkpoint(number, 1, float(number)) for number in range(1, 5)]
    left = {1, 2, 3, 4} - deleted
    assert select_kept(bank, *keep(*policy)) == {str(number) for number in left}


def test_larger_is_better_if_the_searcher_says_so() -> None:
    bank = [checkpoint(1, 1, 0.9), checkpoint(2, 1, 0.8)]
    assert select_kept(bank, *keep(1, 0, 0, smaller_is_better=False)) == {"1"}
    assert select_kept(bank, *keep(1, 0, 0)) == {"2"}


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_of_equally_good_ones_the_older_is_kept(smaller_is_better: bool) -> None:
    bank = [checkpoint(n, trial, 0.5) for n, trial in ((1, 2), (2, 1), (3, 1))]
    assert select_kept(bank, *keep(1, 0, 0, smaller_is_better=smaller_is_better)) == {"1"}
    assert select_kept(bank, *keep(0, 1, 0, smaller_is_better=smaller_is_better)) == {"1", "2"}


@pytest.mark.parametrize("smaller_is_better", [True, False])
@pytest.mark.parametrize("metric", [math.nan, math.inf, -math.inf, None])
def test_what_is_no_number_is_never_the_best(
    metric: float | None, smaller_is_better: bool
) -> None:
    bank = [checkpoint(1, 1, metric), checkpoint(2, 1, 7.0), checkpoint(3, 1, metric)]
    assert select_kept(bank, *keep(3, 3, 0, smaller_is_better=smaller_is_better)) == {"2"}


@given(
    st.lists(st.tuples(st.integers(1, 3), _METRICS), max_size=12),
    st.tuples(_NUMBERS, _NUMBERS, _NUMBERS),
    st.booleans(),
)
def test_no_more_is_kept_than_asked_for_and_more_numbers_never_keep_less(
    drawn: list[tuple[int, float | None]], numbers: tuple[int, int, int], smaller: bool
) -> None:
    bank = [checkpoint(n, trial_id, metric) for n, (trial_id, metric) in enumerate(drawn)]
    first, second, third = numbers
    found = select_kept(bank, *keep(*numbers, smaller_is_better=smaller))
    num_trials = len({one.trial_id for one in bank})
    assert len(found) <= first + num_trials * (second + third)
    assert found <= select_kept(bank, *keep(first + 1, second, third, smaller_is_better=smaller))
    assert found <= select_kept(bank, *keep(first, second + 1, third, smaller_is_better=smaller))
    assert found <= select_kept(bank, *keep(first, second, third + 1, smaller_is_better=smaller))
