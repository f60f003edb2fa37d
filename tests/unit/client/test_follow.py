"""The copy of an experiment that a view keeps: every item is applied once, in order.

Slots and queue come with it, fetched anew when they have changed, but not too often.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Follower, follow
from det_jupyter.client import follow as module
from det_jupyter.client.follow import ClusterRefresh, pause_and_wait
from det_jupyter.contract.messages import (
    Capsule,
    ClusterView,
    Curve,
    Curves,
    ExperimentView,
    FeedItem,
    QueueEntry,
    Reason,
    State,
    TrialView,
)
from det_jupyter.errors import Conflict, DetError, MasterUnreachable
from det_jupyter.view.live import LiveExperiment
from tests.unit.view.view_samples import experiment


def live(curves: list[Curve] | None = None, seq: int = 10) -> LiveExperiment:
    view = ExperimentView(
        id=1, name="x", state=State.ACTIVE, config={}, notebook=None, python="python", cwd="/",
        capsule=Capsule(entrypoint="X", payload="0", sources="1"), progress=0.0, created_at=0.0,
    )  # fmt: skip
    return LiveExperiment(view, curves or [], [], seq)


def item(seq: int, kind: Any, data: dict[str, Any]) -> FeedItem:
    return FeedItem(seq=seq, at=0.0, kind=kind, experiment_id=1, trial_id=1, data=data)


def batches(first: int, values: list[Any]) -> dict[str, Any]:
    return {"kind": "batch_metrics", "at": 0.0, "first": first, "values": {"loss": values}}


def validation(step: int, value: Any) -> dict[str, Any]:
    return {
        "kind": "metrics", "at": 0.0, "group": "validation", "steps_completed": step,
        "metrics": {"error": value},
    }  # fmt: skip


def test_a_copy_of_a_long_trial_stays_bounded_and_keeps_every_extreme() -> None:
    copy, drawn = live(), random.Random(3)
    values = [drawn.gauss(0, 1) for _ in range(60_000)]
    for first in range(0, len(values), 500):
        copy.apply(item(11 + first, "metrics", batches(1 + first, values[first : first + 500])))
        assert len(copy.curves[(1, "batches", "loss")].steps) <= 8000
    curve = copy.curves[(1, "batches", "loss")]
    assert (curve.steps[0], curve.steps[-1]) == (1, len(values))
    for begin in range(0, len(values), 1000):  # far more columns would be finer than the copy
        part = [
            v for s, v in zip(curve.steps, curve.values, strict=True) if begin < s <= begin + 1000
        ]
        assert len(part) > 20
    kept = [value for value in curve.values if value is not None]
    assert (min(kept), max(kept)) == (min(values), max(values))
    copy.apply(item(10**6, "truncated", {"steps_completed": 30_000}))
    assert max(copy.curves[(1, "batches", "loss")].steps) <= 30_000


def test_a_gap_that_is_longer_than_a_stretch_stays_a_gap() -> None:
    curves = Curves()
    curves.add(1, batches(1, [0.5] * 100 + ["NaN"] * 100 + [0.5] * 100))
    thinned = curves[(1, "batches", "loss")].thinned(12)
    assert len(thinned.steps) <= 26
    assert None in thinned.values


def test_batch_metrics_become_one_point_per_batch() -> None:
    copy = live()
    copy.apply(item(11, "metrics", batches(1, [3.0, 2.0])))
    copy.apply(item(12, "metrics", batches(3, [1.0])))
    curve = copy.curves[(1, "batches", "loss")]
    assert (curve.steps, curve.values) == ([1, 2, 3], [3.0, 2.0, 1.0])


def test_each_point_has_the_time_of_its_report() -> None:
    copy = live()
    copy.apply(item(11, "metrics", batches(1, [3.0, 2.0]) | {"at": 5.0}))
    copy.apply(item(12, "metrics", batches(2, [2.0, 1.0]) | {"at": 6.0}))
    copy.apply(item(13, "metrics", validation(3, 0.5) | {"at": 7.0}))
    assert copy.curves[(1, "batches", "loss")].times == [5.0, 6.0, 6.0]
    copy.apply(item(14, "truncated", {"steps_completed": 2}))
    assert copy.curves[(1, "batches", "loss")].times == [5.0, 6.0]
    assert copy.curves[(1, "validation", "error")].times == []


def test_an_item_that_the_copy_has_already_is_ignored() -> None:
    copy = live(seq=10)
    copy.apply(item(10, "metrics", batches(1, [3.0])))
    copy.apply(item(11, "metrics", batches(1, [3.0])))
    copy.apply(item(11, "metrics", batches(1, [3.0])))
    assert copy.curves[(1, "batches", "loss")].steps == [1]


def test_what_is_not_a_finite_number_has_no_value() -> None:
    copy = live()
    copy.apply(item(11, "metrics", validation(5, "NaN")))
    copy.apply(item(12, "metrics", validation(6, "Infinity")))
    copy.apply(item(13, "metrics", validation(7, "words")))
    copy.apply(item(14, "metrics", validation(8, 0.5)))
    curve = copy.curves[(1, "validation", "error")]
    assert curve.values == [None, None, None, 0.5]


def test_truncation_voids_later_points_of_that_trial_only() -> None:
    other = Curve(
        trial_id=2, group="batches", name="loss", steps=[1, 9], values=[1.0, 2.0], times=[0.0] * 2
    )
    copy = live([other])
    copy.apply(item(11, "metrics", batches(1, [3.0, 2.0, 1.0])))
    copy.apply(item(12, "truncated", {"steps_completed": 1}))
    copy.apply(item(13, "metrics", batches(2, [2.5])))
    assert copy.curves[(1, "batches", "loss")].values == [3.0, 2.5]
    assert copy.curves[(2, "batches", "loss")].steps == [1, 9]


def test_a_new_view_of_the_experiment_keeps_its_trials() -> None:
    copy = live()
    trial = {
        "id": 1, "experiment_id": 1, "state": "ACTIVE", "hparams": {}, "seed": 0, "created_at": 0,
    }  # fmt: skip
    copy.apply(item(11, "trial", trial))
    view = copy.experiment.model_dump(mode="json") | {"state": "PAUSED", "trials": []}
    copy.apply(item(12, "experiment", view))
    assert copy.experiment.state == "PAUSED"
    assert [t.id for t in copy.experiment.trials] == [1]


def test_what_an_item_leaves_out_is_as_it_was() -> None:
    copy = live()
    copy.experiment.config = {"name": "x", "large": [1] * 100}
    experiment = copy.experiment.model_dump(mode="json", exclude={"config", "capsule"})
    trial = TrialView(
        id=1, experiment_id=1, state=State.ACTIVE, hparams={"lr": 0.1}, seed=0, created_at=0.0
    )
    copy.apply(item(11, "trial", trial.model_dump(mode="json")))
    copy.apply(item(12, "experiment", experiment | {"progress": 0.5}))
    passing = trial.model_dump(mode="json", exclude={"hparams"}) | {"steps_completed": 3}
    copy.apply(item(13, "trial", passing))
    assert copy.experiment.progress == 0.5
    assert copy.experiment.config["large"] == [1] * 100
    assert copy.experiment.capsule.entrypoint == "X"
    assert (copy.experiment.trials[0].hparams, copy.experiment.trials[0].steps_completed) == (
        {"lr": 0.1},
        3,
    )
    copy.apply(item(14, "experiment", experiment | {"config": {"name": "y"}}))
    assert copy.experiment.config == {"name": "y"}


def test_what_was_fetched_with_a_curve_is_not_added_again() -> None:
    fetched = Curve(
        trial_id=1, group="batches", name="loss", steps=[1, 2], values=[3.0, 2.0], times=[0.0] * 2
    )
    copy = live([fetched], seq=10)  # the number was read before the curves were
    copy.apply(item(11, "metrics", batches(2, [2.0, 1.0])))
    assert copy.curves[(1, "batches", "loss")].steps == [1, 2, 3]


NOT_STOPPED = threading.Event()
ASKED = {"limit": 8, "experiment_id": 1}


class FakeClient:
    """Answers as a master that has one experiment and a queue."""

    def __init__(self, *queue: QueueEntry, error: DetError | None = None) -> None:
        self.queue = list(queue)
        self.error = error
        self.now = 100.0
        self.asked: list[dict[str, Any]] = []
        self.items: list[FeedItem | None] = []

    def experiment(self, experiment_id: int) -> ExperimentView:
        return live().experiment

    def curves(self, experiment_id: int, *, max_points: int) -> list[Curve]:
        return []

    def checkpoints(self, experiment_id: int) -> list[Any]:
        return []

    def cluster(self, **params: Any) -> ClusterView:
        self.asked.append(params)
        if self.error is not None:
            raise self.error
        return ClusterView(pools=[], queue=self.queue, num_waiting=len(self.queue), at=self.now)

    def feed(self, experiment_id: int, *, after: int) -> Generator[FeedItem | None, None, None]:
        yield from self.items


def waiting(trial_id: int, experiment_id: int = 1, position: int = 0) -> QueueEntry:
    return QueueEntry(
        trial_id=trial_id, experiment_id=experiment_id, experiment_name="", allocation_id="",
        pool="default", slots=1, priority=42, weight=1.0, queued_at=0.0, position=position,
        reason=Reason(trial_id=trial_id, cause="slots", sentence=f"trial {trial_id} waits"),
    )  # fmt: skip


def changed(at: float) -> FeedItem:
    return FeedItem(seq=11, at=at, kind="cluster", experiment_id=0, data={})


def watching(client: FakeClient, copy: LiveExperiment) -> ClusterRefresh:
    return ClusterRefresh(cast("Client", client), copy)


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_CLUSTER_PERIOD_S", 0.0)
    monkeypatch.setattr(follow, "_CLUSTER_SHARE", 0.0)


@pytest.mark.usefixtures("_fast")
def test_slots_and_queue_are_fetched_at_first_and_when_they_have_changed() -> None:
    client, copy = FakeClient(waiting(4), waiting(9, experiment_id=2)), live()
    watch = watching(client, copy)
    assert watch.refresh(NOT_STOPPED)
    assert copy.cluster is not None
    assert {id: reason.sentence for id, reason in copy.reasons.items()} == {4: "trial 4 waits"}
    assert not watch.refresh(NOT_STOPPED)
    watch.note(changed(at=101.0))
    assert watch.refresh(NOT_STOPPED)
    assert client.asked == [ASKED, ASKED]


@pytest.mark.usefixtures("_fast")
def test_change_that_the_copy_has_already_is_not_fetched_again() -> None:
    client, copy = FakeClient(), live()
    watch = watching(client, copy)
    watch.refresh(NOT_STOPPED)
    watch.note(changed(at=99.0))
    assert not watch.refresh(NOT_STOPPED)
    watch.note(changed(at=20.0))  # the master's clock was set back
    assert watch.refresh(NOT_STOPPED)


@pytest.mark.usefixtures("_fast")
def test_estimates_are_fetched_again_with_each_sign_of_life_while_something_waits() -> None:
    client, copy = FakeClient(waiting(4)), live()
    watch = watching(client, copy)
    watch.refresh(NOT_STOPPED)
    watch.note(None)
    client.queue.clear()
    assert watch.refresh(NOT_STOPPED)
    watch.note(None)
    assert not watch.refresh(NOT_STOPPED)


@pytest.mark.usefixtures("_fast")
def test_other_items_do_not_fetch_the_slots() -> None:
    client, copy = FakeClient(), live()
    watch = watching(client, copy)
    watch.refresh(NOT_STOPPED)
    watch.note(item(12, "metrics", batches(1, [3.0])))
    assert not watch.refresh(NOT_STOPPED)


def test_slots_that_were_fetched_just_now_wait_for_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "_CLUSTER_PERIOD_S", 60.0)
    client, copy = FakeClient(), live()
    watch = watching(client, copy)
    watch.refresh(NOT_STOPPED)
    watch.note(changed(at=101.0))
    stopped = threading.Event()
    stopped.set()
    assert not watch.refresh(stopped)
    assert client.asked == [ASKED]


def test_what_takes_long_to_fetch_is_fetched_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_CLUSTER_PERIOD_S", 0.0)
    monkeypatch.setattr(follow, "_CLUSTER_SHARE", 1e12)
    client, copy = FakeClient(), live()
    watch = watching(client, copy)
    watch.refresh(NOT_STOPPED)
    watch.note(changed(at=101.0))
    assert not watch.refresh(NOT_STOPPED)
    assert client.asked == [ASKED]


@pytest.mark.usefixtures("_fast")
def test_reasons_of_the_experiment_come_in_the_order_of_the_queue() -> None:
    far, near = waiting(4, position=70), waiting(5, position=60)
    client, copy = FakeClient(waiting(9, experiment_id=2), far, near), live()
    watching(client, copy).refresh(NOT_STOPPED)
    assert list(copy.reasons) == [5, 4]


def test_experiment_that_is_over_fetches_no_slots() -> None:
    client, copy = FakeClient(), live()
    copy.experiment.state = State.COMPLETED
    assert not watching(client, copy).refresh(NOT_STOPPED)
    assert client.asked == []


def test_refusal_to_tell_of_slots_leaves_the_rest_of_the_copy() -> None:
    client, copy = FakeClient(error=Conflict("not now")), live()
    watching(client, copy).refresh(NOT_STOPPED)
    assert copy.cluster is None


def test_master_that_is_gone_while_asked_for_slots_is_looked_for_anew() -> None:
    client, copy = FakeClient(error=MasterUnreachable("gone")), live()
    with pytest.raises(MasterUnreachable):
        watching(client, copy).refresh(NOT_STOPPED)


@pytest.mark.usefixtures("_fast")
def test_follower_shows_slots_and_queue() -> None:
    client = FakeClient(waiting(4))
    over = live().experiment.model_dump(mode="json") | {"state": "COMPLETED"}
    client.items = [None, changed(at=101.0), item(12, "experiment", over)]
    seen: list[int] = []
    follower = Follower(
        cast("Client", client), 1, lambda copy: seen.append(len(copy.reasons))
    ).start()
    follower.thread.join()
    assert follower.error is None
    assert client.asked == [ASKED, ASKED, ASKED]
    assert seen == [0, 1, 1, 1, 1, 0]


class Pausing:
    """A master whose experiment needs so many looks until its slots are free."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.waited_s: list[float] = []

    def view(self) -> ExperimentView:
        state = State.PAUSED if len(self.waited_s) >= self.looks else State.PAUSING
        return experiment(state=state)

    def change(self, request: Any) -> ExperimentView:
        return self.view()

    def experiment(self, experiment_id: int) -> ExperimentView:
        return self.view()


@pytest.mark.parametrize(
    ("looks", "timeout", "state"),
    [(0, None, State.PAUSED), (6, None, State.PAUSED), (10**6, 2.0, State.PAUSING)],
)
def test_a_pause_is_waited_for_until_slots_are_free_or_the_time_is_over(
    looks: int, timeout: float | None, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = Pausing(looks)
    clock = SimpleNamespace(
        monotonic=lambda: sum(master.waited_s), sleep=lambda s: master.waited_s.append(s)
    )
    monkeypatch.setattr(module, "time", clock)
    ended = pause_and_wait(cast("Client", master), 1, timeout, at_once=False)
    assert ended is state
    if timeout is None:
        assert len(master.waited_s) == looks
    else:
        assert sum(master.waited_s) == pytest.approx(timeout)
