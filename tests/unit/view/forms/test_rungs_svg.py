"""The picture of the rungs: its marks, its legend, and its numbers in words."""

from __future__ import annotations

import re
from typing import Any

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
    near = [row(id=i, rungs=[value], marks=["resting"]) for i, value in enumerate([1.23456, 1.23457])]
    axis = metric_axis("loss", [1.23456, 1.23457], Direction.MINIMIZE)
    picture = svg_rungs({**halving(16, 4), "rows": near, "rung_axis": axis})
    for x, text in re.findall(r'<text x="([-\d.]+)"[^>]*text-anchor="end"[^>]*>([^<]+)<', picture):
        assert float(x) - 5 * len(text) > 0


def test_headings_of_narrow_columns_are_shortened() -> None:
    search = halving(16, 4)
    rungs = [{**rung, "num_results": 1000, "num_promoted": 250}
             for rung in search["brackets"][0]["rungs"]]  # fmt: skip
    narrow: SearchState = {**search, "rung_width": 0.04, "rows": [],
                           "brackets": [{**search["brackets"][0], "rungs": rungs}]}  # fmt: skip
    headings = re.findall(r'text-anchor="middle"[^>]*>([^<]+)<', svg_rungs(narrow))
    assert "100…" in headings


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
