"""Help on keys, the generated documents, and that all of it agrees with what is accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from det_jupyter.config import FieldHelp, choices, describe, known_keys, parse_yaml
from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.keys import NO_EFFECT
from det_jupyter.config.reference_page import OTHER_DEFAULTS, json_schema, markdown
from det_jupyter.config.tree import all_paths, kinds
from det_jupyter.searcher.methods import SECTIONS
from tests.unit.config.test_config_foreign import EVERYTHING

DETERMINED: dict[str, Any] = {
    "name": None, "description": None, "labels": [], "data": {}, "hyperparameters": {},
    "max_restarts": 5, "scheduling_unit": 100, "records_per_epoch": 0,
    "min_validation_period": {"batches": 0}, "min_checkpoint_period": {"batches": 0},
    "perform_initial_validation": False, "checkpoint_policy": "best", "preemption_timeout": None,
    "searcher.smaller_is_better": True, "searcher.max_concurrent_trials": 16,
    "searcher.divisor": 4, "searcher.mode": "standard", "searcher.max_rungs": 5,
    "searcher.bracket_rungs": [], "searcher.stop_once": False,
    "resources.slots_per_trial": 1, "resources.max_slots": None, "resources.weight": 1,
    "resources.priority": None, "resources.resource_pool": "", "resources.is_single_node": None,
    "checkpoint_storage.save_experiment_best": 0, "checkpoint_storage.save_trial_best": 1,
    "checkpoint_storage.save_trial_latest": 1, "optimizations.aggregation_frequency": 1,
    "optimizations.average_aggregated_gradients": True,
    "optimizations.average_training_metrics": True, "optimizations.gradient_compression": False,
    "optimizations.mixed_precision": "O0", "optimizations.tensor_fusion_threshold": 64,
    "optimizations.tensor_fusion_cycle_time": 1, "optimizations.auto_tune_tensor_fusion": False,
    "optimizations.grad_updates_size_file": None, "profiling.enabled": False,
    "profiling.begin_on_batch": 0, "profiling.end_after_batch": None,
    "profiling.sync_timings": True, "retention_policy.log_retention_days": None,
}  # fmt: skip
# Their defaults are written in another way, and have the effect of Determined's.
SAME_EFFECT = {"description", "resources.is_single_node", "preemption_timeout"}
DOCS = Path(__file__).parents[3] / "docs"


def test_a_key_is_described() -> None:
    assert describe("searcher.divisor") == FieldHelp(
        path="searcher.divisor",
        type="number, above 1",
        default=4,
        text="The best 1/divisor of the trials at each rung continue to the next.",
    )
    assert describe("resources.priority") == FieldHelp(
        path="resources.priority",
        type="whole number, 1 to 99",
        default=None,
        text="How urgent the experiment is; lower is more urgent. If not given, the pool's "
        "default: 42.",
    )
    assert describe("searcher.sampler_arg") is None
    assert describe("nowhere.to.be") is None


def test_every_key_has_a_description() -> None:
    found = [describe(path) for path in all_paths()]
    assert [help_ for help_ in found if help_ is None or not help_.text or not help_.type] == []
    assert len(found) > 100


def test_defaults_are_those_of_determined_but_for_those_that_are_listed() -> None:
    different = set()
    for path, default in DETERMINED.items():
        found = describe(path)
        assert found is not None, path
        if found.default != default:
            different.add(path)
    # Two more are known to the master only: where checkpoints go, and what log policies there are.
    different |= {"checkpoint_storage", "log_policies"}
    assert different - SAME_EFFECT == set(OTHER_DEFAULTS)
    assert different > SAME_EFFECT


def test_what_has_no_effect_is_a_key_and_says_so() -> None:
    for path, note in NO_EFFECT.items():
        found = describe(path)
        assert found is not None, path
        assert found.note == note


def test_the_kinds_of_sections_are_known_by_their_tags() -> None:
    assert kinds("searcher") == SECTIONS
    assert list(kinds("checkpoint_storage")) == ["shared_fs", "directory", "s3", "gcs", "azure"]


def test_the_keys_of_a_section_depend_on_its_kind() -> None:
    assert list(known_keys("searcher", {"searcher": {"name": "random"}})) == [
        "name", "metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid",
        "elastic", "max_length", "max_trials", "max_concurrent_trials",
    ]  # fmt: skip
    assert "num_rungs" in known_keys("searcher", {"searcher": {"name": "ran"}})
    assert "storage_path" in known_keys("checkpoint_storage")
    assert list(known_keys("searcher.max_length")) == ["batches", "records", "epochs"]
    assert list(known_keys("min_validation_period")) == ["batches", "records", "epochs"]
    assert list(known_keys(""))[:4] == ["name", "description", "labels", "entrypoint"]
    assert known_keys("nowhere") == {}
    assert known_keys("name") == {}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("searcher.name", tuple(SECTIONS)),
        ("searcher.mode", ("standard", "aggressive", "conservative")),
        ("checkpoint_policy", ("best", "all", "none")),
        ("checkpoint_storage.type", ("shared_fs", "directory", "s3", "gcs", "azure")),
        ("searcher.stop_once", ("true", "false")),
        ("log_policies.action", ("cancel_retries", "exclude_node")),
        ("searcher.divisor", ()), ("nowhere", ()), ("", ()),
    ],
)  # fmt: skip
def test_the_values_of_a_key_are_known_if_they_are_few(path: str, words: tuple[str, ...]) -> None:
    assert choices(path) == words


def test_a_required_key_says_so() -> None:
    required = [path for path in all_paths() if (found := describe(path)) and found.is_required]
    assert [path for path in required if path.count(".") == 0] == ["entrypoint", "searcher"]
    assert {"searcher.name", "searcher.metric"} <= set(required)


def test_the_reference_is_what_the_classes_say() -> None:
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == markdown(), (
        "run: python -m det_jupyter.config reference > docs/configuration.md"
    )


def test_the_schema_is_what_the_classes_say() -> None:
    written = json.loads((DOCS / "configuration.schema.json").read_text(encoding="utf-8"))
    assert written == json_schema(), (
        "run: python -m det_jupyter.config schema > docs/configuration.schema.json"
    )


def test_the_schema_accepts_what_is_accepted() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.validate(parse_yaml(EVERYTHING))
    searcher = {"name": "single", "metric": "a", "max_length": 5}
    minimal: dict[str, Any] = {"entrypoint": "A", "searcher": searcher}
    validator.validate(minimal)
    hparams = {"a": {"b": {"type": "int", "minval": 1, "maxval": 2}}, "c": None, "d": [1, {}]}
    validator.validate(minimal | {"hyperparameters": hparams})


@pytest.mark.parametrize(
    "changes",
    [
        {"zzz": 1}, {"max_restarts": -1}, {"resources": {"priority": 100}},
        {"searcher": {"name": "single"}}, {"min_validation_period": {"epochs": 1, "batches": 2}},
        {"hyperparameters": {"a": {"type": "int"}}}, {"checkpoint_policy": "most"},
    ],
)  # fmt: skip
def test_the_schema_refuses_what_is_refused(changes: dict[str, Any]) -> None:
    searcher = {"name": "single", "metric": "a", "max_length": 5}
    validator = jsonschema.Draft202012Validator(json_schema())
    assert not validator.is_valid({"entrypoint": "A", "searcher": searcher} | changes)


def test_the_fields_of_the_configuration_are_in_one_place_only() -> None:
    assert set(ExperimentConfig.model_fields) <= set(known_keys(""))
