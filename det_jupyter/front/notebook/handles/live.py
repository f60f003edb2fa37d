"""The live view of one experiment in this kernel: one widget, updated by a background thread.

The thread follows the experiment's document (client/documents.py), each version of which
is the widget's state. It acknowledges a version only after a pause, so the reader makes no more of
them than are shown.

The notebook file contains a picture of the view, which needs no kernel. It is rendered again when
the state changes, once a minute, and at the end, and sent in two ways: as an update of each
output by its display id, and in the widget, as a reloaded page has no display ids.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from IPython.display import DisplayHandle, display

from det_jupyter.client import Client
from det_jupyter.client.documents import FollowedDocument
from det_jupyter.errors import DetError
from det_jupyter.front.notebook.handles.front_end import (
    FrontEnd,
    bundle,
    can_draw,
    front_end,
    metadata,
)
from det_jupyter.view import ViewState, WaitingNews
from det_jupyter.view.forms.notebook_output import place_key
from det_jupyter.view.model.status_looks import Status

if TYPE_CHECKING:
    from det_jupyter.front.notebook.handles.widget import LiveWidget

logger = logging.getLogger(__name__)

_PUSH_PERIOD_S = 0.25
_PAUSE_SHARE = 10  # a pause is at least so many times as long as the work before it
_REST_S = 5.0  # pause between versions while no page displays the state
_TICK_S = 1.0
_FIRST_S = 5.0  # the first display waits so long for the first version
_LAST_PICTURE_S = 20.0
_COMPLETE_S = 10.0  # longest wait for what the state of an ended experiment lacks
_KEEP_PERIOD_S = 60.0  # time between pictures; JupyterLab saves every two minutes
_COMES = "Experiment {}: its view comes as soon as the master's reader answers"

_views: dict[int, LiveView] = {}  # by experiment: those that were displayed


def await_last_picture(experiment_id: int) -> None:
    """Wait some seconds for the final picture, if the experiment is displayed.

    The notebook may be saved right after the cell, as `jupyter execute` does.
    """
    if experiment_id in _views:
        _views[experiment_id].await_last_picture()


class LiveView:
    """Displays one experiment, in any number of outputs."""

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._front_end = front_end()
        self._widget_class = _widget_class(self._front_end)
        self._news = WaitingNews()
        self._awake = threading.Event()  # ends a rest
        self._is_awaited = False
        self._is_answered = threading.Event()  # with a version or an error, since the start
        self._has_last_picture = threading.Event()
        self._lock = threading.Lock()  # guards the attributes below
        self._document: FollowedDocument | None = None  # while the thread follows it
        self._state: ViewState | None = None  # its newest version
        self._changed_at = 0.0  # on the monotonic clock
        self._error: DetError | None = None  # the error with which the thread ended
        self._chosen_id: int | None = None  # the trial of a search that was chosen in the view
        self._displays: list[DisplayHandle] = []
        self._widget: LiveWidget | None = None
        self._kept: tuple[Status, int, int] | None = None  # essentials of the last picture
        self._kept_at = 0.0  # on the monotonic clock

    def show(self) -> None:
        """Display the experiment below this cell, live while the kernel runs.

        Raises:
            NotFound: It does not exist.
            MasterUnreachable: No master runs, or it is stopped, and there is no view yet.
        """
        self._start()
        problem = ""
        if not self._is_answered.wait(_FIRST_S) and self._state is None:
            self._client.experiment(self._experiment_id)  # raises an error that has the remedy
            problem = self._client.reader_problem()
        with self._lock:
            if self._error is not None:
                raise self._error
            state, widget = self._state, self._widget_in_outputs
            if state is None:
                words = f"{_COMES.format(self._experiment_id)}{problem and f' ({problem})'}"
                handle = display_forms({"text/plain": words})
            else:
                handle = display_forms(bundle(state, widget), metadata(widget))
            if state is None or state["ended_at"] is None:
                self._displays.append(handle)

    def enliven(self, key: str) -> None:
        """Start the view if `key` names placeholders of this experiment in the page."""
        view = self._client.experiment(self._experiment_id)
        if place_key(view.id, view.created_at) == key:
            self._start()

    def await_last_picture(self) -> None:
        """Wait some seconds for the final picture; the thread does not rest meanwhile."""
        self._is_awaited = True
        self._awake.set()
        self._has_last_picture.wait(_LAST_PICTURE_S)
        self._is_awaited = False

    def _start(self) -> None:
        """Follow the document, if it is not followed; otherwise end a rest."""
        _views[self._experiment_id] = self
        with self._lock:
            if self._document is not None:
                self._awake.set()
                return
            self._error = None
            self._is_answered.clear()
            self._has_last_picture.clear()
            self._document = self._client.document("experiment", **self._args)
            threading.Thread(
                target=self._follow,
                args=(self._document,),
                name=f"det-view-{self._experiment_id}",
                daemon=True,
            ).start()

    @property
    def _args(self) -> dict[str, Any]:
        return {"experiment_id": self._experiment_id, "chosen": self._chosen_id}

    def _follow(self, document: FollowedDocument) -> None:
        try:
            with closing(document.versions(_TICK_S)) as versions:
                started = time.thread_time()
                for version in versions:
                    if version is not None:
                        self._take(cast(ViewState, version))
                    if self._ends_if_complete():
                        return
                    if version is not None:
                        self._pause(time.thread_time() - started)
                        started = time.thread_time()
        except DetError as error:  # such as an experiment that was deleted; the last state stays
            logger.info("experiment %d is not followed: %s", self._experiment_id, error)
            with self._lock:
                self._fail(error)
        finally:
            with self._lock:
                if self._document is document:
                    self._end()

    def _take(self, state: ViewState) -> None:
        """Show a version, and print or keep what is due."""
        with self._lock:
            is_first, self._state = self._state is None, state
            self._changed_at = time.monotonic()
            if self._widget is not None:
                self._widget.state = state
            if is_first:
                self._widget = self._make_widget(state)
                self._keep(state, self._widget_in_outputs)
            elif self._is_due(state):
                self._keep(state)
            # A terminal cannot redraw an output. The first state is displayed with its reason.
            line = self._news.line(state) if self._front_end == "terminal" else ""
            if line and self._displays and not is_first:
                print(line, flush=True)
            if state["ended_at"] is not None:
                self._has_last_picture.set()
            self._is_answered.set()

    def _make_widget(self, state: ViewState) -> LiveWidget | None:
        if self._widget_class is None:
            return None
        from det_jupyter.front.notebook.handles.widget import answer_soon

        on_question = partial(answer_soon, self._client, self._experiment_id)
        return self._widget_class(state, self._on_choose, on_question, self._awake.set)

    @property
    def _widget_in_outputs(self) -> LiveWidget | None:
        return self._widget if self._front_end == "outputs" else None

    def _ends_if_complete(self) -> bool:
        """End if the experiment has ended and its state is complete; return whether."""
        with self._lock:
            if self._is_complete():
                self._end()
                return True
            return False

    def _is_complete(self) -> bool:
        state = self._state
        if state is None or state["ended_at"] is None or not self._is_answered.is_set():
            return False
        search = state["search"]
        if search is None or time.monotonic() > self._changed_at + _COMPLETE_S:
            return True
        chosen_id = search["chosen"]["trial"]["id"] if search["chosen"] else None
        is_last = _num_in_importance(state) == state["num_trials"] or state["num_trials"] < 2
        return is_last and chosen_id == self._chosen_id

    def _end(self) -> None:
        self._document = None
        self._displays.clear()
        self._has_last_picture.set()
        self._is_answered.set()

    def _fail(self, error: DetError) -> None:
        self._error = error
        if self._state is None:
            for handle in self._displays:
                handle.update({"text/plain": str(error)}, raw=True)

    def _pause(self, worked_s: float) -> None:
        """Pause: at most a tenth of the kernel's time is used, also with long curves."""
        time.sleep(max(_PUSH_PERIOD_S, _PAUSE_SHARE * worked_s))
        is_watched = self._widget is None or self._widget.is_watched
        if not (is_watched or self._is_awaited):
            self._awake.wait(_REST_S)
            self._awake.clear()

    def _is_due(self, state: ViewState) -> bool:
        """Return whether to render a new picture."""
        has_ended = state["ended_at"] is not None
        if self._front_end in ("terminal", "outputs") and not has_ended:
            return False  # a picture would be printed, or replace the widget
        is_old = time.monotonic() - self._kept_at > _KEEP_PERIOD_S
        return _essentials(state) != self._kept or (is_old and not has_ended)

    def _keep(self, state: ViewState, widget: LiveWidget | None = None) -> None:
        """Render the picture, and send it to the outputs, with `widget`, and to our widget."""
        self._kept, self._kept_at = _essentials(state), time.monotonic()
        forms = bundle(state, widget)
        if self._widget is not None:
            self._widget.kept = forms
        for handle in self._displays:
            handle.update(forms, metadata=metadata(widget), raw=True)
        if self._front_end == "terminal" and state["ended_at"] is not None:
            self._displays.clear()  # each update is printed below the last

    def _on_choose(self, trial_id: int | None) -> None:
        """Show this trial of a search in full, also after the end."""
        with self._lock:
            self._chosen_id, self._changed_at = trial_id, time.monotonic()
            if self._document is not None:
                self._document.change_args(**self._args)
        self._start()


def _widget_class(where: FrontEnd) -> type[LiveWidget] | None:
    """Return the widget's class, which is slow to import, if the front end can show one."""
    if where not in ("places", "outputs") or not can_draw():
        return None
    from det_jupyter.front.notebook.handles.widget import LiveWidget

    return LiveWidget


def _essentials(state: ViewState) -> tuple[Status, int, int]:
    """Return the part of a state whose change requires a new picture."""
    num_ended = _num_in_importance(state)
    if state["ended_at"] is None:
        num_ended = min(num_ended, 1)  # whether there is one
    return state["status"], len(state["charts"]), num_ended


def _num_in_importance(state: ViewState) -> int:
    """Return of how many ended trials the importance of hyperparameters is; 0: there is none."""
    importance = state["search"] and state["search"]["importance"]
    return importance["num_ended"] if importance else 0


def display_forms(forms: dict[str, Any], metadata: dict[str, Any] | None = None) -> DisplayHandle:
    """Display a mimebundle, and return the handle that can update it."""
    handle = display(forms, metadata=metadata, raw=True, display_id=True)
    assert isinstance(handle, DisplayHandle)
    return handle
