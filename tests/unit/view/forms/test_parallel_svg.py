"""Parallel coordinates as a picture, and all trials of a search in the static card."""

from __future__ import annotations

import re

import pytest

from det_jupyter.contract.values.direction import Direction
from det_jupyter.view import build_view_state, render_html
from det_jupyter.view.forms.parallel_svg import svg_parallel
from det_jupyter.view.forms.text_lines import MAX_KEPT
from det_jupyter.view.making.axes import category_axis, metric_axis, number_axis
from det_jupyter.view.making.search_view import ranked
from det_jupyter.view.model.search_state import SearchState
from tests.unit.view.forms.test_rungs_svg import halving, row
from tests.unit.view.view_samples import search_experiment

AXES = [
    number_axis("lr", 1e-4, 0.1, is_log=True),
    number_axis("depth", 1, 9, is_whole=True),
    category_axis("kind", ["sgd", "adam"]),
]


def searched(*values: list[float | None]) -> SearchState:
    rows = [row(id=i, best=i / 10, values=each) for i, each in enumerate(values)]
    best = metric_axis("accuracy", [row["best"] for row in rows], Direction.MAXIMIZE)
    return {**halving(16, 4), "axes": AXES, "rows": rows, "best_axis": best}


def lines_of(search: SearchState) -> list[str]:
    picture = svg_parallel(search, ranked(search))
    return re.findall(r'<path d="([^"]*)" fill="none"', picture)


def test_each_trial_is_a_line_across_all_axes() -> None:
    [worst, best] = lines_of(searched([1e-4, 1, 0], [0.1, 9, 1]))
    assert worst == "M30 210.0L223 210.0L417 164.0L610 201.6"
    assert best == "M30 26.0L223 26.0L417 72.0L610 34.4"


def test_value_that_is_missing_leaves_a_gap() -> None:
    [line] = lines_of(searched([1e-4, None, 0]))
    assert line.count("M") == 2
    assert line.count("L") == 1


def test_axes_have_names_and_values() -> None:
    picture = svg_parallel(searched([1e-4, 1, 0]), ranked(searched([1e-4, 1, 0])))
    texts = re.findall(r">([^<>]+)</text>", picture)
    assert {"lr", "depth", "kind", "sgd", "adam", "1e-4", "0.1"} <= set(texts)


def test_lines_leave_room_for_labels() -> None:
    search = searched([1e-4, 1, 0])
    picture = svg_parallel(search, ranked(search))
    [lines] = re.findall(r'<g mask="url\(#free\)">(.*?)</g>', picture)
    assert "<path" in lines
    assert "<text" not in lines
    [mask] = re.findall(r'<mask id="free">(.*?)</mask>', picture)
    assert '<use href="#axes" stroke="#000"' in mask
    assert picture.count('<g id="axes">') == 1


def test_labels_of_many_axes_do_not_reach_the_next_axis() -> None:
    kinds = category_axis("a long name", ["mistralai/M…nstruct-v0.1", "sgd"])
    search: SearchState = {**searched([0] * 12), "axes": [kinds] * 12}
    picture = svg_parallel(search, ranked(search))
    for text in re.findall(r'text-anchor="(?:start|middle)"[^>]*>([^<]+)<', picture):
        assert len(text) * 5.2 <= 580 / 12, text


def test_labels_of_the_metric_have_room_at_the_right() -> None:
    best = metric_axis("loss", [0.999998, 0.999999], Direction.MINIMIZE)
    search: SearchState = {**searched([1e-4, 1, 0]), "best_axis": best}
    picture = svg_parallel(search, ranked(search))
    for text in best["tick_labels"]:
        [x] = re.findall(
            rf'<text x="([\d.]+)" y="[\d.]+" text-anchor="start"[^>]*>{text}<', picture
        )
        assert float(x) + 5 * len(text) < 640


def test_lines_of_many_trials_are_fainter() -> None:
    line: list[float | None] = [1e-4, 1, 0]
    few, many = (searched(*[line] * count) for count in (10, 300))
    opacities = [
        [float(found) for found in re.findall(r'stroke-opacity="([\d.]+)"', picture)]
        for picture in (svg_parallel(few, ranked(few)), svg_parallel(many, ranked(many)))
    ]
    assert max(opacities[1]) < max(opacities[0]) == 1


def test_search_without_a_metric_or_an_axis_has_no_picture() -> None:
    search = halving(16, 0)
    assert svg_parallel(search, ranked(search)) == ""
    search = {**searched([1e-4, 1, 0]), "axes": []}
    assert svg_parallel(search, ranked(search)) == ""


@pytest.mark.parametrize(("max_trials", "most"), [(200, 100_000), (1000, 200_000)])
def test_card_has_all_trials_up_to_a_bound(max_trials: int, most: int) -> None:
    view, curves, saved, now = search_experiment(max_trials, max_trials)
    state = build_view_state(view, curves, saved, now)
    assert state["search"] is not None
    html = render_html(state)
    num_trials = len(state["search"]["rows"])
    in_tables = [int(i) for i in re.findall(r'<tr><td style="text-align:left">(\d+)<', html)]
    assert len(set(in_tables)) == len(in_tables) == min(num_trials, MAX_KEPT)
    assert (f"the best {MAX_KEPT} of" in html) == (num_trials > MAX_KEPT)
    assert len(html) < most
