"""A configuration laid over a template: what wins, and who gave what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.config import check_sanity, merge, origins, parse_config
from det_jupyter.errors import ConfigError

WHOLE = {
    "entrypoint": "MyTrial",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 10}},
}


@pytest.mark.parametrize(
    ("template", "config", "merged"),
    [
        ({"max_restarts": 1}, {"max_restarts": 2}, {"max_restarts": 2}),
        ({"max_restarts": 1}, {"max_restarts": None}, {"max_restarts": 1}),
        ({"max_restarts": 1}, {"name": "a"}, {"max_restarts": 1, "name": "a"}),
        ({"debug": True}, {"debug": False}, {"debug": False}),
        ({"labels": ["a", "b"]}, {"labels": ["b", "c"]}, {"labels": ["a", "b", "c"]}),
        (
            {"slurm": {"sbatch_args": ["-a"]}},
            {"slurm": {"sbatch_args": ["-b", "-a"]}},
            {"slurm": {"sbatch_args": ["-a", "-b", "-a"]}},
        ),
        (
            {"data": {"bucket": "a", "keys": [1], "deep": {"x": 1, "y": 2}}},
            {"data": {"bucket": "b", "keys": [2], "deep": {"y": 3}}},
            {"data": {"bucket": "b", "keys": [1, 2], "deep": {"x": 1, "y": 3}}},
        ),
        (
            {"resources": {"slots_per_trial": 2, "priority": 50}},
            {"resources": {"priority": 10}},
            {"resources": {"slots_per_trial": 2, "priority": 10}},
        ),
        ({"resources": None}, {"resources": {"priority": 10}}, {"resources": {"priority": 10}}),
    ],
)
def test_scalars_are_replaced_sections_merged_and_lists_joined(
    template: dict[str, Any], config: dict[str, Any], merged: dict[str, Any]
) -> None:
    assert merge(template, config) == merged


@pytest.mark.parametrize(("outer", "name"), [("", "bind_mounts"), ("resources", "devices")])
def test_of_two_mounts_in_one_place_the_configurations_stays(outer: str, name: str) -> None:
    def put(entries: list[Any]) -> dict[str, Any]:
        return {outer: {name: entries}} if outer else {name: entries}

    old = {"host_path": "/old", "container_path": "/data"}
    kept = {"host_path": "/kept", "container_path": "/kept"}
    new = {"host_path": "/new", "container_path": "/data"}
    assert merge(put([old, kept]), put([new])) == put([kept, new])


def test_a_device_in_its_short_form_has_a_place_too() -> None:
    template = {"resources": {"devices": ["/dev/a:/dev/x", "/dev/b:/dev/y"]}}
    config = {"resources": {"devices": [{"host_path": "/dev/c", "container_path": "/dev/x"}]}}
    assert merge(template, config)["resources"]["devices"] == [
        "/dev/b:/dev/y", {"host_path": "/dev/c", "container_path": "/dev/x"},
    ]  # fmt: skip


def test_a_policy_of_the_same_name_replaces_the_templates() -> None:
    template = {"log_policies": [{"name": "a", "pattern": "x"}, {"pattern": "y"}]}
    config = {"log_policies": [{"name": "a"}, {"pattern": "y"}]}
    assert merge(template, config)["log_policies"] == [{"name": "a"}, {"pattern": "y"}]


@pytest.mark.parametrize(
    ("template", "config", "merged"),
    [
        ({"lr": {"type": "double", "minval": 0, "maxval": 1}}, {"lr": 0.1}, {"lr": 0.1}),
        (
            {"lr": {"type": "double", "minval": 0, "maxval": 1}},
            {"lr": {"type": "int", "minval": 2, "maxval": 3}},
            {"lr": {"type": "int", "minval": 2, "maxval": 3}},
        ),
        ({"lr": 0.1}, {"lr": None}, {"lr": None}),
        ({"opt": {"lr": 1, "beta": 2}}, {"opt": {"lr": 3}}, {"opt": {"lr": 3, "beta": 2}}),
        (
            {"opt": {"lr": 1}},
            {"opt": {"type": "const", "val": 2}},
            {"opt": {"type": "const", "val": 2}},
        ),
        ({"sizes": [1, 2]}, {"sizes": [3]}, {"sizes": [3]}),
    ],
)
def test_a_hyperparameter_is_from_one_side_and_nested_ones_merge(
    template: dict[str, Any], config: dict[str, Any], merged: dict[str, Any]
) -> None:
    assert merge({"hyperparameters": template}, {"hyperparameters": config}) == {
        "hyperparameters": merged
    }


def test_a_searcher_of_another_name_takes_only_what_all_have() -> None:
    template = {"searcher": {"name": "random", "metric": "a", "max_trials": 3, "max_length": 5}}
    config = {"searcher": {"name": "single", "max_length": {"epochs": 1}}}
    assert merge(template, config)["searcher"] == {
        "name": "single", "metric": "a", "max_length": {"epochs": 1},
    }  # fmt: skip


@pytest.mark.parametrize("name", [{}, {"name": "random"}])
def test_a_searcher_of_the_same_name_or_of_none_merges(name: dict[str, str]) -> None:
    template = {"searcher": {"name": "random", "metric": "a", "max_trials": 3}}
    assert merge(template, {"searcher": {"max_trials": 4} | name})["searcher"] == {
        "name": "random", "metric": "a", "max_trials": 4,
    }  # fmt: skip


def test_storage_of_another_type_takes_only_what_all_have() -> None:
    template = {"checkpoint_storage": {"host_path": "/a", "save_trial_best": 3}}
    config = {"checkpoint_storage": {"type": "directory", "container_path": "/b"}}
    assert merge(template, config)["checkpoint_storage"] == {
        "type": "directory", "container_path": "/b", "save_trial_best": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("template", "config", "merged"),
    [
        ({"warmup": {"epochs": 5}, "base_batch_size": 8}, {"warmup": {"batches": 9}},
         {"warmup": {"batches": 9}, "base_batch_size": 8}),
        ({"warmup": {"epochs": 5}}, {"warmup": {"epoch": 9}}, {"warmup": {"epoch": 9}}),
    ],
)  # fmt: skip
def test_a_length_is_one_value_wherever_it_is(
    template: dict[str, Any], config: dict[str, Any], merged: dict[str, Any]
) -> None:
    def put(large_batch: dict[str, Any]) -> dict[str, Any]:
        return {"optimizations": {"large_batch": large_batch}}

    assert merge(put(template), put(config)) == put(merged)


def test_what_looks_like_a_length_in_the_user_s_own_data_is_none() -> None:
    template, config = {"data": {"cut": {"batches": 5}}}, {"data": {"cut": {"epochs": 2}}}
    assert merge(template, config) == {"data": {"cut": {"batches": 5, "epochs": 2}}}


def test_a_length_is_from_one_side() -> None:
    template = {"min_validation_period": {"epochs": 1}, "searcher": {"max_length": {"epochs": 2}}}
    config = {"min_validation_period": {"batches": 5}, "searcher": {"max_length": {"records": 9}}}
    assert merge(template, config) == config


def test_environment_variables_come_template_first_in_both_forms() -> None:
    def put(value: Any) -> dict[str, Any]:
        return {"environment": {"environment_variables": value}}

    assert merge(put(["A=1"]), put(["A=2"])) == put(["A=1", "A=2"])
    assert merge(put(["A=1"]), put({"cuda": ["B=2"]})) == put(
        {"cpu": ["A=1"], "cuda": ["A=1", "B=2"], "rocm": ["A=1"]}
    )


def test_merging_changes_neither_side() -> None:
    template = {"data": {"x": [1]}, "labels": ["a"]}
    config = {"data": {"x": [2]}, "labels": ["b"]}
    merge(template, config)
    assert (template, config) == (
        {"data": {"x": [1]}, "labels": ["a"]}, {"data": {"x": [2]}, "labels": ["b"]},
    )  # fmt: skip


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", "b", "name", "/x:/y"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "type", "epochs", "container_path", "a", "b"]),
            inner, max_size=3,
        )
    ),
    max_leaves=6,
)  # fmt: skip
documents = st.dictionaries(
    st.sampled_from(
        ["searcher", "resources", "labels", "bind_mounts", "hyperparameters", "environment",
         "checkpoint_storage", "log_policies", "min_validation_period", "data", "zzz"]
    ),
    json_values,
)  # fmt: skip


@given(documents, documents)
def test_whatever_is_merged_nothing_breaks(
    template: dict[str, Any], config: dict[str, Any]
) -> None:
    merged = merge(template, config)
    assert merged.keys() == template.keys() | config.keys()
    assert merge({}, config) == config
    check_sanity(merged)
    origins(config, template, merged)


def test_a_template_completes_a_configuration() -> None:
    template = {"resources": {"slots_per_trial": 2}, "hyperparameters": {"global_batch_size": 8}}
    config = parse_config(WHOLE, default_seed=1, template=template)
    assert config.resources.slots_per_trial == 2
    assert parse_config(config.to_document()) == config


@pytest.mark.parametrize("where", ["template", "config"])
def test_a_template_in_a_configuration_or_template_is_an_unknown_key(where: str) -> None:
    template, config = {"max_restarts": 1}, dict(WHOLE)
    (template if where == "template" else config)["template"] = "team"  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"^template: unknown key; only a cell, a file or"):
        parse_config(config, default_seed=1, template=template)


def test_every_value_has_its_origin() -> None:
    template = {
        "labels": ["team", "both"],
        "resources": {"slots_per_trial": 2, "priority": 50},
        "searcher": {"name": "random", "max_trials": 9, "smaller_is_better": False},
        "hyperparameters": {"global_batch_size": 8, "opt": {"beta": 1}, "lr": 3},
        "min_checkpoint_period": 7,
        "environment": {"environment_variables": ["A=1"]},
    }
    config = {
        **WHOLE,
        "labels": ["both", "mine"],
        "resources": {"priority": 10},
        "hyperparameters": {
            "opt": {"alpha": None}, "lr": {"type": "log", "base": 10, "minval": -3, "maxval": -1},
        },
        "environment": {"environment_variables": ["B=2"]},
    }  # fmt: skip
    effective = parse_config(config, default_seed=1, template=template).to_document()
    found = origins(config, template, effective)
    expected = {
        "labels[0]": "template", "labels[1]": "you", "labels[2]": "you",
        "resources.slots_per_trial": "template", "resources.priority": "you",
        "resources.weight": "default",
        "searcher.name": "you", "searcher.smaller_is_better": "template",
        "searcher.max_length.batches": "you",
        "hyperparameters.global_batch_size": "template",
        "hyperparameters.opt.beta": "template", "hyperparameters.opt.alpha": "you",
        "hyperparameters.lr.minval": "you",
        "min_checkpoint_period.batches": "template",
        "min_validation_period.batches": "default",
        "environment.environment_variables[0]": "template",
        "environment.environment_variables[1]": "you",
        "reproducibility.experiment_seed": "default",
        "entrypoint": "you", "name": "default",
    }  # fmt: skip
    assert {path: found.get(path) for path in expected} == expected


def test_what_a_template_gives_to_another_searcher_is_not_its_own() -> None:
    template = {"searcher": {"name": "random", "max_concurrent_trials": 3, "metric": "a"}}
    config = {"entrypoint": "A", "searcher": {"name": "grid", "max_length": 5}}
    effective = parse_config(config, default_seed=1, template=template).to_document()
    found = origins(config, template, effective)
    assert found["searcher.max_concurrent_trials"] == "default"
    assert found["searcher.metric"] == "template"


def test_defaults_inside_an_entry_of_a_list_are_defaults() -> None:
    config = {**WHOLE, "log_policies": [{"pattern": "x", "action": "exclude_node"}]}
    effective = parse_config(config, default_seed=1).to_document()
    found = origins(config, {}, effective)
    assert found["log_policies[0].pattern"] == "you"
    assert found["log_policies[0].name"] == "default"
