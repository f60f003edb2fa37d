"""What a tracker gets of a trial."""

from __future__ import annotations

import math
from typing import Any

from det_jupyter.contract.messages import (
    AllocationState,
    Change,
    ExperimentView,
    FeedItem,
    State,
    TrialChangeView,
    Verdict,
)
from det_jupyter.trackers.contents import (
    Last,
    Point,
    facts_of,
    points_in,
    remark_on,
    rows_of,
    take_new,
)
from tests.unit.view.view_samples import (
    CREATED_AT,
    allocation,
    checkpoint,
    curve,
    experiment,
    failure,
    trial,
)


def item(record: dict[str, Any], kind: Any = "metrics") -> FeedItem:
    return FeedItem(seq=1, at=9.0, kind=kind, experiment_id=7, trial_id=1, data=record)


def test_points_have_group_step_and_time_of_their_report() -> None:
    validation = {
        "kind": "metrics",
        "at": 5.0,
        "group": "validation",
        "steps_completed": 20,
        "metrics": {"error": 0.5, "note": "text", "loss": "NaN"},
    }
    error, loss = points_in(item(validation))
    assert error == Point("validation/error", 20, 5.0, 0.5)
    assert loss.key == "validation/loss"
    assert math.isnan(loss.value)
    batches = {"kind": "batch_metrics", "at": 6.0, "first": 3, "values": {"loss": [1.0, 0.5]}}
    assert list(points_in(item(batches))) == [
        Point("batches/loss", 3, 6.0, 1.0),
        Point("batches/loss", 4, 6.0, 0.5),
    ]
    assert list(points_in(item({"state": "ACTIVE"}, "trial"))) == []


def test_steps_that_are_reported_again_after_a_restart_are_left_out() -> None:
    steps: dict[str, Last] = {"training/loss": (10, 0.0)}
    again = [Point("training/loss", step, 1.0, 0.0) for step in (9, 10, 11)]
    other = Point("validation/error", 10, 1.0, 0.0)
    assert take_new([*again, other], steps) == [again[-1], other]
    assert take_new([*again, other], steps) == []
    assert steps == {"training/loss": (11, 0.0), "validation/error": (10, 0.0)}
    later = Point("validation/error", 10, 2.0, 0.5)
    assert take_new([other, later], steps) == [later]  # the last one of its step


def test_a_metric_that_has_no_point_yet_gets_its_first_at_any_step() -> None:
    first = [Point("training/loss", step, 1.0, 0.0) for step in (0, 1)]
    assert take_new(first, {}) == first


def test_a_row_has_the_values_of_its_step_and_the_time_of_the_last() -> None:
    loss = curve("training", "loss", [0.5, None], steps=[20, 10], times=[7.0, 5.0])
    error = curve("validation", "error", [0.25, 0.75], steps=[20, 30], times=[6.0, 8.0])
    assert rows_of([error, loss])[1:] == rows_of([loss, error])[1:]
    (first, missing), *others = rows_of([loss, error])
    assert (first, sorted(missing), missing["_timestamp"]) == (
        10,
        ["_timestamp", "training/loss"],
        5.0,
    )
    assert math.isnan(missing["training/loss"])
    assert others == [
        (20, {"_timestamp": 7.0, "training/loss": 0.5, "validation/error": 0.25}),
        (30, {"_timestamp": 8.0, "validation/error": 0.75}),
    ]


def test_of_many_runs_that_have_changed_five_are_named() -> None:
    assert remark_on({3: {}}) == ""
    assert remark_on({3: {"is_deleted": True}}) == (
        "runs that are deleted there get nothing until they are restored (trial 3)"
    )
    again = {number: {"replaces": "x"} for number in range(1, 6)}
    assert remark_on(again).endswith("(trials 1, 2, 3, 4 and 5)")
    both = remark_on({**again, 6: {"replaces": "x"}, 7: {"replaces": "x"}, 8: {"is_deleted": 1}})
    assert both.endswith(
        "(trial 8); runs that were not there any more were made again "
        "(trials 1, 2, 3, 4, 5 and 2 more)"
    )


def sample() -> ExperimentView:
    view = experiment()
    own = {"labels": ["a", "b"], "description": "why"}
    return view.model_copy(update={"config": {**view.config, **own}})


def test_a_run_has_parameters_and_what_the_trial_has_come_to() -> None:
    verdict = Verdict(kind="healthy", sentence="Nothing to gain.", at=1.0, batches=5)
    one = trial(
        hparams={"lr": 0.1, "net": {"width": 32}}, verdict=verdict, failure=failure(error="no")
    )
    saved = [
        checkpoint(10, 0.5),
        checkpoint(20, 0.75),
        checkpoint(30, 0.25),
        checkpoint(40, 0.9, state="DELETED"),
        checkpoint(50, 0.9, trial_id=2),
    ]
    facts = facts_of(sample(), one, saved, computer="here")
    assert facts.params == {"lr": 0.1, "net.width": 32}
    assert (facts.labels, facts.description) == (["a", "b"], "why")
    assert facts.facts["verdict"] == "Nothing to gain."
    assert facts.facts["failure"] == "no"
    assert facts.facts["best_checkpoint"] == "checkpoint-20 (after 20 batches)"
    assert facts.facts["last_checkpoint"] == "checkpoint-30 (after 30 batches)"
    assert (facts.status, facts.began_at, facts.ended_at) == ("running", CREATED_AT, None)


def test_a_run_that_the_search_stopped_says_so() -> None:
    stopped = trial(state=State.COMPLETED, was_stopped=True, best_metric=0.123456789)
    facts = facts_of(sample(), stopped, [], computer="here")
    assert facts.facts["state"] == "STOPPED_EARLY"
    assert facts.facts["best_metric"] == "0.123457"
    assert "best_checkpoint" not in facts.facts
    assert facts_of(sample(), trial(), [], computer="here").facts["state"] == "ACTIVE"


def test_a_hyperparameter_that_was_changed_is_there_twice_with_the_batch() -> None:
    def changed(number: int, steps: int, before: float, after: float) -> TrialChangeView:
        return TrialChangeView(
            id=number,
            at=CREATED_AT,
            steps_completed=steps,
            text=f"lr {before} → {after}",
            former_hparams={"lr": before},
        )

    refused = TrialChangeView(id=3, at=CREATED_AT, change=Change(lr=1.0), error="no")
    changes = [changed(1, 100, 0.1, 0.01), changed(2, 200, 0.01, 0.02), refused]
    one = trial(hparams={"lr": 0.02, "width": 8}, changes=changes)
    facts = facts_of(sample(), one, [], computer="here")
    assert facts.params == {
        "lr": 0.1,
        "width": 8,
        "lr after batch 100": 0.01,
        "lr after batch 200": 0.02,
    }
    assert (
        facts.facts["changes"] == "lr 0.1 → 0.01 after batch 100; lr 0.01 → 0.02 after batch 200"
    )


def test_a_run_ends_as_its_trial() -> None:
    def status_of(**changes: Any) -> str:
        return facts_of(sample(), trial(**changes), [], computer="here").status

    assert status_of(allocation=None) == "waiting"
    assert status_of(allocation=allocation(AllocationState.STARTING)) == "waiting"
    assert status_of(state=State.COMPLETED) == "completed"
    assert status_of(state=State.CANCELED) == "canceled"
    assert status_of(state=State.ERROR) == "failed"


def test_a_number_too_large_for_a_float_is_no_point() -> None:
    record = {"at": 5.0, "group": "training", "steps_completed": 1, "metrics": {"n": 10**400}}
    assert list(points_in(item({"kind": "metrics", **record}))) == []
