"""The live widget's side of its conversation, and the forms a view is displayed in."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.errors import Conflict
from det_jupyter.notebook.view import (
    Verb,
    ViewState,
    build_view_state,
    bundle,
    live_widget,
    metadata,
    render_html,
    render_plain,
    show,
)
from tests.unit.view_samples import CREATED_AT, experiment, trial

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def state() -> ViewState:
    return build_view_state(experiment(trial()), [], [], CREATED_AT)


@pytest.fixture
def _built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "widget.js").write_text("export default { render() {} }")
    (tmp_path / "widget.css").write_text(".det-view {}")
    monkeypatch.setattr(show, "STATIC_DIR", tmp_path)


class Front:
    """A browser's end of a widget."""

    def __init__(self, state: ViewState, on_command: Any) -> None:
        self.widget = cast("Any", live_widget(state, on_command))
        self.answers: list[dict[str, Any]] = []
        self.widget.send = self.answers.append

    def say(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        self.widget._handle_custom_msg(message, [])
        return self.answers


@pytest.mark.usefixtures("_built")
def test_button_reaches_the_callback_and_is_answered(state: ViewState) -> None:
    asked: list[Verb] = []
    front = Front(state, asked.append)
    answers = front.say({"type": "command", "verb": "pause"})
    assert asked == ["pause"]
    assert answers == [{"type": "outcome", "verb": "pause", "error": ""}]


@pytest.mark.usefixtures("_built")
def test_refusal_is_answered_with_its_reason(state: ViewState) -> None:
    def refuse(verb: Verb) -> None:
        raise Conflict("experiment 7 is over: it cannot be paused")

    answers = Front(state, refuse).say({"type": "command", "verb": "pause"})
    assert [answer["error"] for answer in answers] == ["experiment 7 is over: it cannot be paused"]


@pytest.mark.usefixtures("_built")
def test_unexpected_error_is_answered_and_logged(
    state: ViewState, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(verb: Verb) -> None:
        raise RuntimeError("boom")

    with caplog.at_level(logging.ERROR):
        answers = Front(state, break_down).say({"type": "command", "verb": "kill"})
    assert [answer["error"] for answer in answers] == ["RuntimeError: boom"]
    assert "command kill" in caplog.text


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize(
    "message", [{}, {"type": "command", "verb": "rm"}, {"type": "other", "verb": "kill"}]
)
def test_message_that_is_no_command_is_ignored(state: ViewState, message: dict[str, Any]) -> None:
    asked: list[Verb] = []
    assert Front(state, asked.append).say(message) == []
    assert asked == []


@pytest.mark.usefixtures("_built")
def test_bundle_has_the_widget_and_what_stands_in_for_it(state: ViewState) -> None:
    widget = live_widget(state, lambda verb: None)
    assert widget is not None
    forms = bundle(state, widget)
    assert set(forms) == {VIEW, "text/html", "text/plain"}
    assert forms["text/plain"] == render_plain(state)
    assert forms["text/html"] == render_html(state)
    assert isinstance(metadata(widget), dict)


def test_bundle_without_a_widget_is_static(state: ViewState) -> None:
    assert set(bundle(state)) == {"text/html", "text/plain"}
    assert metadata(None) == {}


def test_there_is_no_widget_while_the_front_end_is_not_built(
    state: ViewState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "STATIC_DIR", tmp_path)
    assert live_widget(state, lambda verb: None) is None


def test_importing_the_view_imports_no_widgets() -> None:
    code = (
        "import sys, det_jupyter.notebook.view; "
        "print([m for m in ('anywidget', 'ipywidgets', 'IPython', 'torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
