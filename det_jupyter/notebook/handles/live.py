"""The live view of one experiment in this kernel: one widget, fed from background threads.

    Follower thread    keeps a copy of the experiment current from the master's feed
    pusher thread      a few times a second turns the copy into the widget's state

Each place where the experiment is displayed is a display with an id of its own, which gets the
final picture when the experiment has ended: the saved notebook then holds the whole curves.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from det_jupyter.client import Client, Follower
from det_jupyter.client.remedies import carry_out
from det_jupyter.errors import Conflict
from det_jupyter.notebook.handles.importance import KnownImportance
from det_jupyter.notebook.handles.log_answers import answer_soon
from det_jupyter.notebook.handles.show import bundle, live_widget, metadata
from det_jupyter.remedies import notebook_lines
from det_jupyter.view import ViewState, WaitingNews, build_view_state
from det_jupyter.view.live import LiveExperiment
from det_jupyter.view.model.experiment import ENDED, VERBS
from det_jupyter.wire import Remedy

_PUSH_PERIOD_S = 0.25
_FETCH_S = 5.0
_FIRST_LOOK_S = 0.1  # how long the first display waits for the copy, so that it shows something


class LiveView:
    """Shows one experiment, wherever and however often it is asked to."""

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._displays: list[DisplayHandle] = []
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._widget: Any = None
        self._news = WaitingNews()
        self._importance = KnownImportance(client, experiment_id)
        self._chosen_id: int | None = None  # the trial of a search that the reader has chosen
        self._follower: Follower | None = None

    def show(self, *, interactive: bool = True) -> None:
        """Display the experiment here, live until it ends.

        Args:
            interactive: Whether one that has ended is shown as a widget too, not as a static card.
        """
        follower = self._start()
        state = self._state()
        has_ended = state["status"] in ENDED
        if has_ended:
            follower.thread.join(_FETCH_S)  # its curves are worth waiting for
            state = self._state()
        with self._lock:
            if self._widget is None and _has_widgets() and (interactive or not has_ended):
                on_logs = partial(answer_soon, self._client, self._experiment_id)
                self._widget = live_widget(state, self._on_command, self._on_choose, on_logs)
            widget = self._widget if interactive or not has_ended else None
            handle = display_forms(bundle(state, widget), metadata(widget))
            self._note_what_was_shown(state, follower)
            if not has_ended:
                self._displays.append(handle)

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
        self._push(follower)
        self._leave_final_picture(follower)

    def _push(self, follower: Follower) -> None:
        if follower.live is None:
            return
        if self._widget is not None:
            self._widget.state = self._view_state(follower, follower.live)
        elif not _has_widgets():
            self._print_why_it_waits(follower, follower.live)

    def _note_what_was_shown(self, state: ViewState, follower: Follower) -> None:
        if state["cluster"] is not None and follower.live is not None:
            self._news.line(follower.live.experiment, follower.live.reasons)

    def _print_why_it_waits(self, follower: Follower, live: LiveExperiment) -> None:
        """Print a new reason: a terminal cannot redraw what was displayed."""
        with follower.lock:
            line = self._news.line(live.experiment, live.reasons)
        if line:
            print(line, flush=True)

    def _leave_final_picture(self, follower: Follower) -> None:
        """Replace the live views by static cards, which need no kernel."""
        if follower.live is None:
            return
        forms = bundle(self._view_state(follower, follower.live))
        with self._lock:
            for handle in self._displays:
                handle.update(forms, raw=True)
            self._displays.clear()

    def _on_command(self, command: str) -> None:
        """Carry out a button: a verb, or a remedy by its lines; the view shows the error."""
        if command in VERBS:
            self._client.command(self._experiment_id, command)
        else:
            carry_out(self._client, self._offered(command))

    def _offered(self, command: str) -> Remedy:
        live = self._follower.live if self._follower is not None else None
        for reason in live.reasons.values() if live is not None else ():
            for remedy in reason.remedies:
                if "\n".join(notebook_lines(remedy)) == command:
                    return remedy
        raise Conflict(
            f"{command}: the queue has changed meanwhile, and this would no longer start the trial"
        )

    def _on_choose(self, trial_id: int | None) -> None:
        """Show this trial of a search in full; the pusher does it while there is one."""
        self._chosen_id = trial_id
        if self._follower is not None and self._follower.thread.is_alive():
            self._changed.set()
        elif self._follower is not None:
            self._push(self._follower)


def display_forms(forms: dict[str, Any], metadata: dict[str, Any] | None = None) -> DisplayHandle:
    """Display a mimebundle; the handle that is returned can update it."""
    handle = display(forms, metadata=metadata, raw=True, display_id=True)
    assert isinstance(handle, DisplayHandle)
    return handle


def _has_widgets() -> bool:
    """Whether a front end could show a widget: there is a kernel, not just a terminal."""
    return getattr(get_ipython(), "kernel", None) is not None
