"""What is just within a limit is read, and what is just beyond it is told."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import json_values, parse_config, parse_yaml, yaml_reader
from det_jupyter.config.json_values import find_bounds_problem
from det_jupyter.config.migrate import migrate
from det_jupyter.config.problems import _suggestion
from det_jupyter.contract.schema.hyperparameters import find_problems
from det_jupyter.contract.schema.key_paths import format_value
from det_jupyter.errors import ConfigError
from tests.problems import said

CONFIG: dict[str, Any] = {
    "name": "x",
    "entrypoint": "m:T",
    "reproducibility": {"experiment_seed": 1},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 5}},
}


def problems_of(*, default_seed: int | None = None, **changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(CONFIG | changes, default_seed=default_seed)
    return said(caught.value.problems)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a" * 8, "'aaaaaaaa'"),
        ("a" * 9, "'aaaaaa..."),
        ([1, 2], "[1, 2]"),
        (None, "null"),
        (True, "true"),
        ({1}, "a set"),
    ],
)
def test_a_value_that_is_too_long_for_a_message_is_cut(value: Any, expected: str) -> None:
    assert format_value(value, longest=10) == expected


@pytest.mark.parametrize(
    ("document", "fits"),
    [
        ({"a": 1, "b": 2, "c": 3, "d": 4}, True),
        ({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, False),
        ({"a": 1, "b": {"c": 1, "d": 1}}, True),
        ({"a": 1, "b": {"c": [1, 2]}}, False),
        ({"a": [1, [2]]}, True),
        ({"a": [1, [2, 3]]}, False),
    ],
)
def test_values_are_counted_on_all_levels(
    document: Any, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_values, "MAX_VALUES", 4)
    expected = None if fits else "the configuration is too large; expected at most 4 values"
    found = find_bounds_problem(document)
    assert (found and found.text) == expected


def test_as_many_values_as_there_may_be_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "MAX_VALUES", 4)  # the whole is one of them
    assert parse_yaml("a: 1\nb: 2\nc: 3") == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(ConfigError, match=r"line 4: the value that begins here is too large"):
        parse_yaml("a: 1\nb: 2\nc: 3\nd: 4")


def test_few_names_are_listed_and_many_are_not() -> None:
    names = [f"q{letter}" for letter in "abcdefghijklmnopq"]
    assert _suggestion("xyzzy", (), names[:16])[0] == f"expected one of {', '.join(names[:16])}"
    assert _suggestion("xyzzy", (), names) == ("remove it", "")


@pytest.mark.parametrize(("length", "told"), [(40, "x" * 40), (41, "x" * 37 + "...")])
def test_a_long_line_that_is_no_yaml_is_cut(length: int, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(f"name: a\n{'x' * length}\nlabels: [b]\n")
    assert (
        f"this is not YAML: got {told!r}, expected `key: value`" in said(caught.value.problems)[0]
    )


def test_a_searcher_of_an_unknown_name_is_checked_all_the_same() -> None:
    searcher = {"name": "nope", "metric": "l", "max_length": {"batches": "x"}, "max_trials": 0}
    length, trials, name = problems_of(searcher=searcher)
    assert length.startswith("searcher.max_length: got {'batches': 'x'}, expected exactly one of")
    assert trials == "searcher.max_trials: got 0, expected at least 1"
    assert name.startswith("searcher.name: got 'nope', expected one of single, random, grid,")


def test_two_sources_of_a_searcher_without_a_name_are_told() -> None:
    sources = {"source_trial_id": 1, "source_checkpoint_uuid": "x"}
    assert problems_of(searcher=sources)[0] == (
        "searcher.source_checkpoint_uuid: searcher.source_trial_id is given too; expected one of "
        "them"
    )


def test_a_default_seed_is_filled_into_a_mapping_only() -> None:
    wrong = "reproducibility: got 5, expected a mapping (`key: value` lines)"
    assert problems_of(reproducibility=5, default_seed=1) == [wrong]
    assert problems_of(reproducibility={}) == [
        "reproducibility.experiment_seed: missing; a whole number from 0 to 2147483647"
    ]
    config = parse_config(CONFIG | {"reproducibility": {}}, default_seed=7)
    assert config.reproducibility.experiment_seed == 7


@pytest.mark.parametrize(("steps", "read"), [(0, {"batches": 0}), (1, {"batches": 9}), (-1, -1)])
def test_periods_in_steps_are_read_from_none_upward(steps: int, read: Any) -> None:
    found, _, _ = migrate({"min_validation_period": steps, "batches_per_step": 9})
    assert found["min_validation_period"] == read


def test_every_hyperparameter_is_checked() -> None:
    found = find_problems({"a": 1, "b": {"type": "nope"}, "c": 2, "d": {"e": {"type": 3}}})
    assert [problem.partition(",")[0] for problem in said(found)] == [
        "hyperparameters.b.type: got 'nope'",
        "hyperparameters.d.e.type: got 3",
    ]


def test_a_search_that_is_no_more_is_rewritten_with_its_switches() -> None:
    searcher = {"name": "pbt", "metric": "l", "smaller_is_better": False}
    (problem,) = problems_of(searcher=searcher)
    assert "{name: adaptive_asha, metric: l, smaller_is_better: false, max_trials:" in problem
