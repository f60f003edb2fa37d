"""Remarks on the trials of a search: what is said of which, failures first."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.contract.messages import BracketView, ExperimentView, RungView, SearchView
from det_jupyter.view.making.search_view import find_remarks
from det_jupyter.view.model.search_state import TrialRow
from tests.unit.view.view_cluster_samples import leaving_for
from tests.unit.view.view_samples import experiment, failure, trial


def row(status: str = "completed", **changes: Any) -> TrialRow:
    fields = {"status": status, "best": 0.5, "bracket": None, "rungs": []}
    return cast(TrialRow, fields | changes)


def remarks(view: ExperimentView, *rows: TrialRow) -> list[tuple[str, list[int], bool]]:
    return [
        (each["text"], each["trial_ids"], each["is_failure"]) for each in find_remarks(view, rows)
    ]


def test_trials_that_failed_alike_share_a_remark_and_failures_come_first() -> None:
    view = experiment(
        trial(id=1, allocation=leaving_for(9)),
        trial(id=2, failure=failure(error="CUDA out of memory")),
        trial(id=3, failure=failure(error="CUDA out of\nmemory")),
        trial(id=4, failure=failure(error="other")),
    )
    rows = [row("running"), *[row("error")] * 3]
    assert remarks(view, *rows) == [
        ("trials 2 and 3 failed: CUDA out of memory", [2, 3], True),
        ("trial 4 failed: other", [4], True),
        ("trial 1 must make room for experiment 9", [1], False),
    ]


def test_a_failure_of_a_trial_that_runs_again_is_not_told() -> None:
    view = experiment(trial(id=1, failure=failure(error="once")))
    assert remarks(view, row("running")) == []


@pytest.mark.parametrize(
    ("num", "names", "num_named"),
    [
        (5, "1, 2, 3, 4 and 5", 5),
        (6, "1, 2, 3, 4, 5 and 6", 6),
        (7, "1, 2, 3, 4, 5 and 2 more", 5),
    ],
)
def test_five_trials_are_named(num: int, names: str, num_named: int) -> None:
    view = experiment(*(trial(id=i, failure=failure(error="no")) for i in range(1, num + 1)))
    named = [1, 2, 3, 4, 5, 6][:num_named]
    assert remarks(view, *[row("error")] * num) == [(f"trials {names} failed: no", named, True)]


@pytest.mark.parametrize(
    ("status", "best", "is_told"),
    [
        ("completed", None, True),
        ("completed", 0.5, False),
        ("running", None, False),
        ("error", None, False),
        ("canceled", None, False),
    ],
)
def test_a_trial_that_ended_without_the_metric_counted_as_the_worst(
    status: str, best: float | None, is_told: bool
) -> None:
    view = experiment(trial(id=1))
    metric = view.config["searcher"]["metric"]
    expected = [(f"trial 1 reported no {metric}: counted as the worst", [1], False)]
    assert remarks(view, row(status, best=best)) == (expected if is_told else [])


def test_in_a_bracket_it_is_told_of_each_rung_that_was_reached() -> None:
    rungs = [RungView(length={"batches": n}, num_results=1, num_promoted=0) for n in (10, 100)]
    bracket = BracketView.model_construct(rungs=rungs)
    search = SearchView.model_construct(brackets=[bracket])
    view = experiment(trial(id=1), trial(id=2)).model_copy(update={"search": search})
    metric = view.config["searcher"]["metric"]
    rows = [
        row("running", bracket=0, rungs=[None], best=None),
        row("completed", bracket=0, rungs=[0.5, None]),
    ]
    assert remarks(view, *rows) == [
        (f"trial 1 reported no {metric} at 10 batches: counted as the worst", [1], False),
        (f"trial 2 reported no {metric} at 100 batches: counted as the worst", [2], False),
    ]
