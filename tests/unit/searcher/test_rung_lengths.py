"""The lengths of rungs in checks of a configuration agree with those of its search."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.config import Length, parse_config
from det_jupyter.contract.schema.fields import as_number, as_whole
from det_jupyter.errors import ConfigError
from det_jupyter.searcher.adaptive_asha import AdaptiveAshaSearcher, _most_rungs
from det_jupyter.searcher.async_halving import AsyncHalvingSearcher
from det_jupyter.searcher.methods import SECTIONS
from det_jupyter.searcher.rung_lengths import (
    MAX_RUNGS,
    divisor_of,
    full_amount,
    most_rungs,
    rung_lengths,
)

NAN, INF = float("nan"), float("inf")
ADAPTIVE = {"name": "adaptive_asha", "time_metric": "batches", "max_trials": 16}
HALVING = {"name": "async_halving", "time_metric": "epochs", "max_trials": 16, "num_rungs": 3}


@pytest.mark.parametrize(
    ("value", "number", "whole"),
    [
        (3, 3, 3),
        (3.0, 3.0, 3),
        (2.5, 2.5, None),
        (0, 0, 0),
        (-1, -1, -1),
        (True, None, None),
        (NAN, None, None),
        (INF, None, None),
        ("3", None, None),
        (None, None, None),
    ],
)
def test_what_counts_as_a_number(value: Any, number: Any, whole: Any) -> None:
    assert (as_number(value), as_whole(value)) == (number, whole)


@pytest.mark.parametrize(
    ("searcher", "amount"),
    [
        ({"max_time": 1}, 1),
        ({"max_time": 9.0}, 9),
        ({"max_time": 0}, None),
        ({"max_time": 0, "max_length": 5}, None),  # what is given first is what counts
        ({"max_time": "9", "max_length": {"epochs": 5}}, 5),
        ({"max_length": 1}, 1),
        ({"max_length": {"epochs": 0}}, None),
        ({"max_length": "5"}, None),
        ({}, None),
    ],
)
def test_how_far_the_best_train(searcher: dict[str, Any], amount: int | None) -> None:
    assert full_amount(searcher) == amount


@pytest.mark.parametrize(
    ("given", "divisor"), [(1, None), (1.01, 1.01), (0, None), ("4", None), (NAN, None)]
)
def test_a_divisor_is_above_1(given: Any, divisor: float | None) -> None:
    assert divisor_of({"divisor": given}) == divisor
    assert divisor_of({}) == 4


@pytest.mark.parametrize(
    ("searcher", "rung"),
    [
        (ADAPTIVE | {"max_time": 1}, Length("batches", 1)),
        (ADAPTIVE | {"max_time": 2}, Length("batches", 2)),
        (ADAPTIVE | {"max_time": 937}, Length("batches", 58)),
        (ADAPTIVE | {"max_time": 937, "max_rungs": 1}, Length("batches", 937)),
        (ADAPTIVE | {"max_time": 937, "max_trials": 1}, Length("batches", 937)),
        (ADAPTIVE | {"max_time": 937, "bracket_rungs": [1]}, Length("batches", 937)),
        (ADAPTIVE | {"max_time": 937, "bracket_rungs": [1, 2]}, Length("batches", 234)),
        (HALVING | {"max_time": 1}, Length("epochs", 1)),
        (HALVING | {"max_time": 9, "divisor": 3}, Length("epochs", 1)),
        (HALVING | {"max_time": 9, "num_rungs": 1}, Length("epochs", 9)),
        # What a check refuses has none.
        (ADAPTIVE | {"max_time": 0}, None),
        (ADAPTIVE | {"max_time": 2.5}, None),
        (ADAPTIVE | {"max_time": 9, "divisor": 1}, None),
        (ADAPTIVE | {"max_time": 9, "max_rungs": 0}, None),
        (ADAPTIVE | {"max_time": 9, "max_trials": 0}, None),
        (ADAPTIVE | {"max_time": 9, "bracket_rungs": [0]}, None),
        (ADAPTIVE | {"max_time": 9, "bracket_rungs": ["a"]}, None),
        (HALVING | {"max_time": 9, "num_rungs": 0}, None),
        (HALVING | {"max_time": 9, "num_rungs": None}, None),
        # Nor has a search that is measured by something else.
        (ADAPTIVE | {"max_time": 9, "time_metric": "seconds"}, None),
        ({"name": "single", "max_length": 9}, None),
    ],
)
def test_the_lowest_rung(searcher: dict[str, Any], rung: Length | None) -> None:
    assert SECTIONS[searcher["name"]].lowest_rung(searcher) == rung


@pytest.mark.parametrize("searcher", [ADAPTIVE | {"max_time": 1}, HALVING | {"max_time": 1}])
def test_validations_meet_the_lowest_rung_also_of_the_shortest_search(
    searcher: dict[str, Any],
) -> None:
    if searcher["name"] == "async_halving":
        searcher = searcher | {"num_rungs": 1}
    document = {"entrypoint": "A", "searcher": {"metric": "loss", **searcher}}
    period = parse_config(document, default_seed=1).min_validation_period
    assert period == Length(searcher["time_metric"], 1)


sections = st.fixed_dictionaries(
    {
        "time_metric": st.sampled_from(["batches", "epochs"]),
        "max_time": st.integers(1, 100_000),
        "max_trials": st.integers(1, 2000),
    },
    optional={"divisor": st.sampled_from([1.5, 2, 3, 4, 10])},
)
adaptive = st.fixed_dictionaries(
    {"name": st.just("adaptive_asha")},
    optional={
        "max_rungs": st.integers(1, 8),
        "mode": st.sampled_from(["standard", "aggressive", "conservative"]),
    },
)
halving = st.fixed_dictionaries({"name": st.just("async_halving"), "num_rungs": st.integers(1, 6)})


@given(sections, st.one_of(adaptive, halving))
def test_the_lowest_rung_is_the_lowest_of_the_search_s_brackets(
    section: dict[str, Any], kind: dict[str, Any]
) -> None:
    given_searcher = {"metric": "loss", **section, **kind}
    try:
        config = parse_config({"entrypoint": "A", "searcher": given_searcher}, default_seed=1)
    except ConfigError:
        return  # more rungs than differ
    searcher = config.searcher
    assert isinstance(searcher, AdaptiveAshaSearcher | AsyncHalvingSearcher)
    lowest = min(
        rung_lengths(searcher.full, searcher.divisor, plan.num_rungs)[0]
        for plan in searcher.plan_brackets()
    )
    assert searcher.lowest_rung(given_searcher) == Length(section["time_metric"], lowest)


@given(st.integers(1, 10**9), st.floats(1.01, 1e6))
def test_no_more_rungs_are_offered_than_differ(amount: int, divisor: float) -> None:
    most = most_rungs(amount, divisor)
    assert 1 <= most <= MAX_RUNGS
    assert len(rung_lengths(amount, divisor, most)) == most
    if most < MAX_RUNGS and amount / divisor**most >= 1:  # one below 1 would be rounded up
        assert len(rung_lengths(amount, divisor, most + 1)) == most


@given(
    st.integers(1, 20), st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from([2, 3, 4])
)
def test_adaptive_brackets_are_bounded_by_all_three(
    max_rungs: int, full: int, max_trials: int, divisor: int
) -> None:
    found = _most_rungs(max_rungs, full, max_trials, divisor)
    assert 1 <= found <= max_rungs
    smaller = min(full, max_trials)
    assert divisor ** (found - 1) <= smaller * (1 + 1e-9)


@pytest.mark.parametrize(
    ("searcher", "num_rungs"),
    [
        ({"max_length": 1}, 1),
        ({"max_length": 4}, 2),
        ({"max_length": 1000}, 3),
        ({"max_length": 1000, "divisor": 900}, 2),
        ({}, 3),
        ({"max_length": 1000, "divisor": 1}, 3),
    ],
)
def test_how_many_rungs_a_search_by_optuna_has(searcher: dict[str, Any], num_rungs: int) -> None:
    assert SECTIONS["optuna"].computed_defaults(searcher).get("num_rungs") == num_rungs
