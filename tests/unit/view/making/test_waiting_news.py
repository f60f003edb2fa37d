"""Where nothing can be drawn anew, each reason is told once."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import Estimate, HolderView, Reason
from det_jupyter.view import WaitingNews
from tests.unit.view.view_cluster_samples import NOW, reason, waiting_trial
from tests.unit.view.view_samples import experiment, trial

LINE = "experiment 7 “digits”: trial 1 waits: needs 4 slots"


def short(**changes: Any) -> Reason:
    return reason(1, **{"sentence": "needs 4 slots", "holders": [holder()], **changes})


def holder(**changes: Any) -> HolderView:
    fields: dict[str, Any] = {
        "experiment_id": 3, "experiment_name": "resnet", "trial_ids": [4], "slots": 4,
        "priority": 42, "since": NOW,
    }  # fmt: skip
    return HolderView(**{**fields, **changes})


def told(*reasons: Reason) -> list[str]:
    news = WaitingNews()
    view = experiment(waiting_trial())
    return [news.line(view, {1: each}) for each in reasons]


def test_reason_is_told_once() -> None:
    assert told(short(), short()) == [LINE, ""]


@pytest.mark.parametrize(
    "changes",
    [
        {"sentence": "needs 4 slots, about 14:20"},
        {"expected": Estimate(at=NOW, earliest=NOW, latest=None, basis="by a guess")},
        {"expected": None, "why_unknown": "nobody knows"},
        {"position": 3},
        {"free": 1},
    ],
)
def test_new_estimate_or_place_is_no_news(changes: dict[str, Any]) -> None:
    assert told(short(), short(**changes)) == [LINE, ""]


def test_a_search_that_waits_for_its_own_trials_is_no_news() -> None:
    own = holder(experiment_id=7, is_leaving=True)
    assert told(short(holders=[own])) == [""]
    assert told(short(holders=[own, holder()])) == [LINE]
    assert told(short(holders=[own], ahead=[5])) == [LINE]


@pytest.mark.parametrize(
    "changes",
    [
        {"cause": "turn"},
        {"slots": 2},
        {"holders": [holder(experiment_id=9)]},
        {"holders": [holder(is_leaving=True)]},
        {"ahead": [5]},
    ],
)
def test_other_reason_is_news(changes: dict[str, Any]) -> None:
    assert told(short(), short(**changes)) == [LINE, LINE]


def test_same_reason_is_news_again_after_the_trial_has_run() -> None:
    news = WaitingNews()
    waits, runs = experiment(waiting_trial()), experiment(trial())
    assert [news.line(view, {1: short()}) for view in (waits, runs, waits)] == [LINE, "", LINE]


def test_nothing_is_told_while_another_trial_of_the_experiment_runs() -> None:
    view = experiment(trial(id=2), waiting_trial())
    assert WaitingNews().line(view, {1: short()}) == ""


def test_nothing_is_told_while_no_reason_is_known() -> None:
    assert WaitingNews().line(experiment(waiting_trial()), {}) == ""


def test_odd_names_cannot_move_the_cursor() -> None:
    view = experiment(waiting_trial(), name="two\nlines\x1b[2J")
    line = WaitingNews().line(view, {1: short(sentence="bad\x1b[31m\nnews")})
    assert line == "experiment 7 “two lines”: trial 1 waits: bad news"
