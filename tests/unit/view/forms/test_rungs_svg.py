"""The picture of the rungs: whose mark is where, and what is worth drawing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.view import build_view_state
from det_jupyter.view.forms.rungs_svg import (
    rung_legend,
    rung_sentences,
    svg_rungs,
    trial_dots,
    worth_drawing,
)
from det_jupyter.view.making.search_view import trial_marks
from det_jupyter.view.model.search_state import Row, Search
from det_jupyter.view.model.status_looks import Mark, Status
from tests.unit.view.view_samples import search_experiment


def row(**changes: Any) -> Row:
    fields: dict[str, Any] = {
        "id": 1, "status": "running", "status_word": "Running", "bracket": 0, "rungs": [],
        "aim": 0, "marks": [], "best": None, "latest": None, "steps_completed": 0, "num_slots": 0,
        "values": [],
    }  # fmt: skip
    return {**fields, **changes}  # type: ignore[typeddict-item]


def halving(max_trials: int, num_results: int, *, is_over: bool = False) -> Search:
    view, curves, checkpoints, now = search_experiment(max_trials, num_results, is_over=is_over)
    search = build_view_state(view, curves, checkpoints, now)["search"]
    assert search is not None
    return search


@pytest.mark.parametrize(
    ("num_reached", "aim", "status", "marks"),
    [
        pytest.param(0, 0, "running", ["running"], id="a new trial trains to the lowest rung"),
        pytest.param(
            1,
            1,
            "running",
            ["promoted", "running"],
            id="a trial that was promoted is where it was and where it goes",
        ),
        pytest.param(
            1,
            1,
            "queued",
            ["promoted", "running"],
            id="a promoted trial that waits for slots goes there too",
        ),
        pytest.param(
            2,
            1,
            "resting",
            ["promoted", "resting"],
            id="a resting trial waits at the rung it has reached",
        ),
        pytest.param(
            1, 0, "resting", ["resting"], id="a trial without a metric is at its rung all the same"
        ),
        pytest.param(
            1,
            0,
            "stopped",
            ["stopped"],
            id="a trial that was stopped stays where it was compared last",
        ),
        pytest.param(
            3,
            2,
            "completed",
            ["promoted", "promoted", "finished"],
            id="a trial at the top has been trained to the end",
        ),
        pytest.param(
            1,
            1,
            "error",
            ["promoted", "error"],
            id="a trial that failed on its way failed there",
        ),
        pytest.param(
            1,
            0,
            "error",
            ["error"],
            id="a failed trial that counts as the worst at a rung failed there",
        ),
        pytest.param(
            1,
            0,
            "canceled",
            ["canceled"],
            id="a canceled trial that rested was canceled where it rested",
        ),
    ],
)
def test_marks_say_how_a_trial_stands_at_each_of_three_rungs(
    num_reached: int, aim: int, status: Status, marks: list[Mark]
) -> None:
    assert trial_marks(num_reached, aim, 3, status) == marks


def test_rungs_that_the_bracket_has_not_have_no_marks() -> None:
    assert trial_marks(2, 3, 1, "completed") == ["promoted"]


def test_dots_have_the_metric_of_their_rung_and_the_newest_beyond_it() -> None:
    shown = row(rungs=[0.5, None], aim=2, latest=0.6, marks=["promoted", "promoted", "running"])
    assert list(trial_dots(shown)) == [
        (0, "promoted", 0.5),
        (1, "promoted", None),
        (2, "running", 0.6),
    ]


def test_value_far_worse_than_most_is_not_worth_the_space() -> None:
    usual = [1.0, 1.1, 1.2, 1.3, 1.4]
    low, high = worth_drawing([*usual, 1e9], smaller_is_better=True)
    assert low < 1.0
    assert high < 10
    assert worth_drawing([*usual, 1e9], smaller_is_better=False)[1] >= 1e9  # it is the best


@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    smaller_is_better=st.booleans(),
)
def test_any_metrics_give_a_picture_inside_its_frame(
    values: list[float], smaller_is_better: bool
) -> None:
    search = halving(16, 4)
    rows = [
        row(id=i, rungs=[value], best=value, marks=["resting"]) for i, value in enumerate(values)
    ]
    search = {**search, "rows": rows, "smaller_is_better": smaller_is_better}
    places = re.findall(r"M([-\d.]+) ([-\d.]+)m", svg_rungs(search))
    assert len(places) >= len(values)
    for x, y in places:
        assert 0 <= float(x) <= 640
        assert 0 <= float(y) <= 220


def test_picture_has_a_mark_for_each_trial_at_each_rung() -> None:
    search = halving(300, 330)
    picture = svg_rungs(search)
    expected = sum(len(row["marks"]) for row in search["rows"])
    assert len(re.findall(r"M[-\d.]+ [-\d.]+m", picture)) == expected


def test_legend_has_words_for_what_is_drawn_only() -> None:
    going, over = (rung_legend(halving(64, 60, is_over=is_over)) for is_over in (False, True))
    assert "waiting to be promoted" in going
    assert "stopped" not in going
    assert "waiting to be promoted" not in over
    assert "stopped" in over


def test_search_without_brackets_has_no_picture() -> None:
    search: Search = {**halving(16, 4), "brackets": []}
    assert svg_rungs(search) == ""
    assert rung_sentences(search) == []


def test_rungs_are_told_in_words_too() -> None:
    search = halving(16, 14)
    [bracket] = search["brackets"]
    [sentence] = rung_sentences(search)
    assert sentence == (
        "1 epoch: 11 reached, 5 promoted · 4 epochs: 3 reached, 0 promoted · "
        "16 epochs: 0 reached, 0 promoted"
    )
    two: Search = {**search, "brackets": [bracket, bracket]}
    assert rung_sentences(two)[1].startswith("bracket 2 (14 trials): 1 epoch")
