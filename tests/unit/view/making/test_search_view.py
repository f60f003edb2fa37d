"""From what the master says of a search to its trials, remarks and improvements in the view."""

from __future__ import annotations

import json
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    AllocationState,
    BracketView,
    Curve,
    Divergence,
    ExperimentView,
    RungView,
    SearchView,
    State,
    TrialView,
)
from det_jupyter.view import ViewState, build_view_state
from det_jupyter.view.making.experiment_facts import status_of
from det_jupyter.view.making.search_view import ranked
from det_jupyter.view.model.search_state import Improvement, SearchState, TrialRow
from tests.unit.view.view_samples import (
    CREATED_AT,
    allocation,
    curve,
    experiment,
    failure,
    search_experiment,
    trial,
)

NOW = CREATED_AT + 42


def halving(*trials: TrialView, **changes: Any) -> ExperimentView:
    """Return a search of one bracket with rungs at 1, 4 and 16 epochs."""
    rungs = [RungView(length={"epochs": float(length)}) for length in (1, 4, 16)]
    bracket = BracketView(rungs=rungs, max_trials=16)
    search = SearchView(name="async_halving", max_trials=16, brackets=[bracket])
    return experiment(*trials, **{"search": search, **changes})


def competitor(number: int, **changes: Any) -> TrialView:
    fields: dict[str, Any] = {"id": number, "index": number - 1, "bracket": 0, "allocation": None}
    return trial(**{**fields, **changes})


def built(view: ExperimentView, chosen_id: int | None = None) -> ViewState:
    return build_view_state(view, [], [], NOW, chosen_id=chosen_id)


def search_of(view: ExperimentView) -> SearchState:
    search = built(view)["search"]
    assert search is not None
    return search


def row_of(shown: TrialView, **changes: Any) -> TrialRow:
    [row, *_] = search_of(halving(shown, competitor(99), **changes))["rows"]
    return row


def test_experiment_of_one_trial_is_no_search() -> None:
    single = SearchView(name="single", max_trials=1)
    state = built(experiment(trial(), search=single))
    assert state["search"] is None
    assert len(state["trials"]) == 1


def test_search_is_one_before_its_second_trial_exists() -> None:
    state = built(halving(competitor(1)))
    assert state["search"] is not None
    assert state["trials"] == []


@pytest.mark.parametrize(
    ("changes", "status", "word"),
    [
        ({"allocation": allocation()}, "running", "Running"),
        ({"is_resting": True}, "resting", "Resting"),
        ({"allocation": allocation(AllocationState.STOPPING), "is_resting": True}, "pausing",
         "Pausing"),
        ({"state": State.COMPLETED, "was_stopped": True}, "stopped", "Stopped early"),
        ({"state": State.COMPLETED}, "completed", "Completed"),
        ({"state": State.CANCELED, "is_resting": True}, "canceled", "Canceled"),
    ],
)  # fmt: skip
def test_status_of_a_trial_says_what_the_search_does_with_it(
    changes: dict[str, Any], status: str, word: str
) -> None:
    row = row_of(competitor(1, **changes))
    assert (row["status"], row["status_word"]) == (status, word)


@pytest.mark.parametrize(
    ("changes", "aim"),
    [
        ({}, 0),
        ({"target": {"epochs": 1}}, 0),
        ({"target": {"epochs": 4}, "rung_metrics": [0.5]}, 1),
        ({"target": {"epochs": 1}, "rung_metrics": [0.5], "is_resting": True}, 0),
        ({"target": {"epochs": 16}, "rung_metrics": [0.5, 0.6, 0.7]}, 2),
        ({"rung_metrics": [0.5]}, 1),  # no target: it goes on to the next
        ({"rung_metrics": [0.5], "state": State.COMPLETED}, 0),
        ({"rung_metrics": [0.5, 0.6, 0.7], "state": State.COMPLETED}, 2),
    ],
)
def test_aim_is_the_rung_of_the_target(changes: dict[str, Any], aim: int) -> None:
    assert row_of(competitor(1, **changes))["aim"] == aim


def test_row_has_few_digits_and_no_nan() -> None:
    row = row_of(competitor(1, best_metric=1 / 3, latest_metric=float("nan"), rung_metrics=[None]))
    assert (row["best"], row["latest"], row["rungs"]) == (0.333333, None, [None])


