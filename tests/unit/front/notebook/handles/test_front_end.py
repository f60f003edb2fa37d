"""The live widget's messages, and the mimebundles of a view."""

from __future__ import annotations

import copy
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.contract.documents.patches import apply_changes, plain, size_of
from det_jupyter.contract.messages import ExperimentView
from det_jupyter.front.notebook.handles import front_end
from det_jupyter.front.notebook.handles.front_end import bundle, can_draw, metadata
from det_jupyter.front.notebook.handles.widget import DoorWidget, LiveWidget
from det_jupyter.view import ViewState, build_view_state, render_html, render_plain
from det_jupyter.view.forms.notebook_output import EXPERIMENT_MIME, in_place, key_id, place_key
from tests.unit.view.view_cluster_samples import waiting
from tests.unit.view.view_samples import CREATED_AT, experiment, search_experiment, trial

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def state() -> ViewState:
    return document_of(experiment(trial()), CREATED_AT)


def document_of(view: ExperimentView, now: float, *parts: Any, **more: Any) -> ViewState:
    """Return the state of the view as the reader's document has it."""
    curves, checkpoints = parts or ([], [])
    return cast(ViewState, plain(build_view_state(view, curves, checkpoints, now, **more)))


@pytest.fixture
def _built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "widget.js").write_text("export default { render() {} }")
    (tmp_path / "widget.css").write_text(".det-view {}")
    monkeypatch.setattr(front_end, "STATIC_DIR", tmp_path)


def live_widget(
    state: ViewState,
    on_choose: Any = None,
    on_question: Any = None,
    on_wake: Any = lambda: None,
) -> LiveWidget:
    return LiveWidget(state, on_choose, on_question, on_wake)


@pytest.mark.usefixtures("_built")
def test_order_that_arrives_again_while_it_is_carried_out_is_given_once(state: ViewState) -> None:
    asked: list[str] = []
    widget = cast(
        "Any",
        live_widget(state, on_question=lambda asks, send: asked.append(asks["request"])),
    )
    for request in ("a", "a", "b"):
        widget._handle_custom_msg({"type": "profile", "trial_id": 1, "request": request}, [])
    assert asked == ["a", "b"]


@pytest.mark.usefixtures("_built")
def test_a_button_is_a_question_and_other_messages_are_not(state: ViewState) -> None:
    asked: list[Any] = []
    widget = cast("Any", live_widget(state, on_question=lambda asks, send: asked.append(asks)))
    button = {"type": "command", "command": "pause"}
    for message in (button, {}, {"type": "other", "command": "kill"}):
        widget._handle_custom_msg(message, [])
    assert asked == [button]


def search_state(num_results: int) -> ViewState:
    view, curves, checkpoints, now = search_experiment(200, num_results)
    return document_of(view, now, curves, checkpoints)


def drawn(widget: Any) -> Any:
    """Return the state as the front end puts it together."""
    document, patch = copy.deepcopy((widget.document, widget.patch))
    assert document["version"] == patch["since"]
    return apply_changes(document["state"], patch["operations"])


@pytest.mark.usefixtures("_built")
def test_only_what_has_changed_is_sent_again() -> None:
    first, second = search_state(100), search_state(104)
    widget = cast("Any", live_widget(first))
    assert drawn(widget) == first
    sent: set[str] = set()  # a trait that changes is one that is sent
    widget.observe(lambda change: sent.add(change["name"]))
    widget.state = second
    assert sent == {"patch"}
    assert size_of(widget.patch) < size_of(second) / 2
    assert drawn(widget) == second
    assert widget.state == second


@pytest.mark.usefixtures("_built")
def test_slots_are_sent_again_only_when_they_have_changed() -> None:
    view, known = waiting()
    widget = cast("Any", live_widget(document_of(view, CREATED_AT, cluster=known)))
    widget.state = document_of(view, CREATED_AT + 1, cluster=known)
    assert {each["path"] for each in widget.patch["operations"]} == {"/as_of"}
    widget.state = document_of(view, CREATED_AT + 1)
    assert drawn(widget)["cluster"] is None


@pytest.mark.usefixtures("_built")
def test_the_whole_is_sent_again_once_much_has_changed() -> None:
    widget = cast("Any", live_widget(search_state(40)))
    versions = []
    for num_results in range(45, 85, 5):
        state = search_state(num_results)
        widget.state = state
        assert drawn(widget) == state
        assert size_of(widget.patch) < size_of(state)
        versions.append(widget.document["version"])
    assert versions == sorted(versions)
    assert 1 < versions[-1] < 8


@pytest.mark.usefixtures("_built")
def test_of_a_long_search_a_push_has_what_changed_and_not_all_rows() -> None:
    view, curves, checkpoints, now = search_experiment(1000, 600)
    widget = cast("Any", live_widget(document_of(view, now, curves, checkpoints)))
    for trial_view in view.trials[600:608]:
        trial_view.steps_completed += 1
    widget.state = document_of(view, now + 1, curves, checkpoints)
    assert widget.document["version"] == 1
    assert size_of(widget.patch) < 5_000


