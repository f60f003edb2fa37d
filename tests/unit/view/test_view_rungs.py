"""The picture of the rungs: whose mark is where, and what is worth drawing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.view import build_view_state
from det_jupyter.view.forms.rungs import (
    rung_sentences,
    svg_rungs,
    trial_marks,
    worth_drawing,
)
from det_jupyter.view.model.experiment import Row, Search
from tests.unit.view.view_samples import search_experiment

CASES = json.loads(
    (Path(__file__).parents[3] / "labextension/test/rung-cases.json").read_text(encoding="utf-8")
)


def row(**changes: Any) -> Row:
    fields: dict[str, Any] = {
        "id": 1, "status": "running", "status_word": "Running", "bracket": 0, "rungs": [],
        "aim": 0, "best": None, "latest": None, "steps_completed": 0, "num_slots": 0, "values": [],
    }  # fmt: skip
    return {**fields, **changes}  # type: ignore[typeddict-item]


def halving(max_trials: int, num_results: int, *, is_over: bool = False) -> Search:
    view, curves, checkpoints, now = search_experiment(max_trials, num_results, is_over=is_over)
    search = build_view_state(view, curves, checkpoints, now)["search"]
    assert search is not None
    return search


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_marks_are_those_of_the_live_view(case: dict[str, Any]) -> None:
    marks = [list(mark) for mark in trial_marks(row(**case["row"]), case["num_rungs"])]
    assert marks == case["marks"]


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
        row(id=i, rungs=[value], best=value, status="resting") for i, value in enumerate(values)
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
    expected = sum(len(list(trial_marks(row, 3))) for row in search["rows"])
    in_legend = picture.count('<svg viewBox="0 0 10 12"')
    assert len(re.findall(r"M[-\d.]+ [-\d.]+m", picture)) == expected + in_legend


def test_legend_has_words_for_what_is_drawn_only() -> None:
    going, over = svg_rungs(halving(64, 60)), svg_rungs(halving(64, 60, is_over=True))
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