def test_counts_have_every_trial_once() -> None:
    trials = [
        competitor(1, allocation=allocation()),
        competitor(2, allocation=allocation(AllocationState.STARTING)),
        competitor(3),
        competitor(4, is_resting=True),
        competitor(5, state=State.COMPLETED),
        competitor(6, state=State.COMPLETED, was_stopped=True),
        competitor(7, state=State.ERROR),
        competitor(8, state=State.CANCELED),
    ]
    assert search_of(halving(*trials))["counts"] == {
        "done": 2,
        "running": 2,
        "resting": 1,
        "waiting": 1,
        "failed": 1,
        "canceled": 1,
    }


def test_rungs_are_named_by_their_lengths() -> None:
    rung = RungView(length={"wall_s": 2.5}, num_results=3, num_promoted=1)
    bracket = BracketView(rungs=[rung, RungView(length={"epochs": 1.0})], max_trials=4)
    search = SearchView(name="adaptive_asha", max_trials=4, brackets=[bracket])
    [shown] = search_of(halving(competitor(1), search=search))["brackets"]
    assert [(r["label"], r["short_label"], r["num_results"]) for r in shown["rungs"]] == [
        ("2.5 wall_s", "2.5", 3),
        ("1 epoch", "1", 0),
    ]


def test_trials_without_a_metric_rank_last() -> None:
    metrics = {1: None, 2: 0.4, 3: 0.9, 4: float("nan"), 5: 0.9}
    view = halving(*(competitor(i, best_metric=metric) for i, metric in metrics.items()))
    assert [row["id"] for row in ranked(search_of(view))] == [3, 5, 2, 1, 4]
    smaller = {"searcher": {"metric": "loss", "smaller_is_better": True}}
    losses = search_of(view.model_copy(update={"config": smaller}))
    assert [row["id"] for row in ranked(losses)] == [2, 3, 5, 1, 4]


def test_trial_without_a_metric_at_a_rung_is_said_to_count_as_the_worst() -> None:
    view = halving(competitor(7, rung_metrics=[0.5, None]), competitor(8, rung_metrics=[0.5]))
    assert search_of(view)["remarks"] == [
        {
            "trial_ids": [7],
            "is_failure": False,
            "text": "trial 7 reported no accuracy at 4 epochs: counted as the worst",
        }
    ]


def test_trials_of_which_the_same_is_to_be_said_share_a_remark() -> None:
    failed = {"state": State.ERROR, "failure": failure(error="ValueError: no\nsuch file")}
    view = halving(*(competitor(i, **failed) for i in range(1, 9)))
    assert search_of(view)["remarks"] == [
        {
            "trial_ids": [1, 2, 3, 4, 5],
            "is_failure": True,
            "text": "trials 1, 2, 3, 4, 5 and 3 more failed: ValueError: no such file",
        }
    ]


def test_remarks_without_room_are_counted() -> None:
    trials = [
        competitor(i, state=State.ERROR, failure=failure(error=f"ValueError: {i}"))
        for i in range(1, 8)
    ]
    search = search_of(halving(*trials))
    assert (len(search["remarks"]), search["num_more_remarks"]) == (4, 3)


def test_a_trial_that_diverged_to_its_end_is_remarked_on_as_failed() -> None:
    lost = Divergence(metric="loss", value="NaN", since=40)
    search = search_of(halving(competitor(1, state=State.ERROR, divergence=lost), competitor(2)))
    assert [(remark["text"], remark["is_failure"]) for remark in search["remarks"]] == [
        ("trial 1 failed: loss is NaN since batch 40", True)
    ]


def test_without_rungs_a_finished_trial_without_a_metric_is_remarked_on() -> None:
    flat = SearchView(name="random", max_trials=2)
    view = halving(
        competitor(1, bracket=None, state=State.COMPLETED),
        competitor(2, bracket=None),
        search=flat,
    )
    assert [remark["text"] for remark in search_of(view)["remarks"]] == [
        "trial 1 reported no accuracy: counted as the worst"
    ]


