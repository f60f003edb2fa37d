"""Files of Determined before 0.13: what they count in steps is told in batches."""

from __future__ import annotations

import re
from typing import Any

import pytest

from det_jupyter.config import check_sanity, parse_config, parse_yaml
from det_jupyter.errors import ConfigError

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
    return caught.value.problems


def searcher_problems(searcher: str, rest: str = "") -> list[str]:
    return problems_of(f"entrypoint: A\nsearcher: {searcher}\n{rest}")


def test_every_value_in_steps_is_told_in_batches_one_line_for_each() -> None:
    in_steps = "in steps of 500 batches (batches_per_step); write"
    assert problems_of(OLD) == [
        "batches_per_step: there are no steps any more; write scheduling_unit: 500",
        f"min_checkpoint_period: got 4, {in_steps} {{batches: 2000}}",
        f"min_validation_period: got 2, {in_steps} {{batches: 1000}}",
        f"searcher.max_steps: got 20, {in_steps} max_length: {{batches: 10000}}",
    ]


def test_what_the_lines_say_to_write_is_accepted() -> None:
    new = OLD
    for problem in problems_of(OLD):
        path, _, remedy = problem.partition(": ")
        key, written = path.rpartition(".")[2], remedy.partition("; write ")[2]
        entry = written if not written.startswith("{") else f"{key}: {written}"
        new = re.sub(rf"{key}: \d+", entry, new)
    config = parse_config(parse_yaml(new), default_seed=1)
    assert config.scheduling_unit == 500
    assert str(config.searcher.max_length) == "10000 batches"
    assert str(config.min_validation_period) == "1000 batches"
    assert str(config.min_checkpoint_period) == "2000 batches"


@pytest.mark.parametrize(
    ("rest", "batches"),
    [("", 1000), ("batches_per_step: 7", 70), ("scheduling_unit: 50", 500),
     ("batches_per_step: null", 1000), ("batches_per_step: none", 1000)],
)  # fmt: skip
def test_a_step_is_as_long_as_the_file_says_or_100_batches(rest: str, batches: int) -> None:
    found = searcher_problems("{name: single, metric: e, target_trial_steps: 10}", rest)
    assert found[-1].endswith(f"; write max_length: {{batches: {batches}}}")


@pytest.mark.parametrize(
    ("searcher", "replacement"),
    [
        ("{name: adaptive_simple, metric: e, max_steps: 8, max_trials: 9}",
         "{name: adaptive_asha, metric: e, max_trials: 9, max_length: {batches: 800}}"),
        ("{name: adaptive, metric: e, target_trial_steps: 10, step_budget: 640, max_rungs: 3}",
         "{name: adaptive_asha, metric: e, max_trials: 274, max_length: {batches: 1000}, "
         "max_rungs: 3} (about as many trials as the budget paid for)"),
        ("{name: sync_halving, metric: e, num_rungs: 4, target_trial_steps: 800, "
         "step_budget: 480}",
         "{name: async_halving, metric: e, num_rungs: 4, max_trials: 11, "
         "max_length: {batches: 80000}} (about as many trials as the budget paid for)"),
        ("{name: pbt, metric: e, population_size: 12, num_rounds: 5, steps_per_round: 2}",
         "{name: adaptive_asha, metric: e, max_trials: 12, max_length: {batches: 1000}}"),
    ],
)  # fmt: skip
def test_what_replaces_a_searcher_of_old_counts_batches(searcher: str, replacement: str) -> None:
    name = parse_yaml(f"a: {searcher}")["a"]["name"]
    assert searcher_problems(searcher) == [
        f"searcher.name: {name} is no more; write searcher: {replacement}"
    ]


@pytest.mark.parametrize(
    ("rest", "end"),
    [
        ("records_per_epoch: 1000\nhyperparameters: {global_batch_size: 10}",
         "max_trials: 102, max_length: {epochs: 10}} (about as many trials as the budget paid "
         "for)"),
        ("", "max_trials: 16, max_length: {epochs: 10}} (how many trials is yours to say: nothing "
             "tells how many the budget paid for)"),
    ],
)  # fmt: skip
def test_a_budget_in_another_unit_is_converted_if_the_file_says_how(rest: str, end: str) -> None:
    searcher = "{name: adaptive, metric: e, max_length: {epochs: 10}, budget: {batches: 64000}}"
    (problem,) = searcher_problems(searcher, rest)
    assert problem.endswith(end)


def test_a_bare_number_counts_batches_where_nothing_counts_steps() -> None:
    document = parse_yaml(
        "entrypoint: A\nsearcher: {name: single, metric: e, max_length: 50}\n"
        "min_validation_period: 5"
    )
    config = parse_config(document, default_seed=1)
    assert str(config.min_validation_period) == "5 batches"


def test_a_bare_length_in_a_file_of_steps_is_asked_about() -> None:
    found = searcher_problems("{name: single, metric: e, max_length: 50}", "batches_per_step: 10")
    assert found[1] == (
        "searcher.max_length: got 50 in a file that counts in steps; write {batches: 50}, or "
        "{batches: 500} if it counts steps"
    )


def test_what_was_replaced_already_is_only_to_be_removed() -> None:
    assert searcher_problems(
        "{name: single, metric: e, max_length: {batches: 5}, max_steps: 5}",
        "batches_per_step: 10\nscheduling_unit: 20",
    ) == [
        "batches_per_step: scheduling_unit has its place; remove it",
        "searcher.max_steps: searcher.max_length has its place; remove it",
    ]


@pytest.mark.parametrize(
    ("part", "problems"),
    [
        ({"searcher": {"max_steps": 3}},
         ["searcher.max_steps: got 3, in steps of 100 batches (batches_per_step is not given); "
          "write max_length: {batches: 300}"]),
        ({"min_validation_period": 3}, []),
        ({"searcher": {"max_steps": "x"}},
         ["searcher.max_steps: got 'x', in steps of 100 batches (batches_per_step is not given); "
          "write max_length: {batches: ...}"]),
    ],
)  # fmt: skip
def test_a_template_may_count_in_steps_too(part: dict[str, Any], problems: list[str]) -> None:
    assert check_sanity(part) == problems
