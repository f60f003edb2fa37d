"""The live view of one experiment in this kernel: one widget, fed from background threads.

    Follower thread    keeps a copy of the experiment current from the master's feed
    pusher thread      a few times a second turns the copy into the widget's state

Notebooks keep a picture of it, which needs no kernel. It is made anew when the state changes, once
a minute, and at the end. It reaches an open notebook in two ways: each output is a display with an
id, and the widget has the picture too, as a page that was loaded again knows no ids.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.display import DisplayHandle, display

from det_jupyter.client import Client, Follower
from det_jupyter.front.answers.answering import carry_out_command
from det_jupyter.front.answers.known_importance import KnownImportance
from det_jupyter.front.notebook.handles.show import bundle, can_draw, front, metadata
from det_jupyter.view import ViewState, WaitingNews, build_view_state
from det_jupyter.view.forms.notebook_output import place_key
from det_jupyter.view.live import LiveExperiment
from det_jupyter.view.model.status_looks import ENDED, Status

if TYPE_CHECKING:
    from det_jupyter.front.notebook.handles.widget import LiveWidget

_PUSH_PERIOD_S = 0.25
_REST_S = 5.0
_FETCH_S = 5.0
_KEEP_PERIOD_S = 60.0  # JupyterLab saves every two minutes
_FIRST_LOOK_S = 0.1  # how long the first display waits for the copy, so that it shows something


class LiveView:
    """Shows one experiment, wherever and however often it is asked to."""

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._displays: list[DisplayHandle] = []
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._front = front()
        self._widget: LiveWidget | None = None
        self._kept: tuple[Status, int] | None = None  # status and number of charts in it
        self._kept_at = 0.0  # on the monotonic clock
        self._made_at = 0.0  # likewise, the newest state
        self._news = WaitingNews()
        self._importance = KnownImportance(client, experiment_id)
        self._chosen_id: int | None = None  # the trial of a search that the reader has chosen
        self._follower: Follower | None = None

    def show(self) -> None:
        """Display the experiment here, live while this kernel is there."""
        state, follower = self._begin()
        with self._lock:
            held = self._widget if self._front == "outputs" else None
            forms = bundle(state, held)
            handle = display_forms(forms, metadata(held))
            if state["status"] not in ENDED:
                self._displays.append(handle)
            self._note_what_was_shown(state, follower)

    def enliven(self, key: str) -> None:
        """Draw the places of that name in the page, if they are this experiment's."""
        if place_key(self._state()) == key:
            self._begin()

    def _begin(self) -> tuple[ViewState, Follower]:
        """Follow the experiment, with a widget where one can be shown."""
        follower = self._start()
        state = self._state()
        if state["status"] in ENDED:
            follower.thread.join(_FETCH_S)  # its curves are worth waiting for
            state = self._state()
        with self._lock:
            if self._widget is None and self._front in ("places", "outputs"):
                self._widget = self._make_widget(state)
                if follower.live is not None:  # else it would be a picture without curves
                    self._keep(state)
        return state, follower

    def _make_widget(self, state: ViewState) -> LiveWidget | None:
        if not can_draw():
            return None
        from det_jupyter.front.notebook.handles.widget import LiveWidget, answer_soon

        on_question = partial(answer_soon, self._client, self._experiment_id)
        return LiveWidget(state, self._on_command, self._on_choose, on_question)

    def _start(self) -> Follower:
        if self._follower is not None and self._follower.thread.is_alive():
            return self._follower
        self._follower = Follower(
            self._client, self._experiment_id, lambda live: self._changed.set()
        ).start()
        threading.Thread(
            target=self._push_until_over,
            args=(self._follower,),
            name=f"det-view-{self._experiment_id}",
            daemon=True,
        ).start()
        return self._follower

    def _state(self) -> ViewState:
        self._changed.wait(_FIRST_LOOK_S)
        if self._follower is not None and self._follower.live is not None:
            return self._view_state(self._follower, self._follower.live)
        view = self._client.experiment(self._experiment_id)
        return build_view_state(view, [], [], time.time())

    def _view_state(self, follower: Follower, live: LiveExperiment) -> ViewState:
        with follower.lock:
            return build_view_state(
                live.experiment,
                list(live.curves.values()),
                list(live.checkpoints.values()),
                time.time(),
                chosen_id=self._chosen_id,
                cluster=live.cluster,
                reasons=live.reasons,
                importance=self._importance.latest,
            )

    def _push_until_over(self, follower: Follower) -> None:
        while follower.thread.is_alive():
            self._changed.wait(timeout=1.0)
            self._changed.clear()
            self._importance.refresh(follower.live)
            started = time.monotonic()
            self._push(follower)
            # Long curves take longer to draw: never more than a tenth of the kernel's time.
            time.sleep(max(_PUSH_PERIOD_S, 10 * (time.monotonic() - started)))
        self._importance.refresh(follower.live)
        self._push(follower, is_last=True)

    def _push(self, follower: Follower, *, is_last: bool = False) -> None:
        if follower.live is None or (self._is_resting() and not is_last):
            return
        if self._front == "terminal":
            self._print_why_it_waits(follower, follower.live)
        state = self._view_state(follower, follower.live)
        with self._lock:
            if self._widget is not None:
                self._widget.state = state
            if is_last or self._is_due(state):
                self._keep(state)

    def _is_resting(self) -> bool:
        """Whether a server draws: then a state is only made for pictures, every few seconds."""
        now = time.monotonic()
        if self._widget is None or self._widget.is_watched or now - self._made_at > _REST_S:
            self._made_at = now
            return False
        return True

    def _is_due(self, state: ViewState) -> bool:
        """Whether a new picture is worth making."""
        if self._front in ("terminal", "outputs"):
            return False  # it would be printed, or take the widget's place
        is_old = time.monotonic() - self._kept_at > _KEEP_PERIOD_S
        return _aspect(state) != self._kept or (is_old and state["status"] not in ENDED)

    def _keep(self, state: ViewState) -> None:
        """Put the newest picture where notebooks are saved."""
        self._kept, self._kept_at = _aspect(state), time.monotonic()
        forms = bundle(state)
        if self._widget is not None:
            self._widget.kept = forms
        for handle in self._displays:
            handle.update(forms, raw=True)
        if state["status"] in ENDED:
            self._displays.clear()

    def _note_what_was_shown(self, state: ViewState, follower: Follower) -> None:
        if state["cluster"] is not None and follower.live is not None:
            self._news.line(follower.live.experiment, follower.live.reasons)

    def _print_why_it_waits(self, follower: Follower, live: LiveExperiment) -> None:
        """Print a new reason: a terminal cannot redraw what was displayed."""
        with follower.lock:
            line = self._news.line(live.experiment, live.reasons)
        if line:
            print(line, flush=True)

    def _on_command(self, command: str) -> None:
        """Carry out a button: a verb, or a remedy by its id; the view shows the error."""
        live = self._follower.live if self._follower is not None else None
        reasons = () if live is None else live.reasons.values()
        carry_out_command(self._client, self._experiment_id, command, reasons)

    def _on_choose(self, trial_id: int | None) -> None:
        """Show this trial of a search in full; the pusher does it while there is one."""
        self._chosen_id = trial_id
        if self._follower is not None and self._follower.thread.is_alive():
            self._changed.set()
        elif self._follower is not None:
            self._push(self._follower)


def _aspect(state: ViewState) -> tuple[Status, int]:
    """Return what a picture must not be wrong about."""
    return state["status"], len(state["charts"])


def display_forms(forms: dict[str, Any], metadata: dict[str, Any] | None = None) -> DisplayHandle:
    """Display a mimebundle; the handle that is returned can update it."""
    handle = display(forms, metadata=metadata, raw=True, display_id=True)
    assert isinstance(handle, DisplayHandle)
    return handle
