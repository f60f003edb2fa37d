"""Requests made from a user's values: each problem is one line that names the argument."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any

import pytest

from det_jupyter.client.requests import make_request, to_moment
from det_jupyter.contract.messages import ChangeSearch, ContinueTrial, SetTemplate, Wire
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError
from tests.problems import said

A_LENGTH = "expected a length such as {'epochs': 12}, or a number of batches"


@pytest.mark.parametrize(
    ("kind", "given", "problems"),
    [
        (ChangeSearch, {"max_trials": 8.5, "max_length": "x"},
         ["max_trials: got 8.5, expected a whole number", f"max_length: got 'x', {A_LENGTH}"]),
        (ChangeSearch, {"max_trials": "8"}, ["max_trials: got '8', expected a whole number"]),
        (ChangeSearch, {"hyperparameters": 5},
         ["hyperparameters: got 5, expected a mapping of names to ranges or values"]),
        (ContinueTrial, {"length": True}, [f"length: got True, {A_LENGTH}"]),
        (SetTemplate, {"config": [1]}, ["config: got [1], expected a mapping of names to values"]),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_named(
    kind: type[Wire], given: dict[str, Any], problems: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        make_request(kind, **({"experiment_id": 3} if kind is ChangeSearch else {}), **given)
    assert said(caught.value.problems) == problems


@pytest.mark.parametrize("value", [math.nan, object()])
def test_what_json_has_no_word_for_cannot_be_sent(value: Any) -> None:
    with pytest.raises(ConfigError, match="hyperparameters: cannot be sent"):
        make_request(ChangeSearch, experiment_id=3, hyperparameters={"lr": value})


def test_what_is_right_is_passed_on() -> None:
    new = {"lr": 0.1}
    request = make_request(
        ChangeSearch, experiment_id=3, max_length={"epochs": 3}, hyperparameters=new
    )
    longer = Length("epochs", 3)
    assert request == ChangeSearch(experiment_id=3, max_length=longer, hyperparameters=new)


NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("when", "begin", "end"),
    [
        (None, None, None),
        (5, 5.0, 5.0),
        (0.5, 0.5, 0.5),
        ("30s", NOW - 30, NOW - 30),
        (" 10m ", NOW - 600, NOW - 600),
        ("10 min", NOW - 600, NOW - 600),
        ("1.5h", NOW - 5400, NOW - 5400),
        ("2d", NOW - 172_800, NOW - 172_800),
        ("1w", NOW - 604_800, NOW - 604_800),
        ("2026-01-31", datetime(2026, 1, 31).timestamp(), datetime(2026, 2, 1).timestamp()),
        (date(2026, 12, 31), datetime(2026, 12, 31).timestamp(), datetime(2027, 1, 1).timestamp()),
        (date.max, datetime(9999, 12, 31).timestamp(), datetime(9999, 12, 31).timestamp()),
        ("2026-01-31 14:00", *[datetime(2026, 1, 31, 14).timestamp()] * 2),
        (datetime(2026, 1, 31, 14), *[datetime(2026, 1, 31, 14).timestamp()] * 2),
    ],
)
def test_a_moment_is_a_date_a_time_or_an_age(
    when: Any, begin: float | None, end: float | None
) -> None:
    assert to_moment("since", when, NOW) == begin
    assert to_moment("until", when, NOW, is_end=True) == end


@pytest.mark.parametrize("when", ["soon", True, [1], "2026-13-01", "10 years"])
def test_what_is_no_moment_is_refused_by_the_name_of_the_argument(when: Any) -> None:
    with pytest.raises(ConfigError, match=r"^since: got .*, expected a date such as 2026-01-31"):
        to_moment("since", when, NOW)
