"""What just has room in a view is whole; of one more the rest is cut or counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    FailureView,
    PoolStatus,
    RecoveryView,
    State,
    TrialView,
    Verdict,
)
from det_jupyter.view import build_view_state, render_html, render_plain
from det_jupyter.view.forms.comparison_card import comparison_html, comparison_text
from det_jupyter.view.forms.parallel_svg import svg_parallel
from det_jupyter.view.forms.svg import svg_chart
from det_jupyter.view.forms.text_lines import left_out_note, trial_rows
from det_jupyter.view.forms.verdict_card import shares_text
from det_jupyter.view.making.axes import number_axis
from det_jupyter.view.making.charts import build_charts
from det_jupyter.view.making.comparison_view import build_comparison, left_out
from det_jupyter.view.making.results import Compared, slot_hours_text, value_text
from det_jupyter.view.making.search_view import build_search
from det_jupyter.view.making.slot_bars import build_pools
from det_jupyter.view.making.space import place_trials
from det_jupyter.view.making.trial_view import build_verdict
from det_jupyter.view.making.waits import build_cluster
from det_jupyter.view.model.search_state import SearchState
from tests.unit.view.forms.test_rungs_svg import halving, row
from tests.unit.view.view_cluster_samples import (
    NOW,
    OWN_ID,
    agent,
    cluster,
    entry,
    held,
    pool,
    reason,
    slot_status,
    stranger,
    waiting_trial,
)
from tests.unit.view.view_samples import (
    capsule,
    checkpoint,
    curve,
    experiment,
    failure,
    trial,
)


def state_of(*trials: TrialView, **changes: Any) -> Any:
    return build_view_state(experiment(*trials, **changes), [], [], NOW)


def label(text: str) -> str:
    axes, _ = place_trials({"x": {"type": "categorical", "vals": [text]}}, [])
    return axes[0]["labels"][0]


def hyperparameters(text: str) -> str:
    shown = state_of(trial(hparams={"x": text}))["trials"][0]["hparams"]
    assert isinstance(shown, str)
    return shown.removeprefix("x=")


def metric_name(text: str) -> str:
    [chart], _ = build_charts([curve("batches", "loss", [1.0])], "")
    state = state_of(trial())
    state["charts"] = [chart | {"title": text.removesuffix(" (training)")}]
    state["charts"][0]["series"][0]["label"] = "training"
    return render_plain(state).splitlines()[-1].partition("  ")[0]


def axis_name(text: str) -> str:
    search: SearchState = {**halving(16, 4), "axes": [number_axis(text, 0, 1)] * 9}
    picture = svg_parallel(search, [row(best=1.0, values=[0.0] * 9)])
    return str(re.findall(r">([^<>]+)</text>", picture)[0])


@pytest.mark.parametrize(
    ("shown", "most"),
    [
        pytest.param(hyperparameters, 198, id="hyperparameters, with `x=`"),
        pytest.param(value_text, 60, id="a value in a comparison"),
        pytest.param(axis_name, 10, id="the name of an axis, of ten"),
    ],
)
def test_a_text_that_fits_is_whole(shown: Callable[[str], str], most: int) -> None:
    text = "abcdefghijklmnopqrstuvwxyz" * 10
    assert shown(text[:most]) == text[:most]
    assert shown(text[: most + 1]) == text[: most - 1] + "…"


def test_a_value_beside_an_axis_that_fits_is_whole() -> None:
    assert label("abcdefghijklmnopqrstuvwx") == "abcdefghijklmnopqrstuvwx"
    assert label("abcdefghijklmnopqrstuvwxy") == "abcdefghijk…nopqrstuvwxy"


def test_the_name_of_a_curve_that_fits_is_whole() -> None:
    assert metric_name("x" * 29 + " (training)") == "x" * 29 + " (training)"
    assert metric_name("x" * 30 + " (training)") == "x" * 30 + " (trainin…"


def test_a_traceback_that_fits_is_whole() -> None:
    def shown(text: str) -> str:
        [found] = state_of(trial(failure=failure(traceback=text)))["trials"]
        return str(found["failure"]["traceback"])

    assert shown("x" * 20_000) == "x" * 20_000
    assert shown("y" + "x" * 20_000) == "…\n" + "x" * 20_000


def failed(number: int, error: str) -> TrialView:
    return trial(
        id=number, state=State.ERROR, allocation=None, bracket=None, failure=failure(error=error)
    )


@pytest.mark.parametrize(
    ("num", "text"),
    [
        (1, "trial 1 failed: E"),
        (6, "trials 1, 2, 3, 4, 5 and 6 failed: E"),
        (7, "trials 1, 2, 3, 4, 5 and 2 more failed: E"),
    ],
)
def test_trials_of_a_remark(num: int, text: str) -> None:
    view = experiment(*(failed(i + 1, "E") for i in range(num)), config={})
    [remark] = build_search(view, [], None, None, {})["remarks"]
    assert remark["text"] == text


@pytest.mark.parametrize(("num", "num_more"), [(1, 0), (4, 0), (5, 1)])
def test_remarks(num: int, num_more: int) -> None:
    search = build_search(
        experiment(*(failed(i, f"E{i}") for i in range(num)), config={}), [], None, None, {}
    )
    assert (len(search["remarks"]), search["num_more_remarks"]) == (num - num_more, num_more)


@pytest.mark.parametrize(
    ("num", "last"), [(1, "Trial 1: n0"), (10, "Trial 1: n9"), (11, "… and 1 more of trials")]
)
def test_notices_of_trials(num: int, last: str) -> None:
    notices = state_of(trial(notices=[f"n{i}" for i in range(num)]))["notices"]
    assert (len(notices), notices[-1]) == (num, last)


def test_recoveries_of_a_trial_are_notices_and_no_failure() -> None:
    killed = RecoveryView(at=1.0, rank=1, signal=9, batch=7, repeats=0, went_on_s=12.0)
    failure = FailureView(rank=1, exit_code=-9, error="killed", at=1.0, is_survived=True)
    shown = trial(recoveries=[killed] * 5, num_recoveries=7, failure=failure)
    state = state_of(shown)
    sentence = "Trial 1: rank 1 was killed (SIGKILL) at batch 7; went on after 0:12, "
    assert state["notices"] == [
        "Trial 1: recovered 4 times before",
        *[f"{sentence}0 batches repeated"] * 3,
    ]
    assert state["trials"][0]["failure"] is None


@pytest.mark.parametrize(("num", "num_drawn"), [(16, 16), (17, 16)])
def test_agents_that_are_drawn(num: int, num_drawn: int) -> None:
    [shown] = build_pools([many_agents(num, 1)], OWN_ID, NOW)
    assert len(shown["agents"]) == num_drawn
    assert shown["more"] == ("" if num == num_drawn else "1 more agent with 1 slot: 1 free")


def many_agents(num: int, slots_each: int) -> PoolStatus:
    return pool(*(agent(f"n{i}", [slot_status(j) for j in range(slots_each)]) for i in range(num)))


@pytest.mark.parametrize(
    ("num_agents", "slots_each", "num_drawn"), [(2, 64, 2), (3, 64, 2), (4, 32, 4), (4, 33, 3)]
)
def test_slots_that_are_drawn(num_agents: int, slots_each: int, num_drawn: int) -> None:
    [shown] = build_pools([many_agents(num_agents, slots_each)], OWN_ID, NOW)
    assert [len(one["slots"]) for one in shown["agents"]] == [slots_each] * num_drawn


@pytest.mark.parametrize(
    ("num", "num_drawn", "more"), [(64, 64, ""), (65, 64, "and 1 more slot: 1 free")]
)
def test_slots_of_an_agent(num: int, num_drawn: int, more: str) -> None:
    [shown] = build_pools([many_agents(1, num)], OWN_ID, NOW)
    [drawn] = shown["agents"]
    assert (len(drawn["slots"]), drawn["more"]) == (num_drawn, more)


@pytest.mark.parametrize(("num", "last"), [(3, "pid 3"), (4, "and 1 more")])
def test_processes_on_a_slot(num: int, last: str) -> None:
    processes = [stranger(pid=i + 1, user="", command="", memory_bytes=0) for i in range(num)]
    status = slot_status(0, "occupied", processes=processes)
    [shown] = build_pools([pool(agent("a", [status]))], OWN_ID, NOW)
    assert shown["agents"][0]["slots"][0]["facts"][-1] == last


def test_own_trials_further_back_in_a_queue() -> None:
    queue = [entry(100 + i, OWN_ID if i > 8 else 5, position=i) for i in range(20)]
    shown = build_cluster(cluster(pool(), queue=queue), experiment(waiting_trial()), NOW)
    assert [one["place"] for one in shown["queue"]] == [*range(1, 9), *range(10, 18)]
    several = [entry(100 + i, position=i % 8) for i in range(30)]  # of four pools
    shown = build_cluster(cluster(pool(), queue=several), experiment(waiting_trial()), NOW)
    assert [one["trial_id"] for one in shown["queue"]] == [*range(100, 124)]


def test_remedies_of_a_wait() -> None:
    remedies = reason().remedies * 2
    queue = [entry(1, OWN_ID, reason=reason(1, remedies=remedies))]
    reasons = {1: queue[0].reason}
    known = cluster(pool(), queue=queue)
    state = build_view_state(
        experiment(waiting_trial()), [], [], NOW, cluster=known, reasons=reasons
    )
    wait = state["trials"][0]["wait"]
    assert wait is not None
    assert [one["button"] for one in wait["remedies"]] == ["", "Pause", "Change", ""]


@pytest.mark.parametrize(("num_curves", "most"), [(1, 400), (20, 400), (21, 380), (600, 20)])
def test_points_of_many_curves(num_curves: int, most: int) -> None:
    curves = [curve(f"g{i}", "x", [float(j) for j in range(500)]) for i in range(num_curves)]
    [chart], _ = build_charts(curves, "")
    assert {len(one["steps"]) for one in chart["series"]} == {most}


@pytest.mark.parametrize(("num", "num_dots"), [(40, 40), (41, 0)])
def test_dots_that_do_not_run_into_each_other(num: int, num_dots: int) -> None:
    [chart], _ = build_charts([curve("validation", "x", [float(i) for i in range(num)])], "")
    assert svg_chart(chart, num).count("<circle") == num_dots


@pytest.mark.parametrize(("num", "note"), [(10, ""), (11, "the best 10 of 11 trials")])
def test_trials_of_a_table(num: int, note: str) -> None:
    search: SearchState = {**halving(16, 4), "rows": [row(id=i, best=1.0) for i in range(num)]}
    search["axes"] = []
    assert left_out_note(search) == note
    assert len(trial_rows(search)[1]) == 10


@pytest.mark.parametrize(
    ("num", "shown"),
    [
        (0, None),
        (1, "1 more metric not shown: m0"),
        (5, "5 more metrics not shown: m0, m1, m2, m3, m4"),
        (6, "6 more metrics not shown: m0, m1, m2, m3, m4, …"),
    ],
)
def test_metrics_without_room(num: int, shown: str | None) -> None:
    state = state_of(trial())
    state["more_metrics"] = [f"m{i}" for i in range(num)]
    found = [line for line in render_plain(state).splitlines() if "not shown" in line]
    assert found == ([] if shown is None else [shown])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "-"), (3600 * 99, "99"), (3600 * 100, "100"), (3600 * 1234.4, "1,234")],
)
def test_slot_hours(seconds: float, text: str) -> None:
    assert slot_hours_text(seconds) == text


@pytest.mark.parametrize(
    ("num", "sentence"), [(8, ""), (9, "The best 8 of 9 trials are compared.")]
)
def test_sides_of_a_comparison(num: int, sentence: str) -> None:
    assert left_out(num) == sentence


def side(number: int, *, num_trials: int = 1, code: str = "") -> Compared:
    trials = [trial(id=i + 1, experiment_id=number) for i in range(num_trials)]
    view = experiment(*trials, id=number, name=f"e{number}")
    return Compared(
        experiment=view, trial=trials[0], is_trial=False, curves=[], code={"Cell 1": code}
    )


@pytest.mark.parametrize(
    ("num", "who"),
    [
        (3, "1 e1, 2 e2, 3 e3 have"),
        (4, "4 of 4 have"),
    ],
)
def test_those_that_go_on(num: int, who: str) -> None:
    notes = build_comparison([side(i + 1) for i in range(num)], NOW)["notes"]
    assert notes[-1].partition(": ")[2] == f"{who} not ended."


@pytest.mark.parametrize(
    ("num_trials", "note"), [(1, ""), (2, "trial 1, the best of 2"), (3, "trial 1, the best of 3")]
)
def test_what_stands_for_a_search(num_trials: int, note: str) -> None:
    state = build_comparison([side(1, num_trials=num_trials), side(2)], NOW)
    assert [one["note"] for one in state["sides"]] == [note, ""]
    told = [] if not note else [f"Experiment 1 is compared by {note}."]
    assert state["notes"][:-1] == told


def code(num_lines: int) -> Compared:
    """Return a side whose code differs in so many lines of the difference from no code."""
    return side(2, code="\n".join("x" for _ in range(num_lines - 3)))


@pytest.mark.parametrize(("num_lines", "is_open"), [(40, True), (41, False)])
def test_a_short_difference_is_open_in_the_card(num_lines: int, is_open: bool) -> None:
    html = comparison_html(build_comparison([side(1), code(num_lines)], NOW))
    assert ("<details" not in html) == is_open


@pytest.mark.parametrize(
    ("num_lines", "last"), [(59, "+x"), (60, "… 1 more lines: code_diff() has all")]
)
def test_lines_of_code_in_a_terminal(num_lines: int, last: str) -> None:
    text = comparison_text(build_comparison([side(1), code(num_lines)], NOW))
    assert text.splitlines()[-1] == last  # the name of the difference is a line, too


@pytest.mark.parametrize(
    ("share", "text"), [(0.0049, "compute 99 %"), (0.005, "compute 99 %, waiting for data 0 %")]
)
def test_shares_that_can_be_seen(share: float, text: str) -> None:
    found = Verdict(
        kind="input", sentence="s", at=1.0, batches=9, shares={"input": share, "compute": 0.99}
    )
    assert shares_text(build_verdict(found)["shares"]) == text


@pytest.mark.parametrize(("num", "num_more"), [(10, None), (11, 1), (12, 2)])
def test_trials_of_the_card(num: int, num_more: int | None) -> None:
    trials = [trial(id=i + 1, best_metric=float(i)) for i in range(num)]
    html = render_html(state_of(*trials))
    found = re.findall(r"(\d+) more trials?, best first", html)
    assert found == ([] if num_more is None else [str(num_more)])


def test_a_slot_in_use_is_not_told_to_be_of_no_experiment() -> None:
    [shown] = build_pools([pool(agent("a", [held(0), slot_status(1)]))], 3, NOW)
    assert [one["is_own"] for one in shown["agents"][0]["slots"]] == [True, False]


@pytest.mark.parametrize("is_submitted", [True, False])
def test_a_trainer_without_callback_is_the_first_notice_until_there_is_a_checkpoint(
    is_submitted: bool,  # its source showed it; otherwise a run
) -> None:
    name = "transformers.Trainer"
    view = experiment(trial(notices=["slow"], plain_trainer="" if is_submitted else name))
    if is_submitted:
        view = view.model_copy(update={"capsule": capsule(plain_trainer=name)})
    state = build_view_state(view, [], [], 1000.0)
    assert state["lacks_callback"]
    first, second = state["notices"]
    assert first.startswith("`DigitsTrial` calls transformers.Trainer without DetCallback")
    assert second == "Trial 1: slow"
    saved = build_view_state(view, [], [checkpoint(40, None)], 1000.0)
    assert (saved["notices"], saved["lacks_callback"]) == (["Trial 1: slow"], False)
    bare = view.capsule.model_copy(update={"payload": "", "plain_trainer": name})  # a script
    state = build_view_state(view.model_copy(update={"capsule": bare}), [], [], 1000.0)
    assert (len(state["notices"]), state["lacks_callback"]) == (2, False)
