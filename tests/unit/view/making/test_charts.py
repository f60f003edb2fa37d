"""From stored curves to drawn charts: grouping, order, looks."""

from __future__ import annotations

import pytest

from det_jupyter.view.making.charts import MAX_CHARTS, MAX_POINTS, build_charts, no_metrics
from det_jupyter.view.model.status_looks import Status
from tests.unit.view.view_samples import curve


def test_validation_metric_joins_the_training_metric_it_is_read_against() -> None:
    curves = [
        curve("batches", "loss", [3.0, 2.0]),
        curve("validation", "validation_loss", [2.5], stride=2),
        curve("validation", "accuracy", [0.5], stride=2),
    ]
    charts, more = build_charts(curves, "accuracy")
    assert [(c["title"], [s["label"] for s in c["series"]]) for c in charts] == [
        ("loss", ["training", "validation"]),
        ("accuracy", ["validation"]),
    ]
    assert [s["kind"] for s in charts[0]["series"]] == ["line", "points"]
    assert more == []


def test_group_keeps_its_look_from_chart_to_chart() -> None:
    curves = [
        curve("validation", "accuracy", [0.5]),
        curve("batches", "loss", [3.0]),
        curve("mine", "perplexity", [9.0]),
    ]
    charts, _ = build_charts(curves, "accuracy")
    looks = {c["title"]: c["series"][0]["look"] for c in charts}
    assert looks == {"loss": 0, "accuracy": 1, "perplexity": 2}


def test_metric_of_every_batch_takes_the_place_of_its_average() -> None:
    curves = [
        curve("training", "loss", [2.5], stride=2),
        curve("batches", "loss", [3.0, 2.0]),
        curve("training", "lr", [0.1]),
    ]
    charts, _ = build_charts(curves, "")
    assert [(c["title"], c["series"][0]["steps"]) for c in charts] == [
        ("loss", [1, 2]),
        ("lr", [1]),
    ]


def test_metrics_beyond_the_room_are_named_and_the_searchers_is_not_among_them() -> None:
    curves = [curve("validation", f"m{i}", [1.0]) for i in range(9)]
    charts, more = build_charts([curve("batches", "loss", [1.0]), *curves], "m8")
    assert len(charts) == MAX_CHARTS
    assert [c["title"] for c in charts[:3]] == ["loss", "m8", "m0"]
    assert more == ["m4", "m5", "m6", "m7"]


def test_numbers_under_a_chart_are_of_the_whole_curve() -> None:
    long = [float(i % 977) for i in range(5000)]
    [chart], _ = build_charts([curve("batches", "loss", [*long, None])], "")
    [series] = chart["series"]
    assert len(series["steps"]) <= MAX_POINTS
    assert (series["last"], series["lowest"], series["highest"]) == (None, 0.0, 976.0)


def test_curve_without_points_is_not_drawn() -> None:
    assert build_charts([curve("batches", "loss", [])], "loss") == ([], [])


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("starting", "No metrics yet: the first appear after the first training step."),
        ("running", "No metrics yet: the first appear after the first training step."),
        ("paused", "No metrics yet: the trial is not running."),
        ("error", "No metrics were reported."),
    ],
)
def test_a_view_without_charts_says_why(status: Status, sentence: str) -> None:
    assert no_metrics([], status) == sentence
    charts, _ = build_charts([curve("batches", "loss", [1.0])], "loss")
    assert no_metrics(charts, status) == ""


def test_points_of_one_report_are_spread_over_the_time_since_the_one_before() -> None:
    reported = curve("batches", "loss", [3.0, 2.0, 1.0, 0.5], times=[10.0, 10.0, 14.0, 14.0])
    later = curve("validation", "accuracy", [0.5], times=[15.0])
    charts, _ = build_charts([reported, later], "accuracy", {1: 4.0})
    loss, accuracy = (chart["series"][0] for chart in charts)
    assert loss["seconds"] == [0.0, 2.0, 4.0, 6.0]
    assert accuracy["seconds"] == [7.0]
    assert loss["steps_per_epoch"] == 4.0
