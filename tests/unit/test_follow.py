"""The copy of an experiment that a view keeps: every item is applied once, in order."""

from __future__ import annotations

from typing import Any

from det_jupyter.client import LiveExperiment
from det_jupyter.wire import Capsule, Curve, ExperimentView, FeedItem, State


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


def test_batch_metrics_become_one_point_per_batch() -> None:
    copy = live()
    copy.apply(item(11, "metrics", batches(1, [3.0, 2.0])))
    copy.apply(item(12, "metrics", batches(3, [1.0])))
    curve = copy.curves[(1, "batches", "loss")]
    assert (curve.steps, curve.values) == ([1, 2, 3], [3.0, 2.0, 1.0])


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
    other = Curve(trial_id=2, group="batches", name="loss", steps=[1, 9], values=[1.0, 2.0])
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


def test_what_was_fetched_with_a_curve_is_not_added_again() -> None:
    fetched = Curve(trial_id=1, group="batches", name="loss", steps=[1, 2], values=[3.0, 2.0])
    copy = live([fetched], seq=10)  # the number was read before the curves were
    copy.apply(item(11, "metrics", batches(2, [2.0, 1.0])))
    assert copy.curves[(1, "batches", "loss")].steps == [1, 2, 3]
