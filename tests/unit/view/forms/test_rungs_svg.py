"""The picture of the rungs: its marks, its legend, and its numbers in words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from det_jupyter.contract.values.direction import Direction
from det_jupyter.view import build_view_state
from det_jupyter.view.forms.rungs_svg import rung_legend, rung_sentences, svg_rungs
from det_jupyter.view.making.axes import metric_axis
from det_jupyter.view.model.search_state import SearchState, TrialRow
from tests.unit.view.view_samples import search_experiment


def row(**changes: Any) -> TrialRow:
    fields: dict[str, Any] = {
        "id": 1, "status": "running", "status_word": "Running", "bracket": 0, "rungs": [],
        "aim": 0, "marks": [], "best": None, "latest": None, "steps_completed": 0, "num_slots": 0,
        "values": [],
    }  # fmt: skip
    return {**fields, **changes}  # type: ignore[typeddict-item]


def halving(max_trials: int, num_results: int, *, is_over: bool = False) -> SearchState:
    view, curves, checkpoints, now = search_experiment(max_trials, num_results, is_over=is_over)
    search = build_view_state(view, curves, checkpoints, now)["search"]
    assert search is not None
    return search


def test_picture_has_a_mark_for_each_trial_at_each_rung() -> None:
    search = halving(300, 330)
    picture = svg_rungs(search)
    expected = sum(len(row["marks"]) for row in search["rows"])
    assert len(re.findall(r"M[-\d.]+ [-\d.]+m", picture)) == expected


def test_long_numbers_of_the_axis_are_inside_of_the_picture() -> None:
    near = [
        row(id=i, rungs=[value], marks=["resting"]) for i, value in enumerate([1.23456, 1.23457])
    ]
    axis = metric_axis("loss", [1.23456, 1.23457], Direction.MINIMIZE)
    picture = svg_rungs({**halving(16, 4), "rows": near, "rung_axis": axis})
    for x, text in re.findall(r'<text x="([-\d.]+)"[^>]*text-anchor="end"[^>]*>([^<]+)<', picture):
        assert float(x) - 5 * len(text) > 0


@pytest.mark.parametrize(
    ("width", "names", "numbers"),
    [
        (60, "1 epoch, 4 epochs, 16 epochs", "400 → 100"),
        (45, "1, 4, 16", "400→100"),
        (30, "1, 4, 16", ""),
    ],
)
def test_headings_of_narrow_columns_are_short_and_no_number_is_cut(
    width: int, names: str, numbers: str
) -> None:
    search = halving(16, 4)
    [bracket] = search["brackets"]
    for rung in bracket["rungs"]:
        rung["num_results"], rung["num_promoted"] = 400, 100
    picture = svg_rungs({**search, "rung_width": width / 596, "rows": []})
    headings = re.findall(r'text-anchor="middle"[^>]*>([^<]*)<', picture)
    assert headings[::2] == names.split(", ")
    assert headings[1::2] == [numbers] * 3


def test_legend_has_words_for_what_is_drawn_only() -> None:
    going, over = (rung_legend(halving(64, 60, is_over=is_over)) for is_over in (False, True))
    assert "waiting to be promoted" in going
    assert "stopped" not in going
    assert "waiting to be promoted" not in over
    assert "stopped" in over


def test_search_without_brackets_has_no_picture() -> None:
    search: SearchState = {**halving(16, 4), "brackets": []}
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
    two: SearchState = {**search, "brackets": [bracket, bracket]}
    assert rung_sentences(two)[1].startswith("bracket 2 (14 trials): 1 epoch")