def accuracies(trial_id: int, *points: tuple[float, float | None]) -> Curve:
    """Return validations of a trial: seconds after the start, and value."""
    times = [CREATED_AT + after_s for after_s, _ in points]
    values = [value for _, value in points]
    return curve("validation", "accuracy", values, trial_id=trial_id, times=times)


def improvements(*curves: Curve, now: float = NOW) -> list[Improvement]:
    view = halving(*(competitor(i, best_metric=0.1) for i in range(1, 4)))
    search = build_view_state(view, curves, [], now)["search"]
    assert search is not None
    return search["improvements"]


def test_improvements_are_dated_by_their_reports_and_stay_where_they_are() -> None:
    reports = [
        accuracies(1, (5, 0.7), (8, 0.8)),
        accuracies(2, (2, 0.6)),
        accuracies(3, (6, 0.65), (7, None), (30, 0.9)),
        curve("training", "accuracy", [1.0]),
    ]
    expected = [
        {"after_s": 2.0, "value": 0.6, "trial_id": 2},
        {"after_s": 5.0, "value": 0.7, "trial_id": 1},
        {"after_s": 8.0, "value": 0.8, "trial_id": 1},
        {"after_s": 30.0, "value": 0.9, "trial_id": 3},  # of a trial that runs
    ]
    assert improvements(*reports) == expected
    assert improvements(*reports, now=NOW + 1000) == expected


def test_of_several_values_reported_at_once_only_the_best_is_an_improvement() -> None:
    reports = [accuracies(number, (42, number / 10)) for number in range(1, 4)]
    assert improvements(*reports) == [{"after_s": 42.0, "value": 0.3, "trial_id": 3}]


def test_what_a_search_waits_for_is_said_while_nothing_runs() -> None:
    waiting = competitor(1, waiting_for="Needs 4 slots; 2 of 8 are free.")
    wait = search_of(halving(waiting))["wait"]
    assert wait is not None
    assert wait["sentence"] == "Needs 4 slots; 2 of 8 are free."
    running = competitor(2, allocation=allocation())
    assert search_of(halving(waiting, running))["wait"] is None


def test_chosen_trial_is_shown_as_if_there_was_no_other() -> None:
    view = halving(competitor(1), competitor(2, allocation=allocation()))
    curves = [curve("batches", "loss", [2.0, 1.0], trial_id=trial_id) for trial_id in (1, 2)]
    state = build_view_state(view, curves, [], NOW, chosen_id=2)
    assert state["search"] is not None
    chosen = state["search"]["chosen"]
    assert chosen is not None
    assert (chosen["trial"]["id"], len(chosen["trial"]["ranks"])) == (2, 2)
    assert [series["label"] for series in chosen["charts"][0]["series"]] == ["training"]


@pytest.mark.parametrize("chosen_id", [None, 77])
def test_no_trial_is_chosen_without_a_choice(chosen_id: int | None) -> None:
    state = built(halving(competitor(1), competitor(2)), chosen_id=chosen_id)
    assert state["search"] is not None
    assert state["search"]["chosen"] is None


def test_search_that_the_master_tells_nothing_of_has_a_view() -> None:
    state = built(experiment(competitor(1, bracket=None), competitor(2, bracket=3)))
    assert state["search"] is not None
    assert state["search"]["max_trials"] == 2
    assert [row["bracket"] for row in state["search"]["rows"]] == [None, None]


def test_state_of_a_long_search_is_plain_json_and_small_but_for_its_rows() -> None:
    view, curves, checkpoints, now = search_experiment(1000, 1100)
    state = build_view_state(view, curves, checkpoints, now, chosen_id=5)
    assert state["search"] is not None
    text = json.dumps(state, allow_nan=False)
    assert json.loads(text) == state
    rows = json.dumps(state["search"]["rows"])
    assert len(rows) < 300 * len(state["search"]["rows"])
    assert len(text) - len(rows) < 60_000


def test_a_search_whose_trials_go_to_rest_is_running() -> None:
    view, *_ = search_experiment(4, 2)
    for shown in view.trials:
        shown.allocation = None
    view.trials[0].allocation = allocation(AllocationState.STOPPING)
    assert status_of(view) == "running"
    view.state = State.PAUSING
    assert status_of(view) == "pausing"
    view.state = State.PAUSED
    assert status_of(view) == "paused"
