"""The live view of one experiment in this kernel: one widget, updated by background threads.

    follower thread    keeps a copy of the experiment current from the master's feed
    pusher thread      builds the widget's state from the copy, a few times a second

The notebook file contains a picture of the view, which needs no kernel. It is rendered again when
the state changes, once a minute, and at the end, and sent in two ways: as an update of each
output by its display id, and in the widget, as a reloaded page has no display ids.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.display import DisplayHandle, display

from det_jupyter.client import Client, Follower
from det_jupyter.client.answers.answering import carry_out_command
from det_jupyter.client.answers.known_importance import KnownImportance
from det_jupyter.front.notebook.handles.front_end import bundle, can_draw, front_end, metadata
from det_jupyter.view import ViewState, WaitingNews, build_view_state
from det_jupyter.view.forms.notebook_output import place_key
from det_jupyter.view.live import LiveExperiment
from det_jupyter.view.model.status_looks import ENDED, Status

if TYPE_CHECKING:
    from det_jupyter.front.notebook.handles.widget import LiveWidget

_PUSH_PERIOD_S = 0.25
_REST_S = 5.0
_FETCH_S = 5.0
_LAST_PICTURE_S = 20.0
_KEEP_PERIOD_S = 60.0  # between pictures; JupyterLab saves every two minutes
_FIRST_LOOK_S = 0.1  # the first display waits so long for the copy


_pushers: dict[int, threading.Thread] = {}  # by experiment: those of displayed views


def await_last_picture(experiment_id: int) -> None:
    """Wait some seconds for the picture of the end, if the experiment is displayed.

    The notebook may be saved right after the cell, as `jupyter execute` does.
    """
    if experiment_id in _pushers:
        _pushers[experiment_id].join(_LAST_PICTURE_S)


class LiveView:
    """Displays one experiment, in any number of outputs."""

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._displays: list[DisplayHandle] = []
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._front_end = front_end()
        self._widget: LiveWidget | None = None
        self._kept: tuple[Status, int] | None = None  # essentials of the last picture
        self._kept_at = 0.0  # on the monotonic clock
        self._made_at = 0.0  # when the newest state was made, monotonic too
        self._news = WaitingNews()
        self._importance = KnownImportance(lambda: client.importance(experiment_id))
        self._chosen_id: int | None = None  # the trial of a search that was chosen in the view
        self._follower: Follower | None = None

    def show(self) -> None:
        """Display the experiment below this cell, live while the kernel runs."""
        state, follower = self._begin()
        with self._lock:
            widget = self._widget if self._front_end == "outputs" else None
            forms = bundle(state, widget)
            handle = display_forms(forms, metadata(widget))
            if state["status"] not in ENDED:
                self._displays.append(handle)
            self._skip_shown_reason(state, follower)

    def enliven(self, key: str) -> None:
        """Start the view if `key` names placeholders of this experiment in the page."""
        if place_key(self._state()) == key:
            self._begin()

    def _begin(self) -> tuple[ViewState, Follower]:
        """Follow the experiment, and create the widget if the front end can show one."""
        follower = self._start()
        state = self._state()
        if state["status"] in ENDED:
            follower.thread.join(_FETCH_S)  # waits until the curves are fetched
            state = self._state()
        with self._lock:
            if self._widget is None and self._front_end in ("places", "outputs"):
                self._widget = self._make_widget(state)
                if follower.live is not None:  # otherwise it would be a picture without curves
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
        pusher = _pushers[self._experiment_id] = threading.Thread(
            target=self._push_until_over,
            args=(self._follower,),
            name=f"det-view-{self._experiment_id}",
            daemon=True,
        )
        pusher.start()
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
            self._importance.refresh(follower.live.experiment if follower.live else None)
            started = time.monotonic()
            self._push(follower)
            # At most a tenth of the kernel's time, also with long curves.
            follower.thread.join(max(_PUSH_PERIOD_S, 10 * (time.monotonic() - started)))
        self._importance.refresh(follower.live.experiment if follower.live else None)
        self._push(follower, is_last=True)

    def _push(self, follower: Follower, *, is_last: bool = False) -> None:
        if follower.live is None or (self._is_resting() and not is_last):
            return
        if self._front_end == "terminal":
            self._print_why_it_waits(follower, follower.live)
        state = self._view_state(follower, follower.live)
        with self._lock:
            if self._widget is not None:
                self._widget.state = state
            if is_last or self._is_due(state):
                self._keep(state)

    def _is_resting(self) -> bool:
        """Whether no page displays the state: then it is built for pictures only, every 5 s."""
        now = time.monotonic()
        if self._widget is None or self._widget.is_watched or now - self._made_at > _REST_S:
            self._made_at = now
            return False
        return True

    def _is_due(self, state: ViewState) -> bool:
        """Whether to render a new picture."""
        if self._front_end in ("terminal", "outputs"):
            return False  # a picture would be printed, or replace the widget
        is_old = time.monotonic() - self._kept_at > _KEEP_PERIOD_S
        return _essentials(state) != self._kept or (is_old and state["status"] not in ENDED)

    def _keep(self, state: ViewState) -> None:
        """Render the picture, and send it to the outputs and the widget."""
        self._kept, self._kept_at = _essentials(state), time.monotonic()
        forms = bundle(state)
        if self._widget is not None:
            self._widget.kept = forms
        for handle in self._displays:
            handle.update(forms, raw=True)
        if state["status"] in ENDED:
            self._displays.clear()

    def _skip_shown_reason(self, state: ViewState, follower: Follower) -> None:
        """Do not print the reason that the displayed state shows."""
        if state["cluster"] is not None and follower.live is not None:
            self._news.line(follower.live.experiment, follower.live.reasons)

    def _print_why_it_waits(self, follower: Follower, live: LiveExperiment) -> None:
        """Print a new reason: a terminal cannot redraw an output."""
        with follower.lock:
            line = self._news.line(live.experiment, live.reasons)
        if line:
            print(line, flush=True)

    def _on_command(self, command: str) -> None:
        """Carry out a button's command: a verb, or the id of a remedy; the view shows an error."""
        live = self._follower.live if self._follower is not None else None
        reasons = () if live is None else live.reasons.values()
        carry_out_command(self._client, self._experiment_id, command, reasons)

    def _on_choose(self, trial_id: int | None) -> None:
        """Show this trial of a search in full; the pusher thread sends it, if it still runs."""
        self._chosen_id = trial_id
        if self._follower is not None and self._follower.thread.is_alive():
            self._changed.set()
        elif self._follower is not None:
            self._push(self._follower)


def _essentials(state: ViewState) -> tuple[Status, int]:
    """Return the part of a state whose change requires a new picture."""
    return state["status"], len(state["charts"])


def display_forms(forms: dict[str, Any], metadata: dict[str, Any] | None = None) -> DisplayHandle:
    """Display a mimebundle, and return the handle that can update it."""
    handle = display(forms, metadata=metadata, raw=True, display_id=True)
    assert isinstance(handle, DisplayHandle)
    return handle
