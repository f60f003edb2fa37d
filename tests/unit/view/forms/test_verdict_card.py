"""A verdict in the view's state, in the kept card and in plain text."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

from det_jupyter.client.handles.reasons import shown_verdict
from det_jupyter.contract.messages import Cause, Verdict
from det_jupyter.contract.messages.verdicts import VerdictKind
from det_jupyter.contract.messages.views import Divergence
from det_jupyter.front.verbs.showing import trials_listing
from det_jupyter.view import build_view_state, render_html, render_plain
from det_jupyter.view.forms.verdict_card import svg_shares
from det_jupyter.view.model.verdict_state import VERDICT_WORDS, TimeShare
from tests.unit.view.view_samples import CREATED_AT, experiment, trial

FOUND = Verdict(
    kind="input",
    sentence="Input-bound: 55 % of the time goes to waiting for data. Next: set num_workers.",
    causes=[
        Cause(
            kind="input",
            share=0.55,
            evidence=["waiting for data: 12 ms of 22 ms a batch <b>"],
            advice=["set num_workers", "set pin_memory"],
        )
    ],
    shares={"input": 0.55, "compute": 0.42, "residual": 0.028, "transfer": 0.002},
    at=CREATED_AT,
    batches=1200,
)


def state_of(verdict: Verdict | None):  # type: ignore[no-untyped-def]
    return build_view_state(experiment(trial(verdict=verdict)), [], [], CREATED_AT + 30)


def test_the_state_has_the_verdict_with_shares_in_the_order_of_the_bar() -> None:
    [shown] = state_of(FOUND)["trials"]
    assert shown["verdict"]["sentence"] == FOUND.sentence
    assert [one["kind"] for one in shown["verdict"]["shares"]] == [
        "compute", "input", "residual",
    ]  # fmt: skip
    assert shown["verdict"]["causes"][0]["word"] == "waiting for data"
    assert state_of(None)["trials"][0]["verdict"] is None


@pytest.mark.parametrize(
    ("kind", "tone"),
    [("healthy", "good"), ("compute", "text"), ("unknown", "text"), ("input", "warn")],
)
def test_only_lost_time_looks_like_an_alarm(kind: VerdictKind, tone: str) -> None:
    [shown] = state_of(FOUND.model_copy(update={"kind": kind}))["trials"]
    assert shown["verdict"]["tone"] == tone


def test_a_failed_trial_has_no_verdict_that_says_nothing() -> None:
    def shown(kind: VerdictKind) -> object:
        verdict = FOUND.model_copy(update={"kind": kind})
        failed = trial(state="ERROR", verdict=verdict)
        state = build_view_state(experiment(failed, state="ERROR"), [], [], CREATED_AT + 30)
        return state["trials"][0]["verdict"]

    assert shown("unknown") is None
    assert shown("input") is not None


def test_a_trial_whose_loss_is_nan_does_not_look_well() -> None:
    def shown(kind: VerdictKind) -> object:
        verdict = FOUND.model_copy(update={"kind": kind})
        wild = trial(verdict=verdict, divergence=Divergence(metric="loss", value="NaN", since=40))
        state = build_view_state(experiment(wild), [], [], CREATED_AT + 30)
        return state["trials"][0]["verdict"]

    assert shown("healthy") is None
    assert shown("input") is not None


def test_plain_text_says_what_limits_the_trial_and_what_to_try() -> None:
    text = render_plain(state_of(FOUND))
    begin = text.index("  Input-bound")
    assert text[begin:].splitlines()[:5] == [
        f"  {FOUND.sentence}",
        "    time: waiting for data 55 %, compute 42 %, the rest 3 %",
        "    seen: waiting for data: 12 ms of 22 ms a batch <b>",
        "    try: set num_workers",
        "    try: set pin_memory",
    ]


def test_the_kept_card_has_sentence_bar_and_advice_without_a_script() -> None:
    page = render_html(state_of(FOUND))
    assert FOUND.sentence in page
    assert "a batch &lt;b&gt;" in page
    assert "<script" not in page
    picture = unquote(re.findall(r"data:image/svg[^\"]*", page)[-1])
    assert "waiting for data 55 %" in picture
    assert "url(#input)" in picture


def test_a_trial_without_a_verdict_has_none_in_its_card() -> None:
    assert "try:" not in render_plain(state_of(None))
    assert "based on" not in render_html(state_of(None))


def test_the_bar_is_as_wide_as_the_whole_time_and_all_its_kinds_look_different() -> None:
    kinds = [kind for kind in VERDICT_WORDS if kind not in ("memory", "healthy", "unknown")]
    shares = [TimeShare(kind=kind, word=VERDICT_WORDS[kind], share=1 / 9) for kind in kinds]
    svg = svg_shares(shares)
    widths = re.findall(r'y="0" width="([\d.]+)"', svg)
    assert abs(sum(map(float, widths)) - 640) < 1
    looks = re.findall(r"<pattern id=\"\w+\"(.*?)</pattern>", svg)
    assert len(set(looks)) == len(kinds)
    assert svg_shares([]) == ""


def test_a_verdict_prints_itself() -> None:
    assert repr(shown_verdict(FOUND, {})).startswith(FOUND.sentence)
    assert "<img" in shown_verdict(FOUND, {})._repr_html_()
    assert shown_verdict(None, {}).kind == "unknown"
    assert "Too early to judge" in repr(shown_verdict(None, {"profiling": {"enabled": None}}))
    off = shown_verdict(None, {"profiling": {"enabled": False}})
    assert repr(off) == "Not measured: profiling.enabled is false."


def test_the_table_of_trials_names_the_kinds_where_there_are_some() -> None:
    with_one = trials_listing(experiment(trial(verdict=FOUND), trial(id=2, verdict=None))).text()
    assert with_one.splitlines()[1].split()[-1] == "verdict"
    assert "input" in with_one
    assert "verdict" not in trials_listing(experiment(trial(verdict=None))).header
