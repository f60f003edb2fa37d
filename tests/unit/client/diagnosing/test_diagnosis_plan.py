"""The requests of a diagnosis, and its result as text, HTML and a table."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.client.diagnosing.diagnosis_plan import Plan, plan_diagnosis, request_for
from det_jupyter.client.diagnosing.diagnosis_result import Diagnosis
from det_jupyter.contract.messages import Capsule, CapturedName, ExperimentView, State, TrialView
from det_jupyter.diagnosis.conclusion import conclude
from det_jupyter.diagnosis.recipe_results import Measured, build_rows
from det_jupyter.diagnosis.recipes import LeftOut, Recipe, find_recipes
from det_jupyter.errors import ConfigError
from tests.problems import said


def experiment(kind: str = "class", **optimizations: Any) -> ExperimentView:
    return ExperimentView(
        id=7,
        name="digits",
        state=State.COMPLETED,
        config={
            "labels": ["mine"],
            "searcher": {"name": "random", "metric": "error", "source_trial_id": 4},
            "resources": {"slots_per_trial": 4, "priority": 5},
            "optimizations": optimizations,
            "environment": {"environment_variables": ["A=1"]},
        },
        capsule=Capsule(
            entrypoint="T",
            payload="",
            sources="",
            captured=[CapturedName(name="T", type=kind, size_bytes=1)],
        ),
        notebook="n.ipynb",
        python="python3",
        cwd="/notebooks",
        progress=1.0,
        created_at=0.0,
    )


def trial(**changes: Any) -> TrialView:
    hparams = {"global_batch_size": 34, "lr": 0.1}
    return TrialView(
        id=9,
        experiment_id=7,
        state=State.COMPLETED,
        hparams=hparams,
        seed=0,
        created_at=0.0,
        **changes,
    )


def plan(view: ExperimentView, **changes: Any) -> Plan:
    given: dict[str, Any] = {"recipes": None, "seconds": 5.0, "rounds": 3, **changes}
    return plan_diagnosis(view, trial(), **given)


def config_of(name: str, **optimizations: Any) -> dict[str, Any]:
    planned = plan(experiment(**optimizations))
    [recipe] = [recipe for recipe in planned.recipes if recipe.name == name]
    request = request_for(planned, recipe)
    assert request.is_quiet, "its end is not notified"
    return request.config


def variable(config: dict[str, Any]) -> str:
    first, second = config["environment"]["environment_variables"]
    assert first == "A=1"
    name, _, value = second.partition("=")
    assert name == "DET_JUPYTER_REHEARSAL"
    return str(value)


def test_a_run_is_of_the_lowest_priority_and_saves_and_validates_nothing() -> None:
    config = config_of("as_it_is")
    assert config["searcher"] == {
        "name": "single",
        "metric": "error",
        "max_length": {"batches": 10**9},
    }
    assert config["resources"] == {
        "slots_per_trial": 4, "priority": 99, "weight": 0.001, "max_slots": None,
    }  # fmt: skip
    assert config["perform_initial_validation"] is False
    assert config["on_nan_loss"] == "warn"
    assert config["labels"] == ["diagnose"]
    assert config["name"] == "digits: diagnose, as it is"
    assert config["min_validation_period"] == config["min_checkpoint_period"] == {"batches": 0}
    assert config["checkpoint_policy"] == "none"
    assert config["max_restarts"] == 0
    assert variable(config) == "seconds=5"


def test_on_one_slot_it_keeps_the_batch_of_a_slot() -> None:
    config = config_of("one_slot")
    assert config["resources"]["slots_per_trial"] == 1
    assert config["hyperparameters"] == {"global_batch_size": 8, "lr": 0.1}


def test_each_recipe_changes_one_thing() -> None:
    assert variable(config_of("replay")) == "seconds=5 replay=16"
    assert config_of("bf16")["optimizations"] == {"gradient_compression": "bf16"}
    assert variable(config_of("powersgd")) == "seconds=5 warmup=16"
    aggregated = config_of("aggregation_4")
    assert aggregated["optimizations"] == {"aggregation_frequency": 4}
    assert variable(aggregated) == "seconds=5 every=4"
    assert variable(config_of("aggregation_1000")) == "seconds=5"


def test_buckets_that_are_tuned_in_the_first_batches_are_not_measured_then() -> None:
    tuned = config_of("as_it_is", auto_tune_tensor_fusion=True)
    assert variable(tuned) == "seconds=5 warmup=64"
    assert variable(config_of("bucket_5", auto_tune_tensor_fusion=True)) == "seconds=5"


def test_wrong_arguments_are_all_said_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        plan(experiment(), recipes=["fp8"], seconds=0, rounds=1)
    assert len(said(refused.value.problems)) == 3
    assert (
        "expected a list of some of as_it_is, replay, aggregation_1000"
        in said(refused.value.problems)[2]
    )
    for name, wrong in (("recipes", []), ("recipes", "replay"), ("seconds", "5"), ("rounds", 2.5)):
        with pytest.raises(ConfigError, match=f"diagnose: {name}: got"):
            plan(experiment(), **{name: wrong})
    with pytest.raises(ConfigError, match="the entrypoint T is a function, expected a PyTorchT"):
        plan(experiment("function"))


def diagnosis(replay: tuple[float, float] = (300.0, 303.0)) -> Diagnosis:
    recipes = [one for one in find_recipes(1, {}) if isinstance(one, Recipe)]
    left_out = [one for one in find_recipes(1, {}) if isinstance(one, LeftOut)]
    found = Measured(
        rates={"as_it_is": {0: 100.0, 1: 101.0}, "replay": dict(enumerate(replay))},
        failures={"workers": "ValueError: <no>"},
    )
    rows = build_rows(recipes, found, 1)
    return Diagnosis(
        experiment_id=7,
        name="<digits>",
        slots=1,
        at=0.0,
        rounds=2,
        seconds=5.0,
        rows=rows,
        left_out=left_out,
        verdict=conclude(rows, found, 1, at=0.0),
    )


def test_the_answer_prints_the_verdict_the_table_what_was_left_out_and_lines_to_paste() -> None:
    lines = repr(diagnosis()).splitlines()
    assert lines[0].startswith("Loading data takes 67 % of the time: with recorded batches it t")
    assert lines[2].split() == ["recipe", "records/s", "times", "as", "fast", "efficiency"]
    assert lines[3].startswith("as it is")
    assert "▲ 3.00 " in lines[4]
    assert lines[5].endswith("failed: ValueError: <no>")
    assert lines[6].startswith("Left out, as the trial has 1 slot, so it exchanges nothing: aggr")
    assert lines[-2].startswith("# diagnostic only: recorded batches: 3.00 times")
    assert lines[-1] == "# more loader workers: failed: ValueError: <no>"


def test_what_is_unclear_is_shown_so() -> None:
    found = diagnosis(replay=(150.0, 90.0))
    assert "? 1.20 (0.89 to 1.50)" in repr(found)
    assert "unclear: +20 %, runs vary by 68 %" in found._repr_html_()
    assert found.table().to_columns()["sign"] == [None, "unclear", None]


def test_the_answer_is_html_without_script_and_escapes_names() -> None:
    page = diagnosis()._repr_html_()
    assert "&lt;digits&gt;" in page
    assert "<digits>" not in page
    assert page.count("data:image/svg+xml") == 2
    assert "<script" not in page


def test_the_table_has_columns() -> None:
    columns = diagnosis().table().to_columns()
    assert columns["recipe"] == ["as_it_is", "replay", "workers"]
    assert columns["sign"] == [None, "gain", None]
    assert columns["effect"] == ["diagnostic only", "diagnostic only", "safe"]
