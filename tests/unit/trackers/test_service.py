"""What a process that sends reads from the master: each once, and again when it has changed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.contract.messages import (
    CheckpointView,
    Curve,
    ExperimentView,
    FeedItem,
    TrackerProgress,
    TrackerWork,
    TrialView,
)
from det_jupyter.contract.messages.trackers import MOST_OF_PROBLEM
from det_jupyter.errors import NotFound
from det_jupyter.trackers.service import MasterFeed
from tests.unit.view.view_samples import checkpoint, curve, experiment, trial

WORK = TrackerWork(id=5, experiment_id=7, key="k", seq=0, runs={})


def item(seq: int, kind: Any, **data: Any) -> FeedItem:
    return FeedItem(seq=seq, at=9.0, kind=kind, experiment_id=7, trial_id=1, data=data)


class Master:
    """A master with one experiment; it notes what it is asked for."""

    def __init__(self, *feed: FeedItem) -> None:
        self.feed = feed
        self.asked: list[Any] = []

    def items(self, experiment_id: int, *, after: int) -> list[FeedItem]:
        self.asked.append(("items", experiment_id, after))
        return [each for each in self.feed if each.seq > after][:2]

    def experiment(self, number: int) -> ExperimentView:
        self.asked.append(("experiment", number))
        return experiment()

    def trial(self, number: int) -> TrialView:
        self.asked.append(("trial", number))
        return trial()

    def checkpoints(self, number: int) -> list[CheckpointView]:
        self.asked.append(("checkpoints", number))
        return [checkpoint(10, 0.5)]

    def curves(self, number: int) -> list[Curve]:
        return [curve("training", f"loss of {number}", [0.5])]

    def code(self, number: int) -> dict[str, str]:
        return {"train.py": f"# {number}"}

    def advance_tracker(self, number: int, progress: TrackerProgress) -> None:
        self.asked.append((number, progress))

    def tracker_work(self, group: str) -> list[TrackerWork]:
        return [WORK] if group == "group" else []


def source_of(master: Master) -> MasterFeed:
    return MasterFeed(cast("Any", master), "here")


def test_the_feed_is_read_some_items_at_a_time_until_there_are_no_more() -> None:
    master = Master(*(item(seq, "metrics") for seq in (3, 4, 6)))
    pages = list(source_of(master).pages(7, after=2))
    assert [[each.seq for each in page] for page in pages] == [[3, 4], [6]]
    assert master.asked == [("items", 7, 2), ("items", 7, 4), ("items", 7, 6)]


def test_an_experiment_and_its_checkpoints_are_asked_for_once() -> None:
    master = Master()
    source = source_of(master)
    for _ in range(2):
        facts = source.facts(7, 1)
    assert facts.facts["computer"] == "here"
    assert facts.facts["last_checkpoint"] == "checkpoint-10 (after 10 batches)"
    assert master.asked == [("checkpoints", 7), ("experiment", 7), ("trial", 1), ("trial", 1)]


@pytest.mark.parametrize(
    ("news", "asked_again"),
    [
        (item(1, "config"), [("experiment", 7)]),
        (item(1, "checkpoint"), [("checkpoints", 7)]),
        (item(1, "experiment"), []),
        (item(1, "trial"), []),
    ],
)
def test_what_has_changed_is_asked_for_again(news: FeedItem, asked_again: list[Any]) -> None:
    master = Master(news)
    source = source_of(master)
    source.facts(7, 1)
    assert len(list(source.pages(7, after=0))) == 1
    del master.asked[:]
    source.facts(7, 1)
    assert [asked for asked in master.asked if asked[0] != "trial"] == asked_again


def test_a_news_of_an_experiment_that_was_never_asked_for_is_no_fault() -> None:
    news = [item(1, "config"), item(2, "checkpoint")]
    assert len(list(source_of(Master(*news)).pages(7, after=0))) == 1


def test_curves_code_and_work_are_those_of_the_master() -> None:
    source = source_of(Master())
    assert [each.name for each in source.curves(7)] == ["loss of 7"]
    assert source.code(7) == {"train.py": "# 7"}
    assert source.work("group") == [WORK]


def test_the_code_of_an_experiment_that_is_not_stored_any_more_is_none() -> None:
    class Without(Master):
        def code(self, number: int) -> dict[str, str]:
            raise NotFound("it is not stored")

    assert source_of(Without()).code(7) == {}


def test_positions_and_problems_are_stored_by_the_master() -> None:
    master = Master()
    source = source_of(master)
    progress = TrackerProgress(seq=9, runs={1: {"run_id": "r"}})
    source.advance(WORK, 4, progress)
    source.report(WORK, "x" * 5000)
    source.report(WORK, "down", is_unreachable=True)
    advanced, reported, failed = master.asked
    assert advanced == (5, TrackerProgress(seq=9, runs={1: {"run_id": "r"}}, after=4))
    assert reported[0] == 5
    assert reported[1].seq is None
    assert len(reported[1].problem) == MOST_OF_PROBLEM
    assert failed == (5, TrackerProgress(problem="down", is_unreachable=True))
