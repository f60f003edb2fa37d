"""Files of Determined before 0.13: what they count in steps is read in batches."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import check_sanity, notices, origins, parse_config, parse_yaml
from det_jupyter.errors import ConfigError
from tests.problems import said

OLD = """
description: mnist
batches_per_step: 500
min_validation_period: 2
min_checkpoint_period: 4
searcher: {name: single, metric: error, max_steps: 20}
entrypoint: MNistTrial
"""


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(parse_yaml(text), default_seed=1)
    return said(caught.value.problems)


def searcher_problems(searcher: str, rest: str = "") -> list[str]:
    return problems_of(f"entrypoint: A\nsearcher: {searcher}\n{rest}")


def test_every_value_in_steps_is_read_in_batches() -> None:
    config = parse_config(parse_yaml(OLD), default_seed=1)
    assert config.scheduling_unit == 500
    assert str(config.searcher.max_length) == "10000 batches"
    assert str(config.min_validation_period) == "1000 batches"
    assert str(config.min_checkpoint_period) == "2000 batches"
    assert parse_config(config.to_document()) == config
    assert notices(config.to_document()) == []


def test_each_of_them_gets_a_notice() -> None:
    of_steps = "steps of 500 batches (batches_per_step), read as"
    assert notices(parse_yaml(OLD)) == [
        "batches_per_step: read as scheduling_unit: 500.",
        f"min_checkpoint_period: 4 {of_steps} {{batches: 2000}}.",
        f"min_validation_period: 2 {of_steps} {{batches: 1000}}.",
        f"searcher.max_steps: 20 {of_steps} max_length: {{batches: 10000}}.",
    ]


@pytest.mark.parametrize(
    ("rest", "batches"),
    [("", 1000), ("batches_per_step: 7", 70), ("scheduling_unit: 50", 500),
     ("batches_per_step: null", 1000), ("batches_per_step: 7\nscheduling_unit: 50", 70)],
)  # fmt: skip
def test_a_step_is_as_long_as_the_file_says_or_100_batches(rest: str, batches: int) -> None:
    searcher = "{name: single, metric: e, target_trial_steps: 10}"
    document = parse_yaml(f"entrypoint: A\nsearcher: {searcher}\n{rest}")
    config = parse_config(document, default_seed=1)
    assert str(config.searcher.max_length) == f"{batches} batches"


def test_what_is_no_number_of_steps_is_told_with_what_to_write() -> None:
    found = searcher_problems("{name: single, metric: e, max_steps: x}", "batches_per_step: 0")
    assert found == [
        "batches_per_step: got 0, expected a whole number above 0; write scheduling_unit: 100",
        "searcher.max_steps: got 'x', expected a whole number above 0; write max_length: "
        "{batches: ...}",
    ]


@pytest.mark.parametrize(
    ("searcher", "replacement"),
    [
        ("{name: adaptive, metric: e, target_trial_steps: 10, step_budget: 640, max_rungs: 3}",
         "{name: adaptive_asha, metric: e, max_rungs: 3, max_trials: 16, "
         "max_length: {batches: 1000}} (choose the number of trials: the budget was one of "
         "training)"),
        ("{name: pbt, metric: e, population_size: 12, num_rounds: 5, steps_per_round: 2}",
         "{name: adaptive_asha, metric: e, max_trials: 12, max_length: {batches: 1000}}"),
    ],
)  # fmt: skip
def test_what_replaces_a_searcher_of_old_counts_batches(searcher: str, replacement: str) -> None:
    name = parse_yaml(f"a: {searcher}")["a"]["name"]
    assert searcher_problems(searcher) == [
        f"searcher.name: {name} no longer exists; write searcher: {replacement}"
    ]


def test_a_bare_number_counts_batches_where_nothing_counts_steps() -> None:
    document = parse_yaml(
        "entrypoint: A\nsearcher: {name: single, metric: e, max_length: 50}\n"
        "min_validation_period: 5"
    )
    config = parse_config(document, default_seed=1)
    assert str(config.min_validation_period) == "5 batches"


def test_a_bare_length_in_a_file_of_steps_counts_steps() -> None:
    document = parse_yaml(
        "entrypoint: A\nsearcher: {name: single, metric: e, max_length: 50}\nbatches_per_step: 10"
    )
    assert str(parse_config(document, default_seed=1).searcher.max_length) == "500 batches"
    assert notices(document)[1] == (
        "searcher.max_length: 50 steps of 10 batches (batches_per_step), read as {batches: 500}; "
        "for as many batches write {batches: 50}."
    )


def test_what_was_replaced_already_has_no_effect() -> None:
    document = parse_yaml(
        "entrypoint: A\nbatches_per_step: 10\nscheduling_unit: 20\n"
        "searcher: {name: single, metric: e, max_length: {batches: 5}, max_steps: 5}"
    )
    config = parse_config(document, default_seed=1)
    assert (config.scheduling_unit, str(config.searcher.max_length)) == (20, "5 batches")
    assert notices(document) == [
        "batches_per_step: ignored but as the length of a step: scheduling_unit is given.",
        "searcher.max_steps: ignored: searcher.max_length is given.",
    ]


@pytest.mark.parametrize(
    ("template", "document", "read"),
    [
        ({"batches_per_step": 50, "min_validation_period": 2}, {"searcher": {"max_steps": 3}},
         ("150 batches", "100 batches", 50)),
        ({"searcher": {"max_steps": 3}}, {"batches_per_step": 7, "min_validation_period": 1},
         ("21 batches", "7 batches", 7)),
        ({"searcher": {"max_length": {"epochs": 3}}}, {"searcher": {"max_steps": 3}},
         ("300 batches", "0 batches", 100)),
        ({"searcher": {"max_steps": 3}, "batches_per_step": 5},
         {"searcher": {"max_length": {"epochs": 3}}, "scheduling_unit": 9},
         ("3 epochs", "1 epochs", 9)),
    ],
)  # fmt: skip
def test_a_configuration_and_its_template_may_count_in_steps(
    template: dict[str, Any], document: dict[str, Any], read: tuple[str, str, int]
) -> None:
    searcher = {"name": "single", "metric": "e"} | document.pop("searcher", {})
    whole = {"entrypoint": "A", "searcher": searcher} | document
    assert check_sanity(template) == []
    config = parse_config(whole, default_seed=1, template=template)
    found = (config.searcher.max_length, config.min_validation_period)
    assert (*map(str, found), config.scheduling_unit) == read


def test_what_was_read_in_batches_is_the_user_s_all_the_same() -> None:
    user, template = parse_yaml(OLD), {"max_restarts": 1, "min_checkpoint_period": 3}
    effective = parse_config(user, default_seed=1, template=template).to_document()
    found = origins(user, template, effective)
    paths = ("scheduling_unit", "searcher.max_length.batches", "min_checkpoint_period.batches")
    assert [found[path] for path in paths] == ["you", "you", "you"]


def test_the_successor_of_adaptive_simple_has_its_place() -> None:
    document = parse_yaml(
        "entrypoint: A\nsearcher: {name: adaptive_simple, metric: e, max_steps: 8, max_trials: 1}"
    )
    config = parse_config(document, default_seed=1)
    assert (config.searcher.name, str(config.searcher.max_length)) == (
        "adaptive_asha", "800 batches",
    )  # fmt: skip
    assert notices(document)[1] == (
        "searcher.name: adaptive_simple no longer exists; read as adaptive_asha instead."
    )