@pytest.mark.usefixtures("_built")
def test_a_page_that_lost_a_message_is_sent_both_parts(state: ViewState) -> None:
    widget = cast("Any", live_widget(state))
    sent: list[Any] = []
    widget.send_state = sent.append
    widget._handle_custom_msg({"type": "whole"}, [])
    assert sent == [["document", "patch"]]


@pytest.mark.usefixtures("_built")
def test_chosen_trial_is_told() -> None:
    chosen: list[int | None] = []
    widget = cast("Any", live_widget(search_state(10), chosen.append))
    widget.set_state({"chosen": 5})
    widget.set_state({"chosen": None})
    assert chosen == [5, None]


@pytest.mark.usefixtures("_built")
def test_choice_that_cannot_be_shown_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def break_down(trial_id: int | None) -> None:
        raise RuntimeError("boom")

    widget = cast("Any", live_widget(search_state(10), break_down))
    with caplog.at_level(logging.ERROR):
        widget.set_state({"chosen": 5})
    assert "choosing trial 5" in caplog.text


@pytest.mark.usefixtures("_built")
def test_bundle_has_the_widget_and_what_stands_in_for_it(state: ViewState) -> None:
    widget = live_widget(state)
    forms = bundle(state, widget)
    assert set(forms) == {VIEW, EXPERIMENT_MIME, "text/html", "text/plain"}
    assert forms["text/plain"] == render_plain(state)
    assert forms["text/html"] == in_place(
        place_key(state["id"], state["created_at"]), render_html(state)
    )
    assert isinstance(metadata(widget), dict)


@pytest.mark.usefixtures("_built")
def test_widget_draws_the_places_that_its_experiment_has(state: ViewState) -> None:
    widget = cast("Any", live_widget(state))
    assert f'key="{widget.key}"' in bundle(state)["text/html"]
    assert key_id(widget.key) == state["id"]
    assert widget.own_id == widget.model_id
    assert widget.comm._reply_subshell_for is None, "its messages wait for no running cell"


@pytest.mark.parametrize("key", ["", "x", "-7@1.0", "@", "７@1"])
def test_key_of_something_else_is_no_experiments(key: str) -> None:
    assert key_id(key) == 0


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("message", [{}, {"type": "wanted", "key": 7}, {"type": "x", "key": "7"}])
def test_door_passes_on_keys_alone(message: dict[str, Any]) -> None:
    wanted: list[str] = []
    door = cast("Any", DoorWidget(wanted.append))
    door._handle_custom_msg(message, [])
    assert wanted == []
    door._handle_custom_msg({"type": "wanted", "key": "7@1.0"}, [])
    assert wanted == ["7@1.0"]


def test_bundle_without_a_widget_is_static(state: ViewState) -> None:
    assert set(bundle(state)) == {EXPERIMENT_MIME, "text/html", "text/plain"}
    assert metadata(None) == {}


def test_readers_without_our_extension_get_no_form_of_our_own(
    state: ViewState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_end, "front_end", lambda: "outputs")
    assert set(bundle(state)) == {"text/html", "text/plain"}


def test_own_form_names_the_place_and_sums_up(state: ViewState) -> None:
    own = bundle(state)[EXPERIMENT_MIME]
    assert json.loads(json.dumps(own)) == own
    assert own["key"] == place_key(state["id"], state["created_at"])
    assert (own["id"], own["status"]) == (state["id"], state["status"])


@pytest.mark.usefixtures("_built")
def test_widget_sends_nothing_while_all_pages_are_fed_by_a_server(state: ViewState) -> None:
    woken: list[str] = []
    widget = cast("Any", live_widget(state, on_wake=lambda: woken.append("woken")))

    def say(kind: str, page: str) -> None:
        widget._handle_custom_msg({"type": kind, "page": page}, [])

    def show(name: str) -> str:
        widget.state = {**state, "name": name}
        return str(drawn(widget)["name"])

    assert show("before any page") == "before any page"
    say("wake", "a")
    say("wake", "b")
    say("rest", "a")
    assert show("b needs it") == "b needs it"
    say("rest", "b")
    assert show("unseen") == "b needs it"
    say("rest", "c")
    assert drawn(widget)["name"] == "b needs it"
    assert widget.state["name"] == "unseen"
    assert woken == []
    say("wake", "a")
    assert drawn(widget)["name"] == "unseen"
    assert woken == ["woken"]
    say("wake", "b")
    assert woken == ["woken"]


def test_there_is_no_widget_while_the_front_end_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("widget.js", "widget.css"):
        monkeypatch.setattr(front_end, "STATIC_DIR", tmp_path)
        assert not can_draw()
        (tmp_path / name).touch()
    assert can_draw()


def test_importing_the_view_imports_no_widgets() -> None:
    code = (
        "import sys, det_jupyter.view; "
        "print([m for m in ('anywidget', 'ipywidgets', 'IPython', 'torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
