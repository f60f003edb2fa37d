"""The live view: commands of its buttons, and what a terminal prints."""

from __future__ import annotations

import threading
import time
from typing import Any, cast, get_args

import pytest
from det_jupyter.view.live import LiveExperiment

from det_jupyter.client import Client
from det_jupyter.client.reasons import carry_out
from det_jupyter.contract.messages import (
    Activate,
    ChangeResources,
    Curves,
    FeedItem,
    MoveInQueue,
    Pause,
    Remedy,
    RemedyVerb,
    State,
    SwitchSlots,
)
from det_jupyter.errors import Conflict
from det_jupyter.front.notebook.handles import live
from det_jupyter.front.notebook.handles.front_end import FrontEnd
from det_jupyter.front.notebook.handles.live import LiveView
from det_jupyter.view import build_view_state, render_html, render_plain
from det_jupyter.view.making.waits import _BUTTONS
from tests.unit.view.view_cluster_samples import reason, waiting, waiting_trial
from tests.unit.view.view_samples import CREATED_AT, curve, experiment, trial

SENTENCE = "needs 4 slots; 2 of 8 are free; experiment 3 “resnet” holds 4; starts when it ends"


class FakeFollower:
    """Has a copy that the test changes."""

    class thread:
        """A thread that has come to its end."""

        @staticmethod
        def is_alive() -> bool:
            return False

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.live: LiveExperiment | None = LiveExperiment(experiment(waiting_trial()), [], [], 1)


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "front_end", lambda: "terminal")


def copy_of(follower: FakeFollower) -> LiveExperiment:
    assert follower.live is not None
    return follower.live


class Display:
    """Notes the pictures that an output gets."""

    def __init__(self) -> None:
        self.pictures: list[str] = []

    def update(self, forms: dict[str, str], *, raw: bool) -> None:
        self.pictures.append(forms["text/html"])


