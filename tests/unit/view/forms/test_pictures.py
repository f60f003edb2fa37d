"""Where things are in the pictures of a search, and what a reader sees of each kind of thing."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import pytest

from det_jupyter.contract.messages import (
    AllocationState,
    BracketView,
    RungView,
    SizeChange,
    SlotView,
    State,
)
from det_jupyter.contract.messages.status import state_status
from det_jupyter.contract.values.direction import Direction
from det_jupyter.view import build_view_state, render_html
from det_jupyter.view.forms.comparison_card import comparison_html, comparison_text
from det_jupyter.view.forms.html_parts import chart_grid
from det_jupyter.view.forms.notebook_output import key_id
from det_jupyter.view.forms.parallel_svg import svg_parallel
from det_jupyter.view.forms.rungs_svg import rung_legend, svg_rungs
from det_jupyter.view.forms.svg import as_image, svg_chart
from det_jupyter.view.forms.text_lines import importance_line, trial_rows, trial_title
from det_jupyter.view.making.axes import metric_axis, number_axis
from det_jupyter.view.making.charts import (
    Timelines,
    build_charts,
    last_values,
    measured_at,
    series_of,
)
from det_jupyter.view.making.comparison_view import build_comparison
from det_jupyter.view.making.experiment_facts import fraction, slot_label
from det_jupyter.view.making.results import Compared
from det_jupyter.view.making.rungs import place_rungs, trial_marks
from det_jupyter.view.making.search_view import search_summary
from det_jupyter.view.making.sidebar_lines import source_of
from det_jupyter.view.making.trial_view import build_changes, build_trial
from det_jupyter.view.model.search_state import SearchState
from tests.unit.view.forms.test_rungs_svg import halving, row
from tests.unit.view.view_samples import (
    CREATED_AT,
    allocation,
    capsule,
    curve,
    experiment,
    search_experiment,
    trial,
)

NOW = CREATED_AT + 42


def bracket(*lengths: float) -> BracketView:
    rungs = [RungView(length={"epochs": each}, num_results=3, num_promoted=1) for each in lengths]
    return BracketView(rungs=rungs, num_created=3, max_trials=4)


def texts(svg: str) -> list[tuple[str, str, str, str]]:
    return re.findall(r'<text x="([-\d.]+)" y="([-\d.]+)" text-anchor="(\w+)".*?>(.*?)<', svg)


def marks(svg: str) -> list[tuple[str, str]]:
    return re.findall(r"M([-\d.]+) ([-\d.]+)m", svg)


def rungs_of(*rows: Any, smaller: bool = False, brackets: Any = None) -> str:
    direction = Direction.of(smaller_is_better=smaller)
    metrics = [value for each in rows for value in each["rungs"]]
    placed, width = place_rungs(brackets or [bracket(1, 4)])
    search: SearchState = {
        **halving(16, 4), "brackets": placed, "rung_width": width, "rows": list(rows),
        "rung_axis": metric_axis("m", metrics, direction),
    }  # fmt: skip
    return svg_rungs(search)


def reached(number: int, metric: float | None, **changes: Any) -> Any:
    return row(id=number, rungs=[metric], marks=["resting"], **changes)


@pytest.mark.parametrize(
    ("smaller", "heights"),
    [(False, ["204.0", "124.0", "44.0"]), (True, ["44.0", "124.0", "204.0"])],
)
def test_marks_of_a_rung_are_by_metric_and_side_by_side(smaller: bool, heights: list[str]) -> None:
    rows = [reached(number, metric) for number, metric in enumerate((1.0, 2.0, 3.0))]
    svg = rungs_of(*rows, smaller=smaller)
    assert svg.startswith('<svg viewBox="0 0 640 220">')
    assert marks(svg) == list(zip(["79.8", "219.7", "133.2"], heights, strict=True))


def test_marks_without_a_metric_have_a_strip_of_their_own() -> None:
    svg = rungs_of(reached(0, 1.0), reached(0, 3.0), reached(0, None))
    assert marks(svg) == [("79.8", "186.8"), ("79.8", "43.2"), ("79.8", "211.0")]
    assert ("39.0", "214.0", "end", "none") in texts(svg)
    only = rungs_of(reached(0, None))
    assert marks(only) == [("79.8", "211.0")]
    assert [text for _, _, anchor, text in texts(only) if anchor == "end"] == ["none"]


def test_columns_of_rungs_have_names_and_numbers() -> None:
    svg = rungs_of(reached(0, 1.0), reached(0, 3.0))
    assert texts(svg) == [
        ("39.0", "207.0", "end", "1"), ("39.0", "167.0", "end", "1.5"),
        ("39.0", "127.0", "end", "2"), ("39.0", "87.0", "end", "2.5"),
        ("39.0", "47.0", "end", "3"),
        ("193.0", "10.0", "middle", "1 epoch"), ("193.0", "22.0", "middle", "3 → 1"),
        ("491.0", "10.0", "middle", "4 epochs"), ("491.0", "22.0", "middle", "3 → 1"),
    ]  # fmt: skip
    assert re.findall(r'd="M([\d.]+) (\d+)V(\d+)" stroke="currentColor"', svg) == [
        ("44.0", "30", "216"), ("342.0", "30", "216"),
    ]  # fmt: skip


def test_brackets_are_side_by_side_and_narrow_columns_have_short_names() -> None:
    brackets = [bracket(*[1.0] * 4), bracket(*[1.0] * 5)]
    svg = rungs_of(reached(0, 1.0, bracket=1), brackets=brackets)
    lefts = [float(x) for x in re.findall(r'd="M([\d.]+) 30V', svg)]
    widths = [after - before for before, after in pairwise(lefts)]
    assert lefts[0] == 44
    assert widths == pytest.approx([64.8] * 3 + [77.7] + [64.8] * 4, abs=0.11)
    [(x, y)] = marks(svg)
    assert float(x) == pytest.approx(lefts[4] + 0.12 * 64.8, abs=0.11)
    assert y == "124.0"
    assert "1 epoch" in svg
    brackets = [bracket(*[1.0] * 4), bracket(*[1.0] * 12)]
    assert "1 epoch" not in rungs_of(reached(0, 1.0), brackets=brackets)


def test_a_legend_has_each_mark_once_in_its_order() -> None:
    rows = [row(marks=["running", "error"]), row(marks=["error"])]
    search: SearchState = {**halving(16, 4), "rows": rows}
    assert re.findall(r"> ([\w ]+)</span>", rung_legend(search)) == ["training to it", "error"]


def parallel(*rows: Any, smaller: bool = False) -> str:
    direction = Direction.of(smaller_is_better=smaller)
    search: SearchState = {
        **halving(16, 4), "axes": [number_axis("n", 0, 4, is_whole=True)] * 2,
        "best_axis": metric_axis("m", [each["best"] for each in rows], direction),
    }  # fmt: skip
    return svg_parallel(search, rows)


def test_axes_of_a_search_stand_apart_with_names_and_numbers() -> None:
    svg = parallel(row(best=1.0, values=[0.0, 4.0]), row(best=3.0, values=[2.0, 1.0]))
    assert re.findall(r'd="M([\d.]+) (\d+)V(\d+)" stroke="currentColor"', svg) == [
        ("30.0", "26", "210"), ("320.0", "26", "210"), ("610.0", "26", "210"),
    ]  # fmt: skip
    heights = ["213.0", "167.0", "121.0", "75.0", "29.0"]
    numbers = list(zip(heights, "01234", strict=True))
    assert texts(svg) == [
        ("2.0", "12.0", "start", "n"), *(("34.0", y, "start", text) for y, text in numbers),
        ("320.0", "12.0", "middle", "n"), *(("324.0", y, "start", text) for y, text in numbers),
        ("638.0", "12.0", "end", "m"),
        ("614.0", "204.6", "start", "1"), ("614.0", "162.8", "start", "1.5"),
        ("614.0", "121.0", "start", "2"), ("614.0", "79.2", "start", "2.5"),
        ("614.0", "37.4", "start", "3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("smaller", "ends"), [(False, ["201.6", "34.4"]), (True, ["34.4", "201.6"])]
)
def test_the_better_end_of_the_metric_is_on_top(smaller: bool, ends: list[str]) -> None:
    rows = [row(best=1.0, values=[0.0, 4.0]), row(best=3.0, values=[0.0, 4.0])]
    svg = parallel(*rows, smaller=smaller)
    found = re.findall(r'd="M30 210.0L320 26.0L610 ([\d.]+)"', svg)
    assert sorted(found) == sorted(ends)
    assert found[-1] == ends[0]  # the first is the best, and is drawn last


def test_trials_without_a_metric_have_no_line() -> None:
    svg = parallel(row(best=1.0, values=[0.0, 4.0]), row(best=None, values=[0.0, 4.0]))
    assert len(re.findall("M30 210.0L320", svg)) == 1
    assert parallel(row(best=None, values=[0.0, 4.0])) == ""


def test_lines_of_better_trials_are_stronger() -> None:
    svg = parallel(*(row(best=1.0, values=[0.0, 4.0]) for _ in range(10)))
    found = re.findall(
        r'd="([^"]*)" fill="none" stroke-width=".8" .*?stroke-opacity="([\d.]+)"', svg
    )
    assert [(d.count("M"), opacity) for d, opacity in found] == [
        (2, "0.3"), (2, "0.3"), (2, "0.35"), (2, "0.5"), (2, "1"),
    ]  # fmt: skip


def test_a_line_has_a_gap_where_a_value_is_missing() -> None:
    assert "M30 210.0M610 " in parallel(row(best=1.0, values=[0.0, None]))
    assert 'd="M320 26.0L610 ' in parallel(row(best=1.0, values=[None, 4.0]))


# Cards


def test_a_legend_says_how_a_curve_is_drawn_and_its_last_value() -> None:
    charts, _ = build_charts(
        [curve("batches", "loss", [3.0, 2.0]), curve("validation", "loss", [1.5])], ""
    )
    [chart] = charts
    html = chart_grid(charts)
    assert re.findall(r">(.)</span> (\w+) ([\d.]+)</span>", html) == [
        ("━", "training", "2.000"), ("●", "validation", "1.500"),
    ]  # fmt: skip
    assert 'alt="loss by step"' in html
    chart["series"][0]["look"] = 4
    assert re.findall(r">(.)</span> training", html := chart_grid(charts)) == ["╌"]
    chart["series"][0]["is_faint"] = True
    assert re.findall(r">(.)</span> (\w+)", chart_grid(charts)) == [("●", "validation")]


def test_all_charts_of_a_card_end_at_the_last_step_of_all() -> None:
    curves = [curve("mine", "x", [1.0, 2.0]), curve("mine", "y", [1.0, 2.0, 3.0, 4.0])]
    html = unquote(chart_grid(build_charts(curves, "")[0]))
    assert re.findall(r"points='[\d.]+,[\d.]+ ([\d.]+),", html)[0] == "167.3"


def test_a_picture_is_an_image_with_a_text_instead() -> None:
    assert as_image('<svg viewBox="0 0 1 1"><svg />', 'a "b"', "s") == (
        "<img src=\"data:image/svg+xml,%3Csvg xmlns='http%3A//www.w3.org/2000/svg' color='%23777' "
        "font-family='sans-serif' viewBox='0 0 1 1'%3E%3Csvg /%3E\" alt=\"a &quot;b&quot;\" "
        'style="s">'
    )


def test_a_chart_of_one_point_ends_at_its_step() -> None:
    [chart], _ = build_charts([curve("batches", "x", [1.0])], "")
    assert re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg_chart(chart, 1)) == [
        ("310.0", "70.0")
    ]
    assert re.findall(r'cx="([\d.]+)"', svg_chart(chart, 0)) == ["310.0"]


def compared(number: int, **changes: Any) -> Compared:
    view = experiment(trial(id=number), id=number, name=f"e{number}")
    fields: dict[str, Any] = {
        "experiment": view, "trial": view.trials[0], "is_trial": False, "code": {},
        "curves": [],
    }  # fmt: skip
    return Compared(**{**fields, **changes})


def metrics(num: int) -> list[Any]:
    return [curve("validation", f"m{i}", [1.0]) for i in range(num)]


@pytest.mark.parametrize(
    ("num", "more"),
    [(6, None), (7, "1 more metric: m6"), (9, "3 more metrics: m6, m7, m8")],
)
def test_a_comparison_names_the_metrics_that_it_has_no_room_for(
    num: int, more: str | None
) -> None:
    html = comparison_html(build_comparison([compared(1, curves=metrics(num)), compared(2)], NOW))
    found = re.findall(r">(\d+ more metrics?: [\w, ]+)<", html)
    assert found == ([] if more is None else [more])


def test_two_runs_of_one_trial_look_alike_where_both_have_trained() -> None:
    losses: list[float | None] = [8.0 * (i * 7919 % 100) / (i + 1) for i in range(974)]
    runs = [
        compared(n, curves=[curve("training", "loss", losses[:num])])
        for n, num in ((1, 264), (2, 974))
    ]
    [chart] = build_comparison(runs, NOW)["charts"]
    short, long = (series["values"] for series in chart["series"])
    assert long[:264] == short
    many = build_comparison([runs[1], *(compared(n) for n in range(3, 10))], NOW)
    assert len(many["charts"][0]["series"][0]["values"]) <= 300, "of eight, each has fewer points"


def test_a_comparison_without_metrics_says_so() -> None:
    state = build_comparison([compared(1), compared(2)], NOW)
    assert state["no_metrics"] == "No metrics were reported."
    assert "No metrics were reported." in comparison_html(state)
    assert not [note for note in state["notes"] if "No metrics" in note]
    state = build_comparison([compared(1, curves=metrics(1)), compared(2), compared(3)], NOW)
    assert state["notes"][0] == "No metrics were reported by 2 e2, 3 e3."
    assert state["no_metrics"] == ""


def test_lines_of_code_have_the_colour_of_their_sign() -> None:
    state = build_comparison(
        [
            compared(1, code={"Cell 1": "a = 1\nb = 2"}),
            compared(2, code={"Cell 1": "a = 1\nb = 3"}),
        ],
        NOW,
    )
    html = comparison_html(state)
    assert re.findall(r'color:(#\w+)">([^<]*)</span>', html) == [
        ("#c9574f", "-b = 2"), ("#3f9b57", "+b = 3"),
    ]  # fmt: skip
    assert "Cell 1: 1 e1 → 2 e2" in html
    lines = comparison_text(state).splitlines()
    assert lines[lines.index("Code") :] == [
        "Code", "Cell 1: 1 e1 → 2 e2", "--- Cell 1", "+++ Cell 1", "@@ -1,2 +1,2 @@", " a = 1",
        "-b = 2", "+b = 3",
    ]  # fmt: skip


def results(*sides: Compared) -> dict[str, list[str]]:
    table = build_comparison(sides, NOW)["tables"][0]
    return {fact["name"]: fact["values"] for fact in table["facts"]}


def test_results_have_a_dash_for_what_is_not_known() -> None:
    run = allocation().model_copy(update={"started_at": NOW - 36})
    first = trial(
        id=1, best_metric=0.5, steps_completed=2200, restarts=2, seed=9, allocation=run,
        hparams={"global_batch_size": 14.37}, slot_seconds=36.0,
    )  # fmt: skip
    one = compared(
        1, trial=first, experiment=experiment(first, id=1, name="e1"),
        curves=[curve("validation", "accuracy", [0.25, 0.5, 0.5], stride=22,
                      steps_per_epoch=110.0)],
    )  # fmt: skip
    other = compared(2, trial=None, experiment=experiment(id=2, name="e2"))
    found = results(one, other)
    submitted = found.pop("submitted")
    assert found == {
        "state": ["running", "queued"],
        "best accuracy": ["0.5000", "-"],
        "best at batch": ["44", "-"],
        "batches": ["2,200", "-"],
        "epochs": ["20.0", "-"],
        "slots per trial": ["1", "1"],
        "elapsed": ["0:42", "0:42"],
        "slot-hours": ["0.03", "-"],
        "restarts": ["2", "-"],
        "seed": ["9", "-"],
    }
    assert submitted[0] == submitted[1] != "-"


@pytest.mark.parametrize(
    ("bests", "smaller", "places"),
    [
        ([0.5, 0.75, 0.75], False, [1, 2]),
        ([0.5, 0.75, 0.75], True, [0]),
        ([0.5, None, None], True, []),
        ([None, None], True, []),
        ([0.5, float("nan"), 0.25], True, [2]),
    ],
)
def test_the_best_are_marked(bests: list[Any], smaller: bool, places: list[int]) -> None:
    config = {"searcher": {"metric": "m", "smaller_is_better": smaller}}
    sides = []
    for number, best in enumerate(bests):
        own = trial(id=number, best_metric=best)
        sides.append(compared(number, trial=own, experiment=experiment(own, config=config)))
    [table, *_] = build_comparison(sides, NOW)["tables"]
    [fact] = [fact for fact in table["facts"] if fact["name"] == "best m"]
    assert fact["best"] == places


# Parts of the state


@pytest.mark.parametrize(
    ("times", "measured"),
    [
        ([10.0], [10.0]),
        ([10.0, 10.0], [10.0, 10.0]),
        ([10.0, 12.0], [10.0, 12.0]),
        ([10.0, 10.0, 14.0, 14.0], [8.0, 10.0, 12.0, 14.0]),
        ([10.0, 10.0, 16.0, 16.0, 16.0], [8.0, 10.0, 12.0, 14.0, 16.0]),
        ([10.0, 10.0, 10.0, 14.0], [2.0, 6.0, 10.0, 14.0]),
    ],
)
def test_points_of_a_report_are_spread_over_its_time(
    times: list[float], measured: list[float]
) -> None:
    assert [measured_at(times, place) for place in range(len(times))] == measured
    reported = curve("batches", "x", [1.0] * len(times), times=times)
    seconds = Timelines([reported], {}).seconds(reported, range(len(times)))
    assert seconds == [at - measured[0] for at in measured]
    assert Timelines([], {}).seconds(reported, [0]) == [round(measured[0], 2)]


def test_the_clock_of_a_trial_starts_at_its_first_point_of_any_curve() -> None:
    late = curve("batches", "x", [1.0], times=[20.0])
    early = curve("validation", "y", [1.0], times=[15.5], steps_per_epoch=4.0)
    other = curve("batches", "x", [1.0], times=[30.0], trial_id=2)
    for curves in ([late, early, other], [other, early, late]):
        timelines = Timelines(curves, {2: 7.0})
        assert [timelines.seconds(each, [0]) for each in (late, early, other)] == [
            [4.5],
            [0.0],
            [0.0],
        ]
        assert timelines.steps_per_epoch == {1: 4.0, 2: 7.0}


def test_a_series_has_what_is_said_of_its_curve() -> None:
    values = [0.123456789, None, 3.0, 2.0]
    reported = curve("validation", "x", values, times=[1.0, 2.0, 3.0, 4.0])
    times = Timelines([reported], {1: 2.5})
    assert series_of(reported, label="a", look=3, limit=9, timelines=times) == {
        "trial_id": 1, "label": "a", "kind": "points", "look": 3, "is_faint": False,
        "steps": [1, 2, 3, 4], "values": [0.123457, None, 3.0, 2.0],
        "seconds": [0.0, 1.0, 2.0, 3.0], "steps_per_epoch": 2.5, "last": 2.0,
        "lowest": 0.123457, "highest": 3.0,
    }  # fmt: skip


def test_last_values_are_of_each_metric_but_the_searchers() -> None:
    curves = [
        curve("validation", "accuracy", [0.5], trial_id=1),
        curve("validation", "loss", [3.0, 2.0], trial_id=1),
        curve("training", "loss", [1.0], trial_id=1),
        curve("validation", "loss", [9.0, None], trial_id=2),
        curve("training", "accuracy", [1 / 3], trial_id=2),
    ]
    assert last_values(curves, "accuracy") == (
        ["loss (validation)", "loss (training)", "accuracy"],
        {
            1: {"loss (validation)": 2.0, "loss (training)": 1.0},
            2: {"loss (validation)": None, "accuracy": 0.333333},
        },
    )
    many = [curve("mine", f"m{i}", [1.0]) for i in range(13)]
    assert last_values(many, "")[0] == [f"m{i}" for i in range(12)]


@pytest.mark.parametrize(
    ("progress", "shown"),
    [(-1.0, 0.0), (0.0, 0.0), (0.12345678, 0.1235), (1.0, 1.0), (1.5, 1.0), (float("nan"), 0.0)],
)
def test_progress_is_a_share(progress: float, shown: float) -> None:
    assert fraction(progress) == shown


@pytest.mark.parametrize(
    ("slot", "label"),
    [
        (SlotView(id=3, kind="cpu", index=2, name="Xeon"), "cpu 2"),
        (SlotView(id=3, kind="cuda", index=2, name=""), "GPU 2"),
        (SlotView(id=3, kind="cuda", index=2, name="H100"), "GPU 2 · H100"),
    ],
)
def test_a_slot_has_a_name(slot: SlotView, label: str) -> None:
    assert slot_label(slot) == label


def test_several_gangs_are_as_the_one_that_runs() -> None:
    starting, running = AllocationState.STARTING, AllocationState.RUNNING
    stopping = AllocationState.STOPPING
    assert state_status(State.ACTIVE, [stopping, starting, running]) == "running"
    assert state_status(State.ACTIVE, [stopping, starting]) == "starting"
    assert state_status(State.ACTIVE, [stopping, AllocationState.QUEUED]) == "pausing"
    assert state_status(State.PAUSED, [AllocationState.QUEUED]) == "paused"


@pytest.mark.parametrize(
    ("kind", "uuid", "source"),
    [
        ("cuda", "GPU-1", "gpu:GPU-1"),
        ("cuda", "MIG-1", "mig:MIG-1"),
        ("cuda", "", ""),
        ("cpu", "GPU-1", ""),
        ("cpu", "", ""),
    ],
)
def test_a_slot_has_a_source_of_samples(kind: Any, uuid: str, source: str) -> None:
    assert source_of(SlotView(id=0, kind=kind, index=0, name="", uuid=uuid)) == source


def test_a_summary_of_a_search_has_its_best_and_what_the_others_do() -> None:
    search = halving(16, 14)
    assert search_summary(search)[-1] == "best accuracy 0.8000 (trial 5)"
    rows = [row(id=1, best=None), row(id=2, best=0.5)]
    ranked: SearchState = {**search, "rows": rows, "smaller_is_better": True}
    assert search_summary(ranked)[-1] == "best accuracy 0.5000 (trial 2)"
    assert search_summary({**search, "rows": rows[:1]})[-1] == "no accuracy yet"


@pytest.mark.parametrize(
    ("num_rungs", "num_reached", "aim", "marks"),
    [(0, 0, 0, []), (0, 1, 0, []), (1, 0, 0, ["running"]), (1, 1, 0, ["finished"])],
)
def test_marks_of_few_rungs(num_rungs: int, num_reached: int, aim: int, marks: list[str]) -> None:
    assert trial_marks(num_reached, aim, num_rungs, "running") == marks


@pytest.mark.parametrize(
    ("after_s", "steps", "progress", "eta_s"),
    [
        (1.0, 2, 0.5, 1.0),
        (0.9, 2, 0.5, None),
        (1.0, 1, 0.5, None),
        (10.0, 50, 1.0, 0.0),
        (10.0, 50, 1.1, None),
        (10.0, 50, 0.0, None),
        (10.0, 30, 0.3, 23.3),
    ],
)
def test_the_time_left_is_by_the_pace(
    after_s: float, steps: int, progress: float, eta_s: float | None
) -> None:
    run = allocation().model_copy(update={"first_step_at": CREATED_AT})
    shown = trial(steps_completed=steps, progress=progress, allocation=run)
    state = build_view_state(experiment(shown), [], [], CREATED_AT + after_s)
    assert state["eta_s"] == eta_s
    assert build_view_state(experiment(shown, shown), [], [], NOW)["eta_s"] is None


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"allocation": None}, "trial 1: queued"),
        ({"allocation": allocation(num_ranks=1)},
         "trial 1: running · 1 rank (gloo) · first step after 0.09 s"),
        ({"allocation": allocation(is_up=False)}, "trial 1: running · 2 ranks"),
        ({"allocation": None, "restarts": 1}, "trial 1: queued · restarted 1 time"),
        ({"allocation": None, "num_recoveries": 1}, "trial 1: queued · recovered 1 time"),
        ({"allocation": None, "restarts": 2}, "trial 1: queued · restarted 2 times"),
    ],
)  # fmt: skip
def test_a_trial_in_one_line(changes: dict[str, Any], title: str) -> None:
    shown = trial(**changes)
    assert trial_title(build_trial(shown, experiment(shown), None, {}, NOW)) == title
    assert build_changes(shown) == []


def test_another_number_of_slots_is_marked_at_its_batch() -> None:
    sizes = [
        SizeChange(at=NOW, slots=slots, steps_completed=steps, reason="gave 1 slot to trial 2")
        for slots, steps in [(2, 0), (1, 30), (1, 50)]
    ]
    (line,) = build_changes(trial(sizes=sizes))
    assert (line["steps_completed"], line["text"]) == (30, "1 slot: gave 1 slot to trial 2")


@pytest.mark.parametrize(
    ("key", "number"), [("7@1.5", 7), ("12", 12), ("@1", 0), ("x@1", 0), ("²@1", 0), ("-1@1", 0)]
)
def test_a_key_has_the_number_of_its_experiment(key: str, number: int) -> None:
    assert key_id(key) == number


def test_the_importance_of_hyperparameters_is_a_line() -> None:
    view, curves, saved, now = search_experiment(16, 14)
    search = build_view_state(view, curves, saved, now)["search"]
    assert search is not None
    assert importance_line(search) == ""
    found: Any = {"shares": [{"name": "lr", "share": 0.75}, {"name": "d", "share": 0.25}]}
    told = "Importance of hyperparameters: "
    for sentence, expected in (("", "lr 75 %, d 25 %"), ("So.", "lr 75 %, d 25 %; So.")):
        search["importance"] = found | {"sentence": sentence}
        assert importance_line(search) == told + expected
    search["importance"] = {"num_ended": 3, "shares": [], "sentence": "Too few."}
    assert importance_line(search) == told + "Too few."


# What is left out, and what is taken where nothing is said


def shown_code(*sources: dict[str, str]) -> list[tuple[str, list[str]]]:
    sides = [compared(place, code=source) for place, source in enumerate(sources)]
    return [(one["name"], one["lines"]) for one in build_comparison(sides, NOW)["code"]]


def test_code_has_as_many_lines_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [{"a.py": "x"}, {"a.py": "y", "b.py": "long line\nz"}]
    whole = [
        ("a.py", ["--- a.py", "+++ a.py", "@@ -1 +1 @@", "-x", "+y"]),
        ("b.py", ["--- /dev/null", "+++ b.py", "@@ -0,0 +1,2 @@", "+long line", "+z"]),
    ]
    assert shown_code(*codes) == whole
    characters = sum(len(line) + 1 for _, lines in whole for line in lines)
    monkeypatch.setattr("det_jupyter.view.making.comparison_view.MAX_CODE", characters)
    assert shown_code(*codes) == whole
    monkeypatch.setattr("det_jupyter.view.making.comparison_view.MAX_CODE", characters - 1)
    more = "… 1 more line: code_diff() has all"
    assert shown_code(*codes) == [whole[0], ("b.py", [*whole[1][1][:-1], more])]
    monkeypatch.setattr("det_jupyter.view.making.comparison_view.MAX_CODE", 9)
    mores = [f"… {num} more lines: code_diff() has all" for num in (4, 5)]
    assert shown_code(*codes) == [("a.py", ["--- a.py", mores[0]]), ("b.py", [mores[1]])]


@pytest.mark.parametrize(
    ("searcher", "best"),
    [
        ({"metric": "m"}, 0.25),  # as the configuration does without being told
        ({"metric": "m", "smaller_is_better": True}, 0.25),
        ({"metric": "m", "smaller_is_better": False}, 0.75),
    ],
)
def test_smaller_is_better_unless_it_is_not(searcher: dict[str, Any], best: float) -> None:
    view = experiment(trial(id=1, best_metric=0.25), trial(id=2, best_metric=0.75))
    view.config = {"searcher": searcher}
    state = build_view_state(view, [], [], NOW)
    assert state["checkpoints"]["best_metric"] == best
    assert state["search"] is not None
    assert state["search"]["smaller_is_better"] is (best == 0.25)


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"bracket": None, "rungs": [0.5]}, "-"),
        ({"rungs": []}, "-"),
        ({"rungs": [0.5]}, "1 epoch"),
        ({"rungs": [0.5, None]}, "4 epochs"),
        ({"rungs": [0.5, 0.5, 0.5]}, "4 epochs"),
    ],
)
def test_a_table_has_the_highest_rung_of_a_trial(changes: dict[str, Any], label: str) -> None:
    search: SearchState = {
        **halving(16, 4), "brackets": place_rungs([bracket(1, 4)])[0], "axes": [],
        "rows": [row(**changes)],
    }  # fmt: skip
    head, [line] = trial_rows(search)
    assert dict(zip(head, line, strict=True)) == {
        "trial": "1", "state": "running", "rung": label, "accuracy": "-", "steps": "0",
    }  # fmt: skip
    search["brackets"] = []
    assert "rung" not in trial_rows(search)[0]


def test_the_card_lists_what_was_captured() -> None:
    html = render_html(build_view_state(experiment(trial()), [], [], NOW))
    assert "Captured from the notebook: 4 names, 481 kB" in html
    assert re.findall(
        r">([^<>]+)</td><td>([^<]+)</td><td>([^<]+)</td><td>([^<]+)</td></tr>", html
    )[-4:] == [
        ("DigitsTrial", "6.1 kB", "class", "In [5]"),
        ("images", "460 kB", "torch.Tensor", "In [3]"),
        ("labels", "14 kB", "torch.Tensor", "In [3]"),
        ("helpers.py", "812 B", "module", "helpers.py"),
    ]
    bare = capsule(captured=[], notices=["a notice"])
    html = render_html(build_view_state(experiment(trial(), capsule=bare), [], [], NOW))
    assert "Captured" not in html
    assert ">a notice</div>" in html
