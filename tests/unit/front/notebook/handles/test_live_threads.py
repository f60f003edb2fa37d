"""A live view follows its experiment in threads, from its display to the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import Kill
from det_jupyter.front.notebook.handles import live
from det_jupyter.front.notebook.handles.live import LiveView
from tests.unit.client.test_wait_for_end import Master, over
from tests.unit.front.notebook.handles.test_live import Display
from tests.unit.view.view_samples import experiment, trial


class Changing(Master):
    """Also takes changes."""

    def __init__(self, *views: Any) -> None:
        super().__init__(*views)
        self.changes: list[Any] = []

    def change(self, request: Any) -> Any:
        self.changes.append(request)
        return self.views[0]

    def importance(self, number: int) -> Any:
        raise AssertionError("it is no search")


class Shown:
    """The outputs that a view has displayed."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.output = Display()

    def display(self, forms: dict[str, Any], metadata: Any = None) -> Any:
        self.first.append(forms["text/html"])
        return self.output


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    found = Shown()
    monkeypatch.setattr(live, "front_end", lambda: "static")
    monkeypatch.setattr(live, "display_forms", found.display)
    monkeypatch.setattr(live, "_PUSH_PERIOD_S", 0.0)
    yield found
    for thread in threading.enumerate():
        if thread.name in ("det-view-7", "det-follow-7"):
            thread.join()


def view_of(master: Master) -> LiveView:
    return LiveView(cast(Client, master), 7)


def test_an_experiment_that_is_over_is_shown_with_its_curves(shown: Shown) -> None:
    view_of(Changing(over())).show()
    [picture] = shown.first
    assert "Completed" in picture
    assert "error" in picture, "its curve"


def test_one_that_trains_is_shown_until_its_end(shown: Shown) -> None:
    master = Changing(experiment(trial()))
    view = view_of(master)
    view.show()
    assert "Running" in shown.first[0]
    master.views.append(over())
    master.is_silent.set()  # the feed ends, and is read again
    live.await_last_picture(7)
    assert "Completed" in shown.output.pictures[-1]


def test_a_second_display_follows_with_the_same_thread(shown: Shown) -> None:
    master = Changing(experiment(trial()))
    view = view_of(master)
    view.show()
    view.show()
    names = [each.name for each in threading.enumerate()]
    assert names.count("det-follow-7") == 1
    assert len(shown.first) == 2
    master.views.append(over())
    master.is_silent.set()


def test_a_button_is_one_change(shown: Shown) -> None:
    master = Changing(over())
    view = view_of(master)
    view._on_command("kill")
    assert master.changes == [Kill(experiment_id=7)]