def shown_in(front: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> tuple[LiveView, Any, Display]:
    """Return a view with one output, and the copy that it follows."""
    monkeypatch.setattr(live, "front_end", lambda: front)
    view, follower, output = LiveView(cast("Client", None), 7), FakeFollower(), Display()
    view._displays.append(cast("Any", output))
    return view, cast("Any", follower), output


def test_picture_is_made_anew_when_the_state_changes_and_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, follower, output = shown_in("static", monkeypatch)
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view._push(follower)
    view._push(follower)
    assert len(output.pictures) == 1
    copy_of(follower).experiment = experiment(trial())
    view._push(follower)
    assert "Running" in output.pictures[1]
    copy_of(follower).curves = Curves.of([curve("training", "loss", [1.0, 0.5])])
    view._push(follower)
    assert "loss" in output.pictures[2]
    now[0] += 59
    view._push(follower)
    assert len(output.pictures) == 3
    now[0] += 2
    view._push(follower)
    assert len(output.pictures) == 4


@pytest.mark.parametrize("front", ["outputs", "terminal"])
def test_picture_waits_for_the_end_where_it_would_be_in_the_way(
    front: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, follower, output = shown_in(front, monkeypatch)
    view._push(follower)
    assert output.pictures == []
    ended = experiment(trial(progress=1.0), state=State.COMPLETED, ended_at=CREATED_AT + 42)
    copy_of(follower).experiment = ended
    view._push(follower, is_last=True)
    [picture] = output.pictures
    assert "Completed" in picture
    view._push(follower)  # such as a trial that the reader has chosen since
    assert len(output.pictures) == 1


def test_ended_experiment_gets_no_more_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    view, follower, output = shown_in("static", monkeypatch)
    copy_of(follower).experiment = experiment(trial(), state=State.CANCELED, ended_at=CREATED_AT)
    view._push(follower, is_last=True)
    assert len(output.pictures) == 1
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    view._push(follower)
    assert len(output.pictures) == 1


@pytest.mark.usefixtures("_terminal")
def test_terminal_is_told_each_reason_once(capsys: pytest.CaptureFixture[str]) -> None:
    view, follower = LiveView(cast("Client", None), 7), cast("Any", FakeFollower())
    view._push(follower)
    copy_of(follower).reasons = {1: reason(1, sentence=SENTENCE)}
    view._push(follower)
    copy_of(follower).reasons = {1: reason(1, sentence=f"{SENTENCE}, about 14:20")}
    view._push(follower)
    copy_of(follower).experiment = experiment(trial())
    view._push(follower)
    assert capsys.readouterr().out == f"experiment 7 “digits”: trial 1 waits: {SENTENCE}\n"


@pytest.mark.usefixtures("_terminal")
def test_terminal_is_not_told_again_what_was_displayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view, follower = LiveView(cast("Client", None), 7), cast("Any", FakeFollower())
    copy = copy_of(follower)
    copy.cluster, copy.reasons = waiting()[1], {1: reason(1)}
    view._skip_shown_reason(view._view_state(follower, copy), follower)
    view._push(follower)
    assert capsys.readouterr().out == ""


class FakeClient:
    """Notes what is asked of the master."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.asked.append((name, *given))


def offering(*remedies: Remedy) -> tuple[LiveView, FakeClient]:
    client, follower = FakeClient(), FakeFollower()
    view = LiveView(cast("Client", client), 7)
    copy_of(follower).reasons = {1: reason(1, remedies=list(remedies))}
    view._follower = cast("Any", follower)
    return view, client


@pytest.mark.parametrize(
    ("remedy", "asked"),
    [
        (
            Remedy(verb="pause", target=[3, 4], text=""),
            [("change", Pause(experiment_id=3)), ("change", Pause(experiment_id=4))],
        ),
        (Remedy(verb="activate", target=[7], text=""), [("change", Activate(experiment_id=7))]),
        (
            Remedy(verb="set", target=[7], values={"max_slots": "none"}, text=""),
            [("change", ChangeResources(experiment_id=7, max_slots="none"))],
        ),
        (
            Remedy(verb="set", target=[7], values={"pool": "big"}, text=""),
            [("change", ChangeResources(experiment_id=7, resource_pool="big"))],
        ),
        (
            Remedy(verb="move", target=[7], values={"ahead_of": 5}, text=""),
            [("change", MoveInQueue(experiment_id=7, ahead_of=5))],
        ),
        (
            Remedy(verb="enable_slots", target=["left"], values={"slot_ids": [1, 2]}, text=""),
            [("change", SwitchSlots(agent_id="left", slots=[1, 2], enabled=True))],
        ),
    ],
)
def test_button_of_a_remedy_does_what_its_line_would_do(
    remedy: Remedy, asked: list[tuple[Any, ...]]
) -> None:
    view, client = offering(remedy)
    view._on_command(remedy.id)
    assert client.asked == asked
    assert _BUTTONS[remedy.verb]


def test_remedy_that_is_offered_no_more_is_refused() -> None:
    view, client = offering(Remedy(verb="pause", target=[3], text=""))
    with pytest.raises(Conflict, match="the queue has changed meanwhile"):
        view._on_command("pause 4")
    assert client.asked == []


@pytest.mark.parametrize("verb", sorted(set(get_args(RemedyVerb)) - _BUTTONS.keys()))
def test_remedy_without_a_button_is_for_the_user_to_carry_out(verb: RemedyVerb) -> None:
    client = FakeClient()
    with pytest.raises(Conflict, match="typed, or done by hand"):
        carry_out(cast("Client", client), Remedy(verb=verb, target=[3], text="end it"))
    assert client.asked == []


def test_a_rename_in_the_feed_is_in_the_next_picture_with_labels_and_description() -> None:
    view = experiment(trial())
    live = LiveExperiment(view, [], [], seq=3)
    config = view.config | {"name": "wide", "labels": ["good"], "description": "Two\nlayers."}
    renamed = view.model_copy(update={"name": "wide", "config": config})
    data = renamed.model_dump(exclude={"trials", "capsule"}, mode="json")
    live.apply(FeedItem(seq=4, at=CREATED_AT, kind="experiment", experiment_id=view.id, data=data))
    state = build_view_state(live.experiment, [], [], CREATED_AT)
    assert (state["name"], state["labels"]) == ("wide", ["good"])
    assert "labels: good\nTwo layers.\n" in render_plain(state)
    assert ">good</span></div><div" in render_html(state)
    assert "Two\nlayers.</div>" in render_html(state)
