"""The searcher section: what each needs, what replaces those that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import Length, check_sanity, parse_config, parse_yaml
from det_jupyter.errors import ConfigError
from det_jupyter.searcher.methods import SECTIONS
from det_jupyter.searcher.rung_lengths import most_rungs
from tests.problems import said

NAMES = ", ".join(SECTIONS)
ASHA = {"name": "adaptive_asha", "metric": "loss", "max_trials": 9}


def parse(searcher: dict[str, Any], **changes: Any) -> Any:
    document = {"entrypoint": "MyTrial", "searcher": {"metric": "loss"} | searcher}
    return parse_config(document | changes, default_seed=1)


def problems_of(searcher: dict[str, Any], **changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(searcher, **changes)
    return said(caught.value.problems)


@pytest.mark.parametrize(
    ("searcher", "problems"),
    [
        ({"name": "random", "max_length": 5},
         ["searcher.max_trials: missing; give the number of trials (searcher.name: "
          "random)"]),
        ({"name": "random", "max_length": 5, "max_trials": 0},
         ["searcher.max_trials: got 0, expected at least 1"]),
        ({"name": "async_halving", "max_trials": 3, "max_length": 9},
         ["searcher.num_rungs: missing; say at how many lengths trials are compared, such as 3 "
          "(searcher.name: async_halving)"]),
        (ASHA | {"max_length": 9, "divisor": 1},
         ["searcher.divisor: got 1, expected a number above 1"]),
        (ASHA | {"max_length": 9, "mode": "fast"},
         ["searcher.mode: got 'fast', expected standard, aggressive or conservative"]),
        (ASHA, ["searcher.max_length: missing; say how long to train, such as {epochs: 6} "
                "(searcher.name: adaptive_asha)"]),
        (ASHA | {"max_time": 9},
         ["searcher.time_metric: missing; searcher.max_time (9) is counted in it"]),
        (ASHA | {"time_metric": "batches"},
         ["searcher.max_time: missing; say where searcher.time_metric ('batches') ends"]),
        (ASHA | {"time_metric": "seconds", "max_time": 9},
         ["searcher.max_length: missing; training has to end somewhere, whatever 'seconds' comes "
          "to"]),
        (ASHA | {"max_length": 9, "bracket_rungs": [2, 3, 0]},
         ["searcher.bracket_rungs[1]: got 3, expected at most 2: with a length of 9 and divisor "
          "4, more rungs would not differ",
          "searcher.bracket_rungs[2]: got 0, expected at least 1"]),
        ({"name": "async_halving", "max_trials": 3, "max_length": {"epochs": 10}, "num_rungs": 5},
         ["searcher.num_rungs: got 5, expected at most 2: with a length of 10 and divisor 4, more "
          "rungs would not differ"]),
        ({"name": "single", "max_length": 0},
         ["searcher.max_length: got 0, expected more than 0"]),
        ({"name": "single", "max_length": 5, "divisor": 3},
         ["searcher.divisor: single does not have it; async_halving, adaptive_asha and optuna "
          "have"]),
        ({"name": "random", "max_length": 5, "max_trails": 3},
         ["searcher.max_trails: unknown key; did you mean max_trials?"]),
        ({"name": "single", "target_trial_steps": -5},
         ["searcher.target_trial_steps: got -5, expected a whole number above 0; write "
          "max_length: {batches: ...}"]),
        ({"name": "singel", "max_length": -1},
         ["searcher.max_length: got -1, expected exactly one of \"batches\", \"records\" or "
          "\"epochs\" with a whole number that is not negative, such as {epochs: 6}",
          f"searcher.name: got 'singel', expected one of {NAMES}"
          "; did you mean single?"]),
        (ASHA | {"time_metric": "batches", "max_time": 9, "max_rungs": 0},
         ["searcher.max_rungs: got 0, expected at least 1"]),
        (ASHA | {"time_metric": "batches", "max_time": 9, "bracket_rungs": [0]},
         ["searcher.bracket_rungs[0]: got 0, expected at least 1"]),
        ({"name": "optuna", "max_trials": 3, "max_length": 0, "num_rungs": 5},
         ["searcher.max_length: got 0, expected more than 0"]),
        ({"name": "optuna", "max_trials": 3, "max_length": "5"},
         ["searcher.max_length: got '5', expected exactly one of \"batches\", \"records\" or "
          "\"epochs\" with a whole number that is not negative, such as {epochs: 6}"]),
        ({"max_length": 5},
         [f"searcher.name: missing; expected one of {NAMES}"]),
        ({"name": "single", "max_length": 5, "source_trial_id": 1, "source_checkpoint_uuid": "a"},
         ["searcher.source_checkpoint_uuid: searcher.source_trial_id is given too; expected one "
          "of them"]),
        ({"name": "single", "max_length": 5, "metric": 3},
         ['searcher.metric: got 3, expected text; write "3"']),
        ({"name": ["single"], "max_length": 5},
         [f"searcher.name: got ['single'], expected one of {NAMES}"]),
    ],
)  # fmt: skip
def test_a_searcher_says_what_is_wrong_without_its_kind_in_the_path(
    searcher: dict[str, Any], problems: list[str]
) -> None:
    assert problems_of(searcher) == problems


def test_a_searcher_has_to_be_a_mapping() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"entrypoint": "A", "searcher": "random"}, default_seed=1)
    assert said(caught.value.problems) == [
        "searcher: got 'random', expected a mapping (`key: value` lines)"
    ]


def test_a_grid_needs_the_number_of_values_everywhere() -> None:
    hparams = {
        "a": {"type": "int", "minval": 1, "maxval": 3, "count": 2},
        "b": {"type": "double", "minval": 1, "maxval": 3},
        "c": {"d": {"type": "log", "base": 10, "minval": 1, "maxval": 3}},
        "e": [[{"f": {"type": "int", "minval": 1, "maxval": 3}}], {"type": "const", "val": 1}],
    }
    assert problems_of({"name": "grid", "max_length": 5}, hyperparameters=hparams) == [
        "hyperparameters.b.count: missing; searcher grid needs the number of its values",
        "hyperparameters.c.d.count: missing; searcher grid needs the number of its values",
        "hyperparameters.e[0][0].f.count: missing; searcher grid needs the number of its values",
    ]


def test_a_grid_of_too_many_points_is_refused_with_its_size() -> None:
    hparams = {
        "a": {"type": "double", "minval": 0, "maxval": 1, "count": 1000},
        "b": {"c": {"type": "int", "minval": 1, "maxval": 500, "count": 9999}},
        "d": {"type": "categorical", "vals": [1, 2]},
    }
    assert problems_of({"name": "grid", "max_length": 5}, hyperparameters=hparams) == [
        "hyperparameters: the grid has 1,000,000 points, expected at most 100,000; lower the "
        "counts, or use searcher random"
    ]


@pytest.mark.parametrize(
    ("amount", "divisor", "rungs"),
    [(1, 4, 1), (3, 4, 1), (4, 4, 2), (10, 4, 2), (900, 3, 7), (9, 3, 3), (5, 1.1, 2),
     (2**53, 2, 54), (2**53, 1.0000001, 1000), (7, 1e300, 1)],
)  # fmt: skip
def test_so_many_rungs_differ_in_length(amount: int, divisor: float, rungs: int) -> None:
    assert most_rungs(amount, divisor) == rungs


@pytest.mark.parametrize(
    ("searcher", "period"),
    [
        ({"name": "async_halving", "num_rungs": 3, "max_trials": 9, "divisor": 3,
          "time_metric": "batches", "max_time": 900}, Length("batches", 100)),
        (ASHA | {"time_metric": "epochs", "max_time": 9, "divisor": 3}, Length("epochs", 1)),
        (ASHA | {"time_metric": "records", "max_time": 900, "divisor": 3, "max_rungs": 2},
         Length("records", 300)),
        (ASHA | {"time_metric": "batches", "max_time": 90, "divisor": 3, "bracket_rungs": [2, 3]},
         Length("batches", 10)),
        (ASHA | {"time_metric": "seconds", "max_time": 90, "max_length": {"epochs": 4}},
         Length("epochs", 1)),
        (ASHA | {"max_length": {"epochs": 4}}, Length("epochs", 1)),
        (ASHA | {"max_length": {"records": 400}}, Length("batches", 0)),
    ],
)  # fmt: skip
def test_trials_validate_where_the_rungs_are(searcher: dict[str, Any], period: Length) -> None:
    hparams = {"global_batch_size": 4}
    assert parse(searcher, hyperparameters=hparams).min_validation_period == period


def test_optuna_has_no_more_rungs_than_differ_unless_asked_for() -> None:
    searcher = {"name": "optuna", "max_trials": 4, "max_length": {"epochs": 5}}
    config = parse(searcher)
    assert config.searcher.num_rungs == 2
    assert parse_config(config.to_document()) == config
    assert parse(searcher | {"max_length": 5000}).searcher.num_rungs == 3
    (problem,) = problems_of(searcher | {"num_rungs": 3})
    assert problem.startswith("searcher.num_rungs: got 3, expected at most 2")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{name: sync_halving, metric: acc, num_rungs: 4, max_length: {batches: 80000}, "
         "budget: {batches: 48000}, train_stragglers: true}",
         "{name: async_halving, metric: acc, max_trials: 16, max_length: {batches: 80000}, "
         "num_rungs: 4} (choose the number of trials: the budget was one of training)"),
        ("{name: sync_halving, metric: acc, num_rungs: 9, max_length: {batches: 16}, divisor: 4}",
         "{name: async_halving, metric: acc, divisor: 4, max_trials: 16, "
         "max_length: {batches: 16}, num_rungs: 3} (choose the number of trials: the budget was "
         "one of training)"),
        ("{name: adaptive, metric: acc, max_length: {batches: 1000}, budget: {batches: 64000}, "
         "max_rungs: 3}",
         "{name: adaptive_asha, metric: acc, max_rungs: 3, max_trials: 16, "
         "max_length: {batches: 1000}} (choose the number of trials: the budget was one of "
         "training)"),
        ("{name: pbt, metric: acc, population_size: 12, num_rounds: 5, "
         "length_per_round: {epochs: 2}, replace_function: {truncate_fraction: 0.2}}",
         "{name: adaptive_asha, metric: acc, max_trials: 12, max_length: {epochs: 10}}"),
        ("{name: custom, metric: acc, unit: epochs}",
         "{name: optuna, metric: acc, max_trials: 16, max_length: {epochs: 1}} with numbers of "
         "your own, and the sampler that you want"),
    ],
)  # fmt: skip
def test_a_searcher_of_old_is_refused_with_what_replaces_it(old: str, new: str) -> None:
    document = parse_yaml(f"entrypoint: A\nsearcher: {old}")
    name = document["searcher"]["name"]
    with pytest.raises(ConfigError) as caught:
        parse_config(document, default_seed=1)
    assert said(caught.value.problems) == [
        f"searcher.name: {name} no longer exists; write searcher: {new}"
    ]
    written = new[: new.rindex("}") + 1]
    parse_config(parse_yaml(f"entrypoint: A\nsearcher: {written}"), default_seed=1)


@pytest.mark.parametrize(
    "part",
    [
        {"searcher": {"metric": "a"}},
        {"searcher": {"name": "random"}},
        {"searcher": {"max_length": {"epochs": 3}, "max_rungs": 3}},
        {"searcher": {"name": "adaptive_asha", "time_metric": "batches"}},
        {"checkpoint_storage": {"host_path": "/a"}},
        {"resources": {"slots_per_trial": 4}},
        {"workspace": "a"},
        {},
        {"hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
         "searcher": {"name": "grid"}},
    ],
)  # fmt: skip
def test_a_part_of_a_configuration_is_sane_though_things_are_missing(part: dict[str, Any]) -> None:
    assert check_sanity(part) == []


@pytest.mark.parametrize(
    ("part", "problems"),
    [
        ({"searcher": {"metric": 5, "divisor": 0}},
         ["searcher.divisor: got 0, expected a number above 1",
          'searcher.metric: got 5, expected text; write "5"']),
        ({"searcher": {"name": "pbt", "metric": "a"}},
         ["searcher.name: pbt no longer exists; write searcher: {name: adaptive_asha, metric: a, "
          "max_trials: 16, max_length: {epochs: 1}}"]),
        ({"labels": "a", "zzz": 1},
         ["labels: got 'a', expected a list", "zzz: unknown key; remove it"]),
        ({"bind_mounts": [{"host_path": "/a"}]}, []),
        ({"data": {"x": float("nan")}}, ["data.x: got nan, expected a finite number"]),
        ([1], ["got [1], expected a mapping (`key: value` lines)"]),
    ],
)  # fmt: skip
def test_a_part_that_is_wrong_by_itself_is_told(part: Any, problems: list[str]) -> None:
    assert said(check_sanity(part)) == problems
