"""What is printed while an experiment is followed: each reason and each hang once."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Estimate,
    ExperimentView,
    HangReport,
    HolderView,
    RankStall,
    Reason,
    SearchView,
    State,
    TrialView,
)
from det_jupyter.view import HangNews, ViewState, WaitingNews, build_view_state
from det_jupyter.view.forms.news import first_wait
from tests.unit.view.view_cluster_samples import NOW, reason, waiting_trial
from tests.unit.view.view_samples import allocation, experiment, trial

LINE = "experiment 7 “digits”: trial 1 waits: needs 4 slots"


def short(**changes: Any) -> Reason:
    return reason(1, **{"sentence": "needs 4 slots", "holders": [holder()], **changes})


def holder(**changes: Any) -> HolderView:
    fields: dict[str, Any] = {
        "experiment_id": 3, "experiment_name": "resnet", "trial_ids": [4], "slots": 4,
        "priority": 42, "since": NOW,
    }  # fmt: skip
    return HolderView(**{**fields, **changes})


def state_of(view: ExperimentView, waits: Reason | None = None) -> ViewState:
    return build_view_state(view, [], [], NOW, reasons={} if waits is None else {1: waits})


def lines(*reasons: Reason) -> list[str]:
    news = WaitingNews()
    view = experiment(waiting_trial())
    return [news.line(state_of(view, each)) for each in reasons]


def test_a_reason_is_printed_once() -> None:
    assert lines(short(), short()) == [LINE, ""]


@pytest.mark.parametrize(
    "changes",
    [
        {"sentence": "needs 4 slots, about 14:20"},
        {"expected": Estimate(at=NOW, earliest=NOW, latest=None, basis="by a guess")},
        {"expected": None, "why_unknown": "it is not known"},
        {"position": 3},
        {"free": 1},
    ],
)
def test_new_estimate_or_place_is_no_news(changes: dict[str, Any]) -> None:
    assert lines(short(), short(**changes)) == [LINE, ""]


def test_a_search_that_waits_for_its_own_trials_is_no_news() -> None:
    own = holder(experiment_id=7, is_leaving=True)
    assert lines(short(holders=[own])) == [""]
    assert lines(short(holders=[own, holder()])) == [LINE]
    assert lines(short(holders=[own], ahead=[5])) == [LINE]


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
    assert lines(short(), short(**changes)) == [LINE, LINE]


def test_same_reason_is_news_again_after_the_trial_has_run() -> None:
    news = WaitingNews()
    waits, runs = experiment(waiting_trial()), experiment(trial())
    found = [news.line(state_of(view, short())) for view in (waits, runs, waits)]
    assert found == [LINE, "", LINE]


def test_nothing_is_printed_while_another_trial_of_the_experiment_runs() -> None:
    view = experiment(trial(id=2), waiting_trial())
    assert WaitingNews().line(state_of(view, short())) == ""


def test_nothing_is_printed_while_no_reason_is_known() -> None:
    assert WaitingNews().line(state_of(experiment(waiting_trial()))) == ""


def test_odd_names_cannot_move_the_cursor() -> None:
    view = experiment(waiting_trial(), name="two\nlines\x1b[2J")
    line = WaitingNews().line(state_of(view, short(sentence="bad\x1b[31m\nnews")))
    assert line == "experiment 7 “two lines”: trial 1 waits: bad news"


def hanging(since: float = 100.0, **changes: Any) -> TrialView:
    stall = RankStall(rank=1, kind="still", call="time.sleep")
    report = HangReport(since=since, at=since + 6, ranks=[stall])
    return trial(allocation=allocation().model_copy(update={"hang": report}), **changes)


def test_each_hang_has_a_line_and_another_when_it_is_over() -> None:
    news = HangNews()
    runs = experiment(trial())
    found = [
        [line.partition(": rank")[0] for line in news.lines(state_of(view))]
        for view in (runs, experiment(hanging()), experiment(hanging()),
                     experiment(hanging(since=200.0)), runs, runs)
    ]  # fmt: skip
    hangs = ["experiment 7 “digits”: trial 1 hangs"]
    gone = ["experiment 7 “digits”: trial 1 hangs no longer"]
    assert found == [[], hangs, [], hangs, gone, []]


@pytest.mark.parametrize("is_search", [False, True])
def test_a_hang_of_a_trial_that_has_ended_is_not_called_over(is_search: bool) -> None:
    search = SearchView(name="random", max_trials=4) if is_search else None
    news = HangNews()
    assert len(news.lines(state_of(experiment(hanging(), search=search)))) == 1
    killed = trial(state=State.CANCELED, allocation=None)
    assert news.lines(state_of(experiment(killed, search=search))) == []


@pytest.mark.parametrize("is_search", [False, True])
def test_the_first_wait_is_that_of_the_trial_or_of_the_search(is_search: bool) -> None:
    search = SearchView(name="random", max_trials=4) if is_search else None
    assert first_wait(state_of(experiment())) is None
    wait = first_wait(state_of(experiment(waiting_trial(), search=search), short()))
    assert wait is not None
    assert wait["sentence"] == "trial 1: needs 4 slots"[0 if is_search else 9 :]
