"""One Direction says which value is better, for searches, checkpoints, views and trials."""

from __future__ import annotations

from math import inf, nan

import pytest

from det_jupyter.contract.values.direction import Direction


@pytest.mark.parametrize(
    ("smaller_is_better", "best", "order"),
    [(True, 0.25, [0.25, 0.5, 0.75]), (False, 0.75, [0.75, 0.5, 0.25])],
)
def test_the_best_value_comes_first(
    smaller_is_better: bool, best: float, order: list[float]
) -> None:
    direction = Direction.of(smaller_is_better=smaller_is_better)
    values = [0.5, nan, 0.25, None, inf, 0.75, -inf]
    assert direction.best(values) == best
    assert sorted(values, key=direction.loss)[:3] == order


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("nothing", [None, nan, inf, -inf, "NaN", "text", True])
def test_what_is_no_finite_number_is_worse_than_any_number_and_not_than_itself(
    direction: Direction, nothing: object
) -> None:
    assert direction.is_better(1e300 * -direction.sign, nothing)
    assert direction.is_better(1e300 * direction.sign, nothing)
    assert not direction.is_better(nothing, 1e300 * direction.sign)
    assert not direction.is_better(nothing, None)
    assert direction.best([nothing]) is None


def test_an_equal_value_is_no_better_one() -> None:
    assert not Direction.MINIMIZE.is_better(0.5, 0.5)
    assert Direction.MINIMIZE.is_better(0.4, 0.5)
    assert Direction.MAXIMIZE.is_better(0.6, 0.5)
