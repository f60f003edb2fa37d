"""The curves of many trials: which are drawn, how, and what is left out."""

from __future__ import annotations

from det_jupyter.contract.messages import Curve
from det_jupyter.view.making.search_charts import MAX_FAINT_POINTS, choose_trials, compare_trials
from det_jupyter.view.model.search_state import SearchState, TrialRow
from det_jupyter.view.model.trial_state import Chart
from tests.unit.view.forms.test_rungs_svg import halving, row
from tests.unit.view.view_samples import curve


def search_of(*rows: TrialRow) -> SearchState:
    return {**halving(16, 1), "rows": list(rows)}


def ranking(num_trials: int) -> SearchState:
    """Return a search of which trial 1 is the best, trial 2 the second, and so on."""
    return search_of(*(row(id=i, best=1 - i / 1000) for i in range(1, num_trials + 1)))


def labels(chart: Chart) -> tuple[list[str], list[str]]:
    """Return the curves with a colour, and the faint ones."""
    clear = [series["label"] for series in chart["series"] if not series["is_faint"]]
    return clear, [series["label"] for series in chart["series"] if series["is_faint"]]


def accuracies(num_trials: int) -> list[Curve]:
    return [curve("validation", "accuracy", [0.5], trial_id=i) for i in range(1, num_trials + 1)]


def test_best_trials_have_colours_and_some_others_are_faint() -> None:
    [chart], _ = compare_trials(accuracies(300), ranking(300), None)
    clear, faint = labels(chart)
    assert clear == ["trial 4", "trial 1", "trial 2", "trial 3"]
    assert faint == [f"trial {i}" for i in range(5, 25)]
    assert chart["hidden"] == 276


def test_chosen_trial_has_a_look_of_its_own() -> None:
    [chart], _ = compare_trials(accuracies(300), ranking(300), 222)
    looks = {s["trial_id"]: s["look"] for s in chart["series"] if not s["is_faint"]}
    assert looks == {4: 0, 1: 1, 2: 2, 3: 3, 222: 4}


def test_trial_keeps_its_look_when_another_becomes_better() -> None:
    before, _ = choose_trials(ranking(20), None)
    better = ranking(20)
    better["rows"][10]["best"] = 2.0  # trial 11 drives out trial 4
    after, _ = choose_trials(better, None)
    assert before == {1: 1, 2: 2, 3: 3, 4: 0}
    assert after == {1: 1, 2: 2, 3: 3, 11: 0}


def test_trials_that_hold_slots_are_among_the_faint_first() -> None:
    search = ranking(100)
    search["rows"][89]["num_slots"] = 2
    _, faint = choose_trials(search, None)
    assert list(faint)[:2] == [90, 5]


def test_searchers_metric_comes_first_and_groups_are_told_apart() -> None:
    curves = [
        curve(group, name, [1.0], trial_id=trial_id)
        for trial_id in (1, 2)
        for group, name in (
            ("batches", "loss"), ("validation", "loss"), ("validation", "accuracy")
        )
    ]  # fmt: skip
    charts, more = compare_trials(curves, ranking(2), None)
    assert [chart["title"] for chart in charts] == [
        "accuracy", "loss (training)", "loss (validation)"
    ]  # fmt: skip
    assert more == []


def test_metrics_beyond_the_room_are_named() -> None:
    curves = [curve("validation", f"m{i}", [1.0]) for i in range(9)]
    charts, more = compare_trials([*curves, *accuracies(1)], ranking(2), None)
    assert [chart["title"] for chart in charts] == ["accuracy", "m0", "m1", "m2"]
    assert more == ["m3", "m4", "m5", "m6", "m7", "m8"]


def test_faint_curve_is_an_average_of_few_points() -> None:
    noisy: list[float | None] = [1.0 + (-1) ** i for i in range(960)]
    noisy[0] = None
    [chart], _ = compare_trials([curve("batches", "loss", noisy, trial_id=5)], ranking(9), None)
    [series] = chart["series"]
    assert series["is_faint"]
    assert len(series["steps"]) == MAX_FAINT_POINTS
    assert series["steps"][-1] == 960
    assert series["values"][1:] == [1.0] * (MAX_FAINT_POINTS - 1)


def test_curve_without_a_finite_value_is_a_gap() -> None:
    [chart], _ = compare_trials(
        [curve("validation", "accuracy", [None, None], trial_id=7)], ranking(9), None
    )
    assert chart["series"][0]["values"] == [None, None]
