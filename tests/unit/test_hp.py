"""Ranges of hyperparameters that are written in Python."""

from __future__ import annotations

import math
from typing import Any

import pytest

from det_jupyter import hp
from det_jupyter.config import notices
from det_jupyter.contract.schema.hyperparameters import find_problems, sample_hparams
from det_jupyter.contract.schema.seeds import make_generator
from det_jupyter.errors import UsageError
from det_jupyter.searcher.grid import axis_values

SEARCH = {"searcher": {"name": "random", "metric": "loss", "max_length": 1, "max_trials": 2}}


def test_ranges_are_those_of_a_configuration() -> None:
    log = {"type": "log", "base": 10, "minval": -5, "maxval": -1, "count": 3}
    assert hp.log(1e-5, 1e-1, count=3) == log
    assert hp.double(0, 0.5) == {"type": "double", "minval": 0, "maxval": 0.5}
    assert hp.int(2, 8, 4) == {"type": "int", "minval": 2, "maxval": 8, "count": 4}


@pytest.mark.parametrize("ends", [(1e-5, 1e-1), (0.5, 2), (1, 10), (1.05, 8), (3, 500), (20, 90)])
def test_a_log_is_between_its_ends_and_is_no_probable_mistake(ends: tuple[float, float]) -> None:
    space = {"lr": hp.log(*ends, count=3)}
    first, middle, last = axis_values(space["lr"])
    assert [first, last] == pytest.approx(ends)
    assert middle == pytest.approx(math.sqrt(ends[0] * ends[1]))
    assert ends[0] <= sample_hparams(space, make_generator(1))["lr"] <= ends[1]
    assert not list(find_problems(space))
    assert not notices(SEARCH | {"hyperparameters": space})


@pytest.mark.parametrize(
    ("make", "ends", "problem"),
    [
        (
            hp.log,
            (0, 1),
            "hp.log: got 0 and 1, expected two numbers above 0, the smaller one first",
        ),
        (hp.log, ("1e-5", 1), "hp.log: got '1e-5' and 1, expected two numbers above 0"),
        (hp.double, (1, 1), "hp.double: got 1 and 1, expected two numbers, the smaller one first"),
        (hp.double, (math.nan, 1), "hp.double: got nan and 1, expected two numbers"),
        (hp.int, (8, 2), "hp.int: got 8 and 2, expected two numbers, the smaller one first"),
    ],
)
def test_ends_that_are_no_range_are_refused(make: Any, ends: Any, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        make(*ends)
    assert str(refused.value).startswith(problem)
