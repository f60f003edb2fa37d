"""The experiment configuration: what is accepted, what it means, what is said when it is wrong."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.config import (
    Length,
    TrainingUnits,
    lines_of_paths,
    parse_config,
    parse_yaml,
    sample_hparams,
    trial_seed,
)
from det_jupyter.errors import ConfigError
from tests.problems import said

DIGITS = """
name: digits
entrypoint: DigitsTrial
hyperparameters: {global_batch_size: 64, lr: 0.05}
records_per_epoch: 1437
searcher: {name: single, metric: accuracy, smaller_is_better: false, max_length: {epochs: 6}}
resources: {slots_per_trial: 2}
"""


def minimal(**changes: Any) -> dict[str, Any]:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 10}}
    return {"entrypoint": "MyTrial", "searcher": searcher} | changes


def problems_of(document: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(document, default_seed=1)
    return said(caught.value.problems)


def test_the_issue_s_configuration_is_accepted_and_completed() -> None:
    config = parse_config(parse_yaml(DIGITS), default_seed=3)
    assert config.searcher.smaller_is_better is False
    assert config.searcher.max_length == Length("epochs", 6)
    assert config.min_validation_period == Length("epochs", 1)
    assert config.max_restarts == 5
    assert config.reproducibility.experiment_seed == 3


def test_an_effective_document_parses_to_an_equal_configuration() -> None:
    config = parse_config(parse_yaml(DIGITS), default_seed=3)
    assert parse_config(config.to_document()) == config


def test_length_in_batches_validates_only_at_the_end_unless_told_otherwise() -> None:
    assert parse_config(minimal(), default_seed=1).min_validation_period == Length("batches", 0)


def test_a_bare_number_is_a_length_in_batches() -> None:
    searcher = {"name": "single", "metric": "loss", "max_length": 500}
    config = parse_config(minimal(searcher=searcher), default_seed=1)
    assert config.searcher.max_length == Length("batches", 500)


def test_a_null_counts_as_absent_except_in_hyperparameters() -> None:
    config = parse_config(
        minimal(description=None, hyperparameters={"schedule": None}), default_seed=1
    )
    assert config.description == ""
    assert config.hyperparameters == {"schedule": None}


def test_all_problems_are_told_at_once() -> None:
    problems = problems_of({"searcher": {"name": "single", "metirc": "x"}, "max_restarts": "five"})
    assert [p.split(":")[0] for p in problems] == [
        "max_restarts", "searcher.metirc", "entrypoint", "searcher.max_length",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "hyperparameters:\n  global_batch_size: 64\nlr: 0.1\nmomentum: 0.9\n",
            ["lr: unknown key; it belongs below hyperparameters: write hyperparameters.lr",
             "momentum: unknown key; it belongs below hyperparameters: write "
             "hyperparameters.momentum"],
        ),
        (
            "hyperparameters:\nglobal_batch_size: 64\n",
            ["global_batch_size: unknown key; it belongs below hyperparameters: write "
             "hyperparameters.global_batch_size"],
        ),
        (
            "searcher:\nmetric: loss\nmax_length: {epochs: 2}\n",
            ["max_length: unknown key; it belongs below searcher: write searcher.max_length",
             "metric: unknown key; it belongs below searcher: write searcher.metric"],
        ),
    ],
)  # fmt: skip
def test_what_is_not_in_its_section_is_said_to_belong_below_it(
    text: str, problems: list[str]
) -> None:
    complete = {"entrypoint": "A", "reproducibility": {"experiment_seed": 1}}
    if "searcher" not in text:
        complete["searcher"] = {"name": "single", "metric": "loss", "max_length": {"epochs": 1}}
    assert problems_of(parse_yaml(text) | complete) == problems


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"resourcs": {}}, "resourcs: unknown key; did you mean resources?"),
        (
            {"resources": {"max_slots": 2, "slots_per_trial": 4},
             "hyperparameters": {"global_batch_size": 8}},
            "resources.max_slots: got 2, expected at least resources.slots_per_trial (4)",
        ),
        ({"resources": [1]}, "resources: got [1], expected a mapping (`key: value` lines)"),
        (
            {"resources": {"slots_per_trial": -1}},
            "resources.slots_per_trial: got -1, expected at least 0",
        ),
        ({"max_restarts": True}, "max_restarts: got true, expected a number"),
        ({"max_restarts": 1.5}, "max_restarts: got 1.5, expected a whole number"),
        ({"environment": {"environment_variables": {"tpu": ["A=1"]}}},
         "environment.environment_variables: got {'tpu': ['A=1']}, expected a list of "
         "NAME=value, or lists by cpu, cuda and rocm, not tpu"),
        ({"environment": {"environment_variables": {"cpu": ["A=1", "2=1"]}}},
         "environment.environment_variables.cpu[1]: got '2=1', expected NAME=value, or NAME to "
         "send its present value"),
        ({"environment": {"environment_variables": [{"A": 1}]}},
         "environment.environment_variables[0]: got {'A': 1}, expected NAME=value, or NAME to "
         "send its present value"),
        ({"environment": {"environment_variables": "A=1"}},
         "environment.environment_variables: got 'A=1', expected a list"),
        ({"hyperparameters": {"global_batch_size": "8"}},
         "hyperparameters.global_batch_size: got '8', expected a whole number of at least 1"),
        ({"max_trials": 5}, "max_trials: unknown key; it belongs below searcher: write "
         "searcher.max_trials"),
        ({"serch": {}}, "serch: unknown key; did you mean searcher?"),
        ({"slots_per_trial": 5},
         "slots_per_trial: unknown key; it belongs below resources: write "
         "resources.slots_per_trial"),
        ({"batches_per_step": 0},
         "batches_per_step: got 0, expected a whole number above 0; write scheduling_unit: 100"),
        ({"zzz": 5}, "zzz: unknown key; remove it"),
        ({"profiling": {"zzz": 5}},
         "profiling.zzz: unknown key; expected one of begin_on_batch, enabled, end_after_batch, "
         "sampling_interval, sync_timings"),
        *(({"profiling": {"sampling_interval": given}},
           f"profiling.sampling_interval: got {given}, expected {needed}")
          for given, needed in [
              (0, "at least 0.1"), (-1, "at least 0.1"), (0.05, "at least 0.1"),
              (math.nan, "a finite number"), (1e9, "at most 3600"),
          ]),
        ({"resources": {"weight": 0}}, "resources.weight: got 0, expected at least 0.001"),
        ({"resources": {"weight": 1e308}}, "resources.weight: got 1e+308, expected at most 1000"),
        ({"resources": {"max_slots": 2**60}},
         f"resources.max_slots: got {2**60}, expected at most 1000000"),
        ({"resources": {"priority": 100}}, "resources.priority: got 100, expected at most 99"),
        ({"profiling": {"begin_on_batch": 5, "end_after_batch": 4}},
         "profiling.begin_on_batch: got 5, expected at most profiling.end_after_batch (4)"),
        ({"environment": {"environment_variables": ["A B"]}},
         "environment.environment_variables[0]: got 'A B', expected NAME=value, or NAME to send "
         "its present value"),
        ({"preemption_timeout": 0}, "preemption_timeout: got 0, expected at least 1"),
        ({"hyperparameters": {1: 2}},
         "hyperparameters: got the key 1, expected a name on one line"),
        ({"data": {"x": 2**63}},
         "data.x: got 9223372036854775808, expected a number that 64 bits can hold"),
        ({"data": {"x": {1}}},
         "data.x: got a set, expected text, a number, true, false, null, a list or a mapping"),
        ({"checkpoint_policy": "most"},
         "checkpoint_policy: got 'most', expected best, all or none"),
        ({"reproducibility": {"experiment_seed": 2**31}},
         "reproducibility.experiment_seed: got 2147483648, expected at most 2147483647"),
        ({"perform_initial_validation": "yes"},
         "perform_initial_validation: got 'yes', expected true or false"),
        ({"hyperparameters": {"lr": {"type": "int", "minval": 3, "maxval": 3}}},
         "hyperparameters.lr.minval: got 3, expected less than maxval (3)"),
        ({"hyperparameters": {"lr": {"type": "float"}}},
         "hyperparameters.lr.type: got 'float', expected double"),
        ({"hyperparameters": {"act": {"type": "categorical", "vals": []}}},
         "hyperparameters.act.vals: got [], expected a list of at least one value"),
        ({"hyperparameters": {"global_batch_size": 2}, "resources": {"slots_per_trial": 4}},
         "hyperparameters.global_batch_size: got 2, expected at least resources.slots_per_trial "
         "(4)"),
        ({"hyperparameters": {"lr": [float("inf")]}},
         "hyperparameters.lr[0]: got inf, expected a finite number"),
        ({"data": {"x": float("nan")}}, "data.x: got nan, expected a finite number"),
        ({"checkpoint_storage": {"host_path": "ckpt"}},
         "checkpoint_storage.host_path: got 'ckpt', expected an absolute path"),
        ({"checkpoint_storage": {"host_path": "/a\0b"}},
         "checkpoint_storage.host_path: got '/a\\x00b', expected an absolute path"),
        ({"environment": {"environment_variables": ["A=\0"]}},
         "environment.environment_variables[0]: got 'A=\\x00', expected NAME=value, or NAME to "
         "send its present value"),
        ({"log_policies": [{"pattern": "a" * 10_001, "action": "cancel_retries"}]},
         f"log_policies[0].pattern: got '{'a' * 56}..., expected at most 10000 characters"),
        ({"log_policies": [{"name": str(number)} for number in range(101)]},
         "log_policies: got [{'name': '0'}, {'name': '1'}, {'name': '2'}, {'name': '3..., "
         "expected at most 100 items"),
    ],
)  # fmt: skip
def test_a_problem_names_its_place_what_was_given_and_what_is_needed(
    changes: dict[str, Any], problem: str
) -> None:
    assert problems_of(minimal(**changes)) == [problem]


def test_problems_are_sorted_by_path_and_number() -> None:
    labels = {"labels": ["a"] * 2 + [1] + ["a"] * 7 + [2], "description": 3}
    assert [problem.split(":")[0] for problem in problems_of(minimal(**labels))] == [
        "description", "labels[2]", "labels[10]",
    ]  # fmt: skip


def test_labels_are_a_set() -> None:
    config = parse_config(minimal(labels=["b", "a", "b"]), default_seed=1)
    assert config.labels == ["b", "a"]


@pytest.mark.parametrize("size", [200, 3])
def test_a_document_is_no_bomb(size: int) -> None:
    deep: Any = 1
    for _ in range(size):
        deep = [deep] * (1 if size == 200 else 60)
    (problem,) = problems_of(minimal(data={"x": deep}))
    assert problem == (
        "data: nested too deeply; expected at most 50 levels" if size == 200
        else "the configuration is too large; expected at most 100000 values"
    )  # fmt: skip


@pytest.mark.parametrize("length", [{}, {"epochs": 1, "batches": 2}, {"epochs": -1}, "6 epochs"])
def test_a_length_has_exactly_one_unit(length: Any) -> None:
    searcher = {"name": "single", "metric": "loss", "max_length": length}
    (problem,) = problems_of(minimal(searcher=searcher))
    assert problem.startswith("searcher.max_length: got ")
    assert 'exactly one of "batches", "records" or "epochs"' in problem


def test_yaml_mistakes_name_the_line() -> None:
    with pytest.raises(ConfigError, match="line 2: b: this is not YAML"):
        parse_yaml("a: 1\nb: [1, }\n")
    with pytest.raises(ConfigError, match="name: given twice, in lines 1 and 3"):
        parse_yaml("name: a\nentrypoint: B\nname: c\n")
    with pytest.raises(ConfigError, match="expected `key: value` lines"):
        parse_yaml("- a\n")


def test_a_tab_in_yaml_is_told_with_its_remedy() -> None:
    with pytest.raises(ConfigError, match=r"line 2: .*indent with spaces, not tabs"):
        parse_yaml("a:\n\tb: 1\n")


@pytest.mark.parametrize("text", ["a: &x [*x]", "a: &x {b: {c: *x}}", "a: &x {<<: *x}"])
def test_a_value_that_holds_itself_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"line 1: .* refers to itself"):
        parse_yaml(text)
    assert lines_of_paths(text) == {}


def test_a_value_may_be_named_once_and_used_twice() -> None:
    assert parse_yaml("a: &x {c: [1]}\nb: *x\nd: {<<: *x, e: 2}") == {
        "a": {"c": [1]}, "b": {"c": [1]}, "d": {"c": [1], "e": 2},
    }  # fmt: skip


def test_endless_nesting_is_refused() -> None:
    with pytest.raises(ConfigError, match="line 1: nested too deeply; expected at most 50 levels"):
        parse_yaml("a: " + "[" * 5000)
    with pytest.raises(ConfigError, match="line 50: nested too deeply"):
        parse_yaml("a:\n" + "".join(f"{' ' * level}a:\n" for level in range(1, 60)))
    parse_yaml("a: " + "[" * 49 + "]" * 49)


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "x" * 201])
def test_a_name_is_one_line_of_reasonable_length(name: str) -> None:
    (problem,) = problems_of(minimal(name=name))
    assert problem.startswith("name: got ")


def test_the_searchers_metric_has_a_name() -> None:
    searcher = {"name": "single", "metric": "", "max_length": 10}
    (problem,) = problems_of(minimal(searcher=searcher))
    assert problem.startswith("searcher.metric: got '', expected one line of text")


@pytest.mark.parametrize("length", [2**53 + 1, {"epochs": 1e300}])
def test_a_length_can_be_counted(length: Any) -> None:
    searcher = {"name": "single", "metric": "loss", "max_length": length}
    (problem,) = problems_of(minimal(searcher=searcher))
    assert "expected at most 9007199254740992" in problem


def test_exponents_without_a_dot_are_numbers() -> None:
    assert parse_yaml("lr: 1e-3")["lr"] == 0.001


def test_yaml_tags_construct_nothing() -> None:
    with pytest.raises(ConfigError):
        parse_yaml("a: !!python/object/apply:os.getcwd []")


def test_lines_are_known_by_path() -> None:
    assert lines_of_paths("a: 1\nb:\n  c: [1,\n    2]\n") == {
        "a": 1, "b": 2, "b.c": 3, "b.c[0]": 3, "b.c[1]": 4,
    }  # fmt: skip


# ---- lengths ------------------------------------------------------------------------------

units = st.builds(
    TrainingUnits,
    global_batch_size=st.integers(1, 50),
    batches_per_epoch=st.integers(1, 50),
    records_per_epoch=st.none() | st.integers(1, 500),
)


def test_epochs_of_the_digits_end_where_the_documentation_says() -> None:
    digits = TrainingUnits(global_batch_size=64, records_per_epoch=1437, batches_per_epoch=23)
    period = Length("epochs", 1)
    assert [b for b in range(140) if digits.is_boundary(period, b)] == [22, 44, 67, 89, 112, 134]
    assert digits.to_batches(Length("epochs", 6)) == 134


@pytest.mark.parametrize(
    ("length", "batches"),
    [
        (Length("batches", 7), 7),
        (Length("records", 10), 3),
        (Length("records", 1), 1),
        (Length("epochs", 2), 10),
        (Length("epochs", 0), 0),
    ],
)
def test_lengths_in_batches(length: Length, batches: int) -> None:
    units = TrainingUnits(global_batch_size=3, batches_per_epoch=5)
    assert units.to_batches(length) == batches


@given(units, st.integers(0, 2000))
def test_every_batch_lies_in_exactly_one_epoch(units: TrainingUnits, batch_idx: int) -> None:
    epoch = units.epoch_of(batch_idx)
    assert units.epoch_end(epoch) <= batch_idx < units.epoch_end(epoch + 1)


@given(units, st.integers(1, 40), st.integers(1, 5))
def test_a_length_in_epochs_ends_on_a_boundary_of_its_period(
    units: TrainingUnits, epochs: int, period: int
) -> None:
    end = units.to_batches(Length("epochs", epochs))
    assert units.is_epoch_end(end - 1)
    assert units.is_boundary(Length("epochs", period), end) == (epochs % period == 0)


# ---- hyperparameters and seeds ------------------------------------------------------------


def test_samples_do_not_depend_on_the_order_of_the_keys() -> None:
    spec = {
        "b": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "a": {"c": {"type": "int", "minval": 1, "maxval": 3}, "k": "constant"},
        "d": {"type": "categorical", "vals": ["x", "y"]},
        "e": {"type": "const", "val": [1, 2]},
    }
    backwards = dict(reversed(spec.items()))
    one = sample_hparams(spec, random.Random(5))
    assert one == sample_hparams(backwards, random.Random(5))
    assert 1e-4 <= one["b"] <= 1e-1
    assert one["a"]["c"] in (1, 2, 3)
    assert one["a"]["k"] == "constant"
    assert one["e"] == [1, 2]


@given(st.integers(0, 2**31 - 1))
def test_trials_of_an_experiment_have_seeds_of_their_own(seed: int) -> None:
    seeds = [trial_seed(seed, index) for index in range(20)]
    assert len(set(seeds)) == 20
    assert all(0 <= s < 2**31 for s in seeds)
    assert seeds == [trial_seed(seed, index) for index in range(20)]
