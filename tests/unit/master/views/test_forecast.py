"""How long training takes, from the records of earlier trials."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.contract.messages import Pace, PreviewView
from det_jupyter.master.machine.model.state import Agent
from det_jupyter.master.views.forecast import (
    PaceFinder,
    batches_per_epoch,
    measured_pace,
    places_for,
    preview_view,
)
from det_jupyter.searcher.preview import Preview, preview
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
        Agent(
            id=str(n),
            session="",
            hostname="",
            pid=1,
            is_away=n == 9,
            slots=[slot(i) for i in range(n)],
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
    return config, preview(config.searcher, config.hyperparameters)


def times(finder: PaceFinder, plan: Preview, *, slots: int, places: int) -> PreviewView:
    return preview_view(plan, [], [], finder, slots=slots, places=places)


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
    finder.search(7, [validation(1, 10.0, 20), validation(1, 12.0, 40)])
    assert finder.pace == Pace(
        unit="batches", seconds_per_unit=0.1, source="measured in experiment 7"
    )
    finder = PaceFinder(config, "epochs", 0.5)
    finder.search(7, [validation(1, 1.0, 44, {"batches": 44.0, "epochs": 2.0})])
    assert finder.pace is not None
    assert finder.pace.seconds_per_unit == 11.0
    assert finder.pace.source == "as given, with 22 batches an epoch as in experiment 7"


def test_what_cannot_be_told_is_said() -> None:
    config, plan = planned(max_length={"batches": 100})
    assert PaceFinder(config, "epochs", 0.5).why_none.startswith("the number of batches in")
    finder = PaceFinder(config, plan.unit, 0.5)
    nowhere = times(finder, plan, slots=0, places=0)
    assert (nowhere.pace, nowhere.no_pace) == (None, "no computer is connected now")
    small = times(finder, plan, slots=2, places=0)
    assert small.no_pace == "a trial needs more slots than any computer here has"


@pytest.mark.parametrize(
    ("unit", "seconds_per_batch", "sentence"),
    [
        ("batches", None, "no trial of Cat has trained here yet; give --seconds-per-batch"),
        *(
            (unit, 0.5, f"the number of batches in the {unit} is not known; give "
             "records_per_epoch and a constant hyperparameters.global_batch_size")
            for unit in ("epochs", "records")
        ),
        ("tokens", 0.5, "the number of batches in the tokens is not known"),
    ],
)  # fmt: skip
def test_what_is_missing_for_a_pace_is_said(
    unit: str, seconds_per_batch: float | None, sentence: str
) -> None:
    config, _ = planned(max_length={"batches": 100})
    assert PaceFinder(config, unit, seconds_per_batch).why_none == sentence


@pytest.mark.parametrize(
    ("unit", "size", "records_per_epoch", "seconds"),
    [
        ("batches", "many", 0, 0.5),
        ("records", 50, 0, 0.01),
        ("records", 1, 0, 0.5),
        ("records", {"type": "const", "val": 50}, 0, 0.01),
        ("records", {"type": "int", "minval": 1, "maxval": 9}, 0, None),
        ("records", 0, 0, None),
        ("records", True, 0, None),
        ("records", 0.5, 0, None),
        ("epochs", 50, 1000, 10.0),
        ("epochs", 50, 0, None),
        ("tokens", 50, 1000, None),
    ],
)
def test_the_batch_size_tells_the_length_of_units(
    unit: str, size: Any, records_per_epoch: int, seconds: float | None
) -> None:
    config, _ = planned(max_length={"batches": 100})
    config = config.model_copy(
        update={
            "hyperparameters": {"global_batch_size": size},
            "records_per_epoch": records_per_epoch,
        }
    )
    pace = PaceFinder(config, unit, 0.5).pace
    assert (None if pace is None else pace.seconds_per_unit) == seconds


@pytest.mark.parametrize(
    ("unit", "seconds_per_batch", "seconds"),
    [("batches", 0.5, 0.5), ("epochs", 0.5, 11.0), ("records", 0.5, None), ("epochs", None, 3.0)],
)
def test_an_earlier_experiment_adds_what_the_user_has_not_said(
    unit: str, seconds_per_batch: float | None, seconds: float | None
) -> None:
    config, _ = planned(max_length={"batches": 100})
    config = config.model_copy(update={"hyperparameters": {}})
    finder = PaceFinder(config, unit, seconds_per_batch)
    finder.search(
        7,
        [
            validation(1, at, 22 * epoch, {"batches": 22.0 * epoch, "epochs": epoch})
            for epoch, at in ((1, 10.0), (2, 13.0))
        ],
    )
    assert (None if finder.pace is None else finder.pace.seconds_per_unit) == seconds
    finder.search(8, [])  # what another one does not say stays known
    assert (None if finder.pace is None else finder.pace.seconds_per_unit) == seconds


@pytest.mark.parametrize(
    ("times", "pace"),
    [
        ([0.0, 1.0, 2.0, 5.0], 5 / 3),  # three times as long as usual is no rest
        ([0.0, 1.0, 2.0, 5.1], 1.0),
        ([0.0, 1.0, 1.0, 2.0], 1.0),  # two reports of one moment
        ([5.0, 4.0, 3.0, 2.0], None),  # a clock that was set back
        ([5.0, 4.0, 3.0, 5.0], 2.0),
    ],
)
def test_only_training_makes_a_pace(times: list[float], pace: float | None) -> None:
    records = [validation(1, at, place + 1) for place, at in enumerate(times)]
    assert measured_pace(records, "batches") == pace


def test_only_progress_makes_a_pace() -> None:
    records = [validation(1, 1.0, 5), validation(1, 2.0, 5), validation(1, 3.0, 3)]
    assert measured_pace(records, "batches") is None
    assert measured_pace([*records, validation(1, 7.0, 5)], "batches") == 2.0
    others = [(trial, {**record, "group": "training"}) for trial, record in records]
    assert measured_pace([*others, validation(1, 9.0, 9)], "batches") is None


def test_the_last_validation_that_knows_says_how_long_an_epoch_is() -> None:
    known = [
        validation(1, 1.0, 44, {"batches": 44.0, "epochs": 2.0}),
        validation(1, 2.0, 66, {"batches": 60.0, "epochs": 3.0}),
    ]
    assert batches_per_epoch(known) == 20.0
    lacking: list[dict[str, float]] = [{}, {"epochs": 2.0}, {"batches": 9.0}, {"epochs": 0.0}]
    for trained in lacking:
        assert batches_per_epoch([*known, validation(1, 3.0, 88, trained)]) == 20.0


@pytest.mark.parametrize(("places", "concurrent", "seconds"), [(1, 1, 200.0), (9, 4, 50.0)])
def test_no_more_trials_run_at_once_than_there_are(
    places: int, concurrent: int, seconds: float
) -> None:
    config, plan = planned(max_length={"batches": 100})
    view = times(PaceFinder(config, plan.unit, 0.5), plan, slots=9, places=places)
    assert (view.concurrent, view.seconds, view.least_seconds) == (concurrent, seconds, seconds)
    assert (view.slots, view.no_pace) == (9, "")


def test_a_preview_says_what_would_train() -> None:
    config, plan = planned(max_length={"batches": 100})
    finder = PaceFinder(config, plan.unit, None)
    view = preview_view(plan, [], ["a notice"], finder, slots=0, places=0)
    assert (view.searcher, view.metric, view.unit, view.num_trials) == (
        "random", "error", "batches", 4,
    )  # fmt: skip
    assert [(each.length, each.num_trials) for each in view.trials] == [({"batches": 100}, 4)]
    assert (view.expected, view.least, view.most, view.full) == (400, 400, 400, 400)
    [bracket] = view.brackets
    assert (bracket.trials, bracket.max_concurrent_trials) == (view.trials, 4)
    assert (view.notices, view.ranges) == (["a notice"], [])


def test_a_window_is_as_long_as_its_longest_metric() -> None:
    records = [window(1, 10.0, 1, [0.0] * 50), window(1, 11.0, 51, [0.0] * 50)]
    for _, record in records:
        record["values"]["error"] = [0.0]
        record["values"] = dict(sorted(record["values"].items()))
    assert measured_pace(records, "batches") == 0.02
    records[1][1]["values"] = {}
    assert measured_pace(records, "batches") == 1.0  # one batch of which nothing is known
