"""The static card and the plain text: every state, hostile names, odd numbers."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.messages import (
    AllocationState,
    CapturedName,
    Curve,
    ExperimentView,
    State,
)
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.view import ViewState, build_view_state, render_html, render_plain
from det_jupyter.view.forms.svg import svg_chart
from tests.unit.view.view_cluster_samples import entry, leaving_for, reason, waiting
from tests.unit.view.view_samples import (
    CREATED_AT,
    allocation,
    capsule,
    checkpoint,
    curve,
    digits_curves,
    experiment,
    failure,
    search_experiment,
    trial,
)

NOW = CREATED_AT + 42
HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\x07\u202e"


def built(view: ExperimentView, *curves: Curve, saved: Any = ()) -> ViewState:
    return build_view_state(view, curves, saved, NOW)


class Elements(HTMLParser):
    """Counts elements, checks that they are closed, and keeps the text."""

    VOID = frozenset({"img"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: set[str] = set()
        self.sources: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes.update(name for name, _ in attrs)
        self.sources += [value or "" for name, value in attrs if name == "src"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def searched(max_trials: int, num_results: int, *, is_over: bool = False) -> ViewState:
    view, curves, saved, now = search_experiment(max_trials, num_results, is_over=is_over)
    return build_view_state(view, curves, saved, now)


def every_state() -> list[ViewState]:
    ended = {"allocation": None, "state": State.ERROR, "failure": failure()}
    waiting = trial(
        steps_completed=0,
        progress=0.0,
        allocation=allocation(AllocationState.QUEUED),
        waiting_for="Needs 4 slots; 2 of 8 are free.",
    )
    return [
        built(experiment()),
        built(experiment(waiting)),
        built(experiment(trial(allocation=allocation(AllocationState.STARTING, is_up=False)))),
        built(experiment(trial()), *digits_curves(310), saved=[checkpoint(44, 0.9)]),
        built(experiment(trial(), state=State.PAUSED), *digits_curves(60)),
        built(experiment(trial(), state=State.STOPPING_KILLED)),
        built(
            experiment(trial(**ended), state=State.ERROR, message="It failed."), *digits_curves(9)
        ),
        built(experiment(trial(state=State.CANCELED), state=State.CANCELED, ended_at=NOW)),
        built(experiment(trial(progress=1.0), state=State.COMPLETED, ended_at=NOW)),
        built(
            experiment(*(trial(id=i) for i in range(1, 40))),
            *(each for i in range(1, 12) for each in digits_curves(50, i)),
        ),
        searched(16, 0),
        searched(16, 14),
        searched(64, 70, is_over=True),
    ]


STATES = every_state()


@pytest.mark.parametrize("state", STATES, ids=lambda state: state["status"])
def test_every_state_has_a_card_and_a_text_that_name_it(state: ViewState) -> None:
    card = Elements(render_html(state))
    assert state["status_word"] in card.text
    assert f"digits (experiment 7): {state['status_word'].lower()}" in render_plain(state)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state["status"])
def test_card_needs_nothing_from_outside(state: ViewState) -> None:
    html = render_html(state)
    card = Elements(html)
    assert not {"script", "style", "link", "iframe", "svg"} & set(card.seen)
    assert not {"href", "class", "id", "onclick"} & card.attributes
    assert all(source.startswith("data:image/svg+xml,") for source in card.sources)
    assert "://" not in html
    assert "url(" not in html.replace("url(%23", "")  # parts of the same picture


def test_running_experiment_says_when_this_was_true() -> None:
    moment = time.strftime("%H:%M:%S", time.localtime(NOW))
    state = built(experiment(trial()))
    assert f"as of {moment}" in render_html(state)
    assert f"as of {moment}" in render_plain(state)


def test_finished_experiment_is_true_for_good() -> None:
    state = built(experiment(trial(progress=1.0), state=State.COMPLETED, ended_at=NOW))
    assert "as of" not in render_html(state) + render_plain(state)


def test_plain_text_of_a_running_experiment() -> None:
    view = experiment(trial(steps_completed=44, progress=0.5))
    curves = [
        curve("batches", "loss", [2.5, 0.123456, 0.25]),
        curve("validation", "accuracy", [0.61, 0.9812], stride=22),
    ]
    state = built(view, *curves, saved=[checkpoint(44, 0.9812)])
    text = re.sub(r"as of [\d:]{8}", "as of 12:34:56", render_plain(state))
    assert text == (
        "digits (experiment 7): running\n"
        "███████████████░░░░░░░░░░░░░░░ 50 % · step 44 · epoch 2.0 · 0:42 elapsed · "
        "about 0:41 left · as of 12:34:56\n"
        "trial 1: running · 2 ranks (gloo) · first step after 0.09 s\n"
        "  rank 0: cpu 0, cpu, pid 4200, running\n"
        "  rank 1: cpu 1, cpu, pid 4201, running\n"
        "metric                       last      lowest     highest\n"
        "loss (training)            0.2500      0.1235       2.500\n"
        "accuracy (validation)      0.9812      0.6100      0.9812\n"
        "1 checkpoint, 620 kB, latest at step 44 · best accuracy 0.9812 (checkpoint at step 44)"
    )


def test_plain_text_of_a_waiting_trial_says_what_it_waits_for() -> None:
    waiting = trial(
        steps_completed=0,
        progress=0.0,
        allocation=None,
        waiting_for="Needs 4 slots; 2 of 8 are free.",
    )
    lines = render_plain(built(experiment(waiting))).splitlines()
    assert lines[2:] == [
        "trial 1: queued",
        "  waiting: Needs 4 slots; 2 of 8 are free.",
        "No metrics yet: the trial is not running.",
    ]


def waiting_state(**changes: Any) -> ViewState:
    view, cluster = waiting()
    reasons = {1: reason(1, expected=None, why_unknown="nothing is known", **changes)}
    return build_view_state(view, [], [], NOW, cluster=cluster, reasons=reasons)


def test_plain_text_of_a_waiting_trial_says_what_would_start_it() -> None:
    assert render_plain(waiting_state()).splitlines()[2:] == [
        "trial 1: queued",
        "  waiting: needs 4 slots; 2 of 8 are free; experiment 3 “resnet” holds 4; "
        "starts when it ends or is paused",
        "  when it starts is not known: nothing is known",
        "  - wait until experiment 3 ends",
        "  - pause experiment 3, which gives 4 slots back: %det_experiment pause 3",
        "  - ask for 2 slots: %det_experiment set 7 --max-slots 2",
        "8 slots: 6 used, 2 free · 95 waiting",
        "No metrics yet: the trial is not running.",
    ]


def test_plain_text_in_a_shell_has_no_commands_of_a_notebook() -> None:
    lines = render_plain(waiting_state(), SHELL).splitlines()
    assert lines[5:9] == [
        "  - wait until experiment 3 ends",
        "  - pause experiment 3, which gives 4 slots back",
        "  - ask for 2 slots",
        "  `det experiment why 7` has the commands",
    ]


def test_card_of_a_waiting_trial_says_what_would_start_it() -> None:
    card = Elements(render_html(waiting_state()))
    assert (
        "experiment 3 “resnet” holds 4; starts when it ends or is paused "
        "when it starts is not known: nothing is known "
        "wait until experiment 3 ends "
        "pause experiment 3, which gives 4 slots back %det_experiment pause 3 "
        "ask for 2 slots %det_experiment set 7 --max-slots 2 "
        "8 slots: 6 used, 2 free · 95 waiting"
    ) in card.text
    assert card.seen.count("code") == 2


def test_search_of_which_nothing_runs_says_why() -> None:
    view, curves, saved, now = search_experiment(16, 14)
    for each in view.trials:
        each.allocation = None
    view.trials[-1].is_resting = False
    number = view.trials[-1].id
    own = reason(number, sentence="needs 4 slots", expected=None)
    queue = waiting()[1].model_copy(update={"queue": [entry(number, 7, reason=own)]})
    state = build_view_state(view, curves, saved, now, cluster=queue, reasons={number: own})
    assert render_plain(state).splitlines()[2:4] == [
        f"waiting: trial {number}: needs 4 slots",
        "- wait until experiment 3 ends",
    ]
    assert "needs 4 slots wait until experiment 3 ends" in Elements(render_html(state)).text


def test_trial_that_makes_room_says_so() -> None:
    state = built(experiment(trial(allocation=leaving_for(5))))
    sentence = "makes room for experiment 5: saves a checkpoint, then queues at its place"
    assert render_plain(state).splitlines()[2:4] == [
        "trial 1: making room · 2 ranks (gloo) · first step after 0.09 s",
        f"  {sentence}",
    ]
    assert sentence in Elements(render_html(state)).text


def test_hostile_reason_stays_text() -> None:
    state = waiting_state(sentence=HOSTILE)
    assert "script" not in Elements(render_html(state)).seen
    assert "\x1b" not in render_plain(state)


def test_plain_text_of_a_failed_trial_has_the_traceback() -> None:
    failed = trial(state=State.ERROR, allocation=None, failure=failure())
    state = built(experiment(failed, state=State.ERROR, ended_at=NOW, message="It failed."))
    assert render_plain(state).splitlines()[2:] == [
        "It failed.",
        "trial 1: error",
        "  failed on rank 1 (exit code 1): RuntimeError: The size of tensor a (64) must match "
        "the size of tensor b (10)",
        "  at Cell In[5], line 12, in train_batch",
        "  | Traceback (most recent call last):",
        "  |   Cell In[5], line 12, in train_batch",
        "  |     loss = self.model(images).sum() / labels",
        "  | RuntimeError: The size of tensor a (64) must match the size of tensor b (10)",
        "  logs: %det_experiment logs 7 --trial 1 --rank 1",
        "No metrics were reported.",
    ]


def test_the_card_of_a_failed_trial_has_the_line_for_its_logs() -> None:
    failed = trial(state=State.ERROR, allocation=None, failure=failure())
    state = built(experiment(failed, state=State.ERROR, ended_at=NOW))
    text = Elements(render_html(state)).text
    assert "Logs: %det_experiment logs 7 --trial 1 --rank 1" in text


def test_plain_text_of_a_search_has_its_best_trials() -> None:
    text = re.sub(r"as of [\d:]{8}", "as of 12:34:56", render_plain(searched(16, 14)))
    assert text == (
        "digits (experiment 7): running\n"
        "█████████████████████░░░░░░░░░ 72 % · 0 of 16 trials done · 4 running · 9 resting · "
        "1 failed · best accuracy 0.8000 (trial 5) · 0:14 elapsed · as of 12:34:56\n"
        "trial 9 failed: RuntimeError: The size of tensor a (64) must match the size of tensor b "
        "(10)\n"
        "1 epoch: 11 reached, 5 promoted · 4 epochs: 3 reached, 0 promoted · "
        "16 epochs: 0 reached, 0 promoted\n"
        "trial    state      rung  accuracy  steps         lr  hidden  optimizer.name  "
        "optimizer.momentum\n"
        "    5  resting  4 epochs    0.8000     88   0.007391     205            adam  "
        "            0.7872\n"
        "    7  resting  4 epochs    0.6923     88  0.0009365      54            adam  "
        "            0.6444\n"
        "    3  resting  4 epochs    0.6662     88  0.0005175     155             sgd  "
        "            0.3663\n"
        "   10  running   1 epoch    0.4829     52   0.005179     125            adam  "
        "            0.5723\n"
        "   11  running   1 epoch    0.4665     52   0.002276     159            adam  "
        "            0.4473\n"
        "   12  resting   1 epoch    0.4636     22   0.002653     184         rmsprop  "
        "            0.6597\n"
        "    6  resting   1 epoch    0.4143     22    0.02399     226             sgd  "
        "            0.4802\n"
        "    2  resting   1 epoch    0.3779     22    0.07381     233             sgd  "
        "           0.09067\n"
        "    8  resting   1 epoch    0.3641     22  0.0004788     112             sgd  "
        "            0.1912\n"
        "    4  resting   1 epoch    0.3617     22  0.0005107      42         rmsprop  "
        "            0.3921\n"
        "the best 10 of 14 trials\n"
        "14 checkpoints, 8.7 MB, latest at step 88 · best accuracy 0.8000 (checkpoint at step 88)"
    )


def test_search_without_trials_says_so() -> None:
    view = search_experiment(16, 0)[0].model_copy(update={"trials": []})
    state = built(view)
    assert "No trials yet." in render_plain(state)
    assert "No trials yet." in Elements(render_html(state)).text
    assert "no accuracy yet" in render_plain(state)


def test_card_of_a_search_has_its_rungs_and_its_best_trials() -> None:
    state = searched(300, 330)
    card = Elements(render_html(state))
    assert "best accuracy 0.9759 (trial 122)" in card.text
    assert "122 completed 16 epochs 0.9759 352 0.003389 168 adam 0.9004" in card.text
    assert "248 more trials, best first" in card.text
    assert "trained to the end" in card.text
    assert card.text.count("completed") == 16


def test_hostile_hyperparameters_never_become_markup() -> None:
    trials = [trial(id=i, hparams={HOSTILE: f"{HOSTILE}{i}"}) for i in (1, 2)]
    space = {HOSTILE: {"type": "categorical", "vals": [HOSTILE]}}
    config = {"searcher": {"metric": HOSTILE}, "hyperparameters": space}
    state = built(experiment(*trials, config=config, name=HOSTILE))
    card = Elements(render_html(state))
    assert "script" not in card.seen
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", render_plain(state))


def hostile_state() -> ViewState:
    name = CapturedName(name=HOSTILE, cell=HOSTILE, type=HOSTILE, size_bytes=1)
    view = experiment(
        trial(
            failure=failure(error=HOSTILE, where=HOSTILE, traceback=HOSTILE),
            waiting_for=HOSTILE,
            hparams={HOSTILE: HOSTILE},
            alarms=[HOSTILE],
        ),
        name=HOSTILE,
        message=HOSTILE,
        capsule=capsule(captured=[name], notices=[HOSTILE]),
        config={"searcher": {"metric": HOSTILE}},
    )
    curves = [curve("batches", f"{HOSTILE}{i}", [1.0]) for i in range(8)]
    return built(view, *curves, saved=[checkpoint(1, 0.5)])


def test_hostile_names_never_become_markup() -> None:
    html = render_html(hostile_state())
    card = Elements(html)
    assert "script" not in card.seen
    assert "<script>alert(1)</script>" in card.text  # as text
    assert "\x1b" not in html


def test_hostile_names_never_command_a_terminal() -> None:
    text = render_plain(hostile_state())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


def test_metrics_without_room_are_counted() -> None:
    state = built(experiment(trial()), *(curve("validation", f"m{i}", [1.0]) for i in range(40)))
    sentence = "34 more metrics not shown: m6, m7, m8, m9, m10, …"
    assert sentence in render_plain(state)
    assert sentence in Elements(render_html(state)).text
    assert len(Elements(render_html(state)).sources) == 6


def test_long_curves_are_drawn_with_few_points() -> None:
    state = built(experiment(trial()), *digits_curves(20_000))
    for points in re.findall(r'points="([^"]*)"', render_html(state)):
        assert len(points.split()) <= 300
    assert len(render_html(state)) < 60_000


def test_one_point_is_a_dot() -> None:
    [chart] = built(experiment(trial()), curve("batches", "loss", [0.5]))["charts"]
    picture = svg_chart(chart, 1)
    assert picture.count("<circle") == 1
    assert "<polyline" not in picture


def test_faint_curve_is_a_shade_of_the_text_and_shows_its_lone_points() -> None:
    [chart] = built(experiment(trial()), curve("batches", "x", [1.0, 2.0, None, 3.0]))["charts"]
    picture = svg_chart({**chart, "series": [{**chart["series"][0], "is_faint": True}]}, 4)
    [line] = re.findall(r"<polyline[^>]*>", picture)
    [dot] = re.findall(r"<circle[^>]*>", picture)
    assert 'stroke="currentColor"' in line
    assert 'opacity="0.3"' in line
    assert 'fill="currentColor" opacity="0.3"' in dot


def test_gap_interrupts_the_line() -> None:
    [chart] = built(experiment(trial()), curve("batches", "x", [1.0, 2.0, None, 3.0, 4.0]))[
        "charts"
    ]
    assert svg_chart(chart, 5).count("<polyline") == 2


def test_curve_without_finite_values_is_said_to_have_none() -> None:
    state = built(experiment(trial()), curve("batches", "loss", [None, None]))
    assert "no finite value" in Elements(render_html(state)).text
    assert "NaN" in render_plain(state)


@given(
    values=st.lists(
        st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30
    )
)
def test_any_numbers_give_a_picture_inside_its_frame(values: list[float | None]) -> None:
    [chart] = built(experiment(trial()), curve("batches", "loss", values))["charts"]
    picture = svg_chart(chart, len(values))
    for points in re.findall(r'points="([^"]*)"', picture):
        for point in points.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 320
            assert 0 <= y <= 150


def test_labels_and_the_description_are_shown() -> None:
    view = experiment(trial())
    config = view.config | {"labels": ["good"], "description": "Two\nlayers."}
    state = built(experiment(trial(), config=config))
    assert "labels: good\nTwo layers.\n" in render_plain(state)
    assert ">good</span></div><div" in render_html(state)
    assert "Two\nlayers.</div>" in render_html(state)
