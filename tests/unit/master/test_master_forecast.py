"""How long training takes, from the records of earlier trials."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.master.views.forecast import (
    PaceFinder,
    batches_per_epoch,
    fill_times,
    measured_pace,
    places_for,
    preview_view,
)
from det_jupyter.searcher.preview import Preview, preview
from det_jupyter.wire import AgentView, Pace, PreviewView
from tests.unit.view.view_samples import slot

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


def planned(**searcher: Any) -> tuple[ExperimentConfig, Preview]:
    config = parse_config(
        {
            "entrypoint": "Cat",
            "hyperparameters": {"global_batch_size": 50},
            "searcher": {"name": "random", "metric": "error", "max_trials": 4, **searcher},
            "records_per_epoch": 1000 if "epochs" in searcher["max_length"] else 0,
        },
        default_seed=1,
    )
    return config, preview(config)


def times(finder: PaceFinder, plan: Preview, *, slots: int, places: int) -> PreviewView:
    return fill_times(preview_view(plan, [], []), plan, finder, slots=slots, places=places)


def test_seconds_per_batch_tell_the_time_on_the_slots_that_are_there() -> None:
    config, plan = planned(max_length={"batches": 100})
    view = times(PaceFinder(config, plan.unit, 0.5), plan, slots=5, places=2)
    assert view.pace == Pace(unit="batches", seconds_per_unit=0.5, source="as given")
    assert (view.slots, view.concurrent, view.seconds) == (5, 2, 100.0)


@pytest.mark.parametrize(("length", "pace"), [({"epochs": 2}, 10.0), ({"records": 500}, 0.01)])
def test_batches_are_counted_by_the_batch_size(length: dict[str, int], pace: float) -> None:
    config, plan = planned(max_length=length)
    found = PaceFinder(config, plan.unit, 0.5).pace
    assert found is not None
    assert found.seconds_per_unit == pace


def test_an_earlier_experiment_says_how_fast_or_how_long_an_epoch_is() -> None:
    config, plan = planned(max_length={"batches": 100})
    finder = PaceFinder(config, plan.unit, None)
    assert finder.why_none == "no trial of Cat has trained here yet; give --seconds-per-batch"
    finder.look_at(7, [validation(1, 10.0, 20), validation(1, 12.0, 40)])
    assert finder.pace == Pace(
        unit="batches", seconds_per_unit=0.1, source="measured in experiment 7"
    )
    finder = PaceFinder(config, "epochs", 0.5)
    finder.look_at(7, [validation(1, 1.0, 44, {"batches": 44.0, "epochs": 2.0})])
    assert finder.pace is not None
    assert finder.pace.seconds_per_unit == 11.0
    assert finder.pace.source == "as given, with 22 batches an epoch as in experiment 7"


def test_what_cannot_be_told_is_said() -> None:
    config, plan = planned(max_length={"batches": 100})
    assert PaceFinder(config, "epochs", 0.5).why_none.startswith("nothing says how many batches")
    finder = PaceFinder(config, plan.unit, 0.5)
    nowhere = times(finder, plan, slots=0, places=0)
    assert (nowhere.pace, nowhere.no_pace) == (None, "no computer is connected now")
    small = times(finder, plan, slots=2, places=0)
    assert small.no_pace == "a trial needs more slots than any computer here has"
