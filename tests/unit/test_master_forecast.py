"""How long training takes, from the records of earlier trials."""

from __future__ import annotations

from typing import Any

from det_jupyter.master.forecast import batches_per_epoch, measured_pace, places_for
from det_jupyter.wire import AgentView
from tests.unit.view_samples import slot

Row = tuple[int, dict[str, Any]]


def validation(
    trial_id: int, at: float, steps: int, trained: dict[str, float] | None = None, **metrics: Any
) -> Row:
    return trial_id, {
        "kind": "metrics", "group": "validation", "at": at, "steps_completed": steps,
        "metrics": metrics, "trained": trained or {},
    }  # fmt: skip


def window(trial_id: int, at: float, first: int, losses: list[float]) -> Row:
    values = {"loss": losses}
    return trial_id, {"kind": "batch_metrics", "at": at, "first": first, "values": values}


def test_a_pace_is_the_time_between_validations() -> None:
    records = [validation(1, 10.0, 20), validation(1, 12.0, 40), validation(1, 14.0, 60)]
    assert measured_pace(records, "batches") == 0.1


def test_trials_are_measured_apart_and_their_rests_left_out() -> None:
    records = [
        validation(1, 10.0, 20, {"epochs": 1}),
        validation(2, 10.5, 20, {"epochs": 1}),
        validation(1, 12.0, 40, {"epochs": 2}),
        validation(2, 12.5, 40, {"epochs": 2}),
        validation(1, 500.0, 80, {"epochs": 4}),  # it rested between its rungs
    ]
    assert measured_pace(records, "epochs") == 2.0
    assert measured_pace(records, "records") is None


def test_without_validations_the_windows_of_batches_tell() -> None:
    records = [window(1, 10.0, 1, [0.0] * 50), window(1, 11.0, 51, [0.0] * 50)]
    assert measured_pace(records, "batches") == 0.02
    assert measured_pace(records, "epochs") is None
    assert measured_pace(records[:1], "batches") is None
    assert measured_pace([], "batches") is None


def test_a_time_metric_is_a_metric_of_the_validations() -> None:
    records = [
        validation(1, 10.0, 20, tokens=1000, error=0.5),
        validation(1, 12.0, 40, tokens=2000, error=0.4),
        validation(1, 12.0, 40, tokens="NaN", error=0.4),
    ]
    assert measured_pace(records, "tokens") == 0.002


def test_an_epoch_is_as_long_as_the_last_validation_says() -> None:
    trained = {"batches": 44.0, "epochs": 2.0}
    assert batches_per_epoch([validation(1, 1.0, 44, trained)]) == 22.0
    assert batches_per_epoch([validation(1, 1.0, 44)]) is None


def test_trials_fit_whole_into_an_agent() -> None:
    agents = [
        AgentView(
            id=str(n), hostname="", pid=1, connected=n != 9, slots=[slot(i) for i in range(n)]
        )
        for n in (3, 4, 9)
    ]
    assert places_for(2, agents) == (7, 3)
    assert places_for(4, agents) == (7, 1)
