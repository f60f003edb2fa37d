"""Where trials stand at the rungs of a search, and where these are in its picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import BracketView, RungView
from det_jupyter.view.making.rungs import across, place_rungs, trial_dots, trial_marks
from det_jupyter.view.model.status_looks import Mark, Status

CASES = json.loads(
    (Path(__file__).parents[4] / "labextension/test/place-cases.json").read_text("utf-8")
)


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


@pytest.mark.parametrize(("row", "dots"), CASES["dots"])
def test_dots_of_a_trial_are_those_of_the_front_end(row: Any, dots: list[Any]) -> None:
    assert [list(dot) for dot in trial_dots(row)] == dots


@pytest.mark.parametrize(("trial_id", "share"), CASES["across"])
def test_marks_are_spread_over_a_column_as_in_the_front_end(trial_id: int, share: float) -> None:
    assert across(trial_id) == pytest.approx(share)


def brackets(*sizes: int) -> list[BracketView]:
    return [
        BracketView(rungs=[RungView(length={"epochs": 4.0**i}) for i in range(size)], max_trials=9)
        for size in sizes
    ]


def test_rungs_share_the_width_with_a_gap_between_brackets() -> None:
    placed, width = place_rungs(brackets(3, 2))
    assert [[rung["left"] for rung in one["rungs"]] for one in placed] == [
        [0.0, 0.1923, 0.3846], [0.6154, 0.8077],
    ]  # fmt: skip
    assert width == 0.1923
    assert [rung["label"] for rung in placed[1]["rungs"]] == ["1 epoch", "4 epochs"]


@pytest.mark.parametrize("num", [1, 40])
def test_any_number_of_brackets_is_inside_the_picture(num: int) -> None:
    placed, width = place_rungs(brackets(*[2] * num))
    lefts = [rung["left"] for one in placed for rung in one["rungs"]]
    assert lefts == sorted(lefts)
    assert lefts[-1] + width == pytest.approx(1, abs=1e-3)
    assert width > 0


def test_a_search_without_rungs_has_no_columns() -> None:
    assert place_rungs([])[0] == []
