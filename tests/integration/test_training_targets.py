"""A run that reaches its target waits for the search: it goes on in place, or leaves and resumes.

Either way it ends bit for bit as a run that was trained straight to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported, TargetReached
from det_jupyter.contract.values.lengths import Length
from tests.integration.rank_support import Gang, Lab, Zygote, opened_lab
from tests.integration.test_training_resume import (
    RESTLESS,
    TRAINING,
    assert_same_weights,
    brief,
    config,
)
from tests.trials import Gate

# Straight runs validate where the targets are: a validation may draw random numbers too.
EVERY_6: dict[str, Any] = {"min_validation_period": {"batches": 6}}


def reached(gang: Gang) -> TargetReached:
    """Wait until the gang has reached its first target."""
    found = gang.wait_until(lambda: gang.of(TargetReached), "the target is reached")
    return found[0]


def validations(gang: Gang) -> list[tuple[int, dict[str, Any]]]:
    return [(record.steps_completed, record.metrics) for record in gang.validations()]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Iterator[Gang]:
    with opened_lab(tmp_path_factory.mktemp("straight"), zygote) as lab:
        gang = lab.start(RESTLESS, brief(**EVERY_6))
        assert gang.ended().reason == "completed"
        yield gang


def test_a_promoted_run_goes_on_in_its_slots(lab: Lab, straight: Gang) -> None:
    gang = lab.start(RESTLESS, brief(**EVERY_6), target=Length("batches", 6))
    assert reached(gang).steps_completed == 6
    gang.page.extend(18, is_last=False)
    gang.wait_until(lambda: len(gang.of(TargetReached)) == 2, "the next target is reached")
    gang.page.extend(24, is_last=True)
    assert gang.ended().reason == "completed"
    assert [r.target.amount for r in gang.of(TargetReached)] == [6, 18, 24]
    assert validations(gang) == validations(straight)
    assert_same_weights(straight, gang)


def test_a_run_that_rests_goes_on_later_from_its_checkpoint(lab: Lab, straight: Gang) -> None:
    first = lab.start(RESTLESS, brief(**EVERY_6), target=Length("batches", 12))
    assert reached(first).target == Length("batches", 12)
    first.page.raise_signal("preempt")
    assert first.ended().reason == "preempted"
    assert first.last_checkpoint().steps_completed == 12
    second = lab.start(RESTLESS, brief(**EVERY_6), checkpoint=first.last_checkpoint())
    assert second.ended().reason == "completed"
    assert validations(first) + validations(second) == validations(straight)
    assert_same_weights(straight, second)


def test_what_the_target_stands_on_is_saved_before_it_is_told(lab: Lab) -> None:
    gang = lab.start(RESTLESS, brief(checkpoint_policy="none"), target=Length("batches", 5))
    reached(gang)
    kinds = [type(record) for record in gang.records()]
    assert MetricsReported in kinds[: kinds.index(TargetReached)]
    assert [record.steps_completed for record in gang.of(CheckpointSaved)] == [5]
    gang.page.raise_signal("preempt")
    gang.ended()


def test_a_run_that_was_killed_at_its_target_tells_it_again(lab: Lab) -> None:
    first = lab.start(RESTLESS, brief(), target=Length("batches", 5))
    reached(first)
    first.kill()
    first.wait_for_all()
    second = lab.start(
        RESTLESS, brief(), checkpoint=first.last_checkpoint(), target=Length("batches", 5)
    )
    assert reached(second).steps_completed == 5
    assert [step for step, _ in validations(second)] == [5]
    second.page.raise_signal("preempt")
    assert second.ended().reason == "preempted"


def test_an_aggregation_window_is_not_cut_short_by_a_target(lab: Lab) -> None:
    aggregating = brief(optimizations={"aggregation_frequency": 7}, **EVERY_6)
    straight = lab.start(RESTLESS, aggregating)
    straight.ended()
    gang = lab.start(RESTLESS, aggregating, target=Length("batches", 6))
    reached(gang)
    gang.page.extend(24, is_last=True)
    gang.ended()
    assert_same_weights(straight, gang)


ODD_METRIC = RESTLESS.replace(
    'return {"error": nn.functional.mse_loss(self.model(x), y)}',
    'name = "oth" + "er"; return {name: nn.functional.mse_loss(self.model(x), y)}',
)
RANDOM = {"name": "random", "metric": "error", "max_length": {"batches": 20}, "max_trials": 2}


def test_a_metric_that_is_missing_counts_as_the_worst_in_a_search(lab: Lab) -> None:
    gang = lab.start(ODD_METRIC, config(searcher=RANDOM))
    assert gang.ended().reason == "completed"
    assert len(gang.of(TargetReached)) == 1
    assert "searcher.metric: the trial reports other; got 'error'" in gang.output()
    assert "this counts as the worst value" in gang.output()


def test_a_validation_tells_how_much_training_it_was(lab: Lab) -> None:
    gang = lab.start(RESTLESS, config(searcher=RANDOM, records_per_epoch=90))
    gang.ended()
    trained = {record.steps_completed: record.trained for record in gang.validations()}
    assert trained[15] == {"batches": 15, "records": 240, "epochs": 2 + 4 / 5}


TWO_BATCHES = {"name": "single", "metric": "error", "max_length": {"batches": 2}}


def test_a_warm_start_takes_the_weights_and_begins_at_the_first_batch(
    lab: Lab, straight: Gang
) -> None:
    short = config(perform_initial_validation=True, searcher=TWO_BATCHES)
    plan, folder = lab.prepare(RESTLESS, short, 2)
    plan = plan.model_copy(update={"warm_start": straight.last_checkpoint()})
    gang = lab.start_plan(plan, folder)
    assert gang.ended().steps_completed == 2
    (step, metrics), *_ = validations(gang)
    assert step == 0
    assert metrics["error"] == pytest.approx(validations(straight)[-1][1]["error"], rel=0.2)


def in_records() -> dict[str, Any]:
    length = {"name": "random", "metric": "error", "max_trials": 2, "max_length": {"records": 80}}
    return config(searcher=length, min_validation_period={"batches": 0})


def test_rungs_of_different_lengths_may_be_the_same_batch(lab: Lab) -> None:
    gang = lab.start(RESTLESS, in_records(), target=Length("records", 4))
    assert reached(gang).steps_completed == 1
    gang.page.extend(20, is_last=False)
    gang.wait_until(lambda: len(gang.of(TargetReached)) == 2, "it is there already")
    gang.page.extend(80, is_last=True)
    assert gang.ended().steps_completed == 5
    steps = [record.steps_completed for record in gang.of(TargetReached)]
    assert steps == [1, 1, 5]
    assert [step for step, _ in validations(gang)] == [1, 5]


def test_a_run_whose_last_target_is_moved_in_time_goes_on_in_its_slots(
    lab: Lab, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 5)
    gang = lab.start(gate.source(RESTLESS, before=TRAINING), brief())
    gang.wait_until(gate.is_reached, "it trains")
    gang.page.extend(30, is_last=True)
    gate.open()
    assert gang.ended().steps_completed == 30
    assert [record.target for record in gang.of(TargetReached)] == [Length("batches", 30)]
