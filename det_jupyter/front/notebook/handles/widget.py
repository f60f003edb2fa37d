"""The live view and comparisons as anywidgets; imported late, as ipywidgets is slow to import.

A state is sent as an earlier state and the changes since then; usually only the changes are sent.
Both are traits, so that a reloaded page gets them.

In JupyterLab and Notebook 7 no output contains the widget: the front end draws it into each
placeholder that the page has for its experiment (docs/decisions/0032).
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

import traitlets
from anywidget import AnyWidget

from det_jupyter.client import Client
from det_jupyter.client.answers import answering
from det_jupyter.contract.documents.patches import Document, changes, size_of
from det_jupyter.contract.messages.pages import TabsAnswer
from det_jupyter.front.notebook.handles import front_end
from det_jupyter.view.forms.notebook_output import place_key
from det_jupyter.view.model.comparison import ComparisonState
from det_jupyter.view.model.view_state import ViewState

logger = logging.getLogger(__name__)

_MOST_SHARE = 0.5  # of the document's characters; a longer patch makes the next document

Send = Callable[[Any], None]


def tabs_script(client: Client, experiment_id: int, question: answering.Question) -> TabsAnswer:
    """Return the JavaScript of the view's tabs, which is loaded on demand."""
    return TabsAnswer(text=(front_end.STATIC_DIR / "tabs.js").read_text(encoding="utf-8"))


ANSWERERS: Mapping[str, answering.Answerer] = {**answering.ANSWERERS, "tabs": tabs_script}


_last_command: dict[int, threading.Thread] = {}  # by experiment


def answer_soon(
    client: Client, experiment_id: int, question: answering.Question, send: Send
) -> None:
    """Send the answer from a thread: it may take seconds, and must not delay cells.

    Buttons act one after the other, in the order in which they were pressed.
    """
    is_command = question.get("type") == "command"
    before = _last_command.get(experiment_id) if is_command else None

    def answer() -> None:
        if before is not None:
            before.join()
        send(answering.answer(client, experiment_id, question, ANSWERERS))

    thread = threading.Thread(target=answer, name=f"det-answer-{experiment_id}", daemon=True)
    thread.start()
    if is_command:
        _last_command[experiment_id] = thread


class PageWidget(AnyWidget):
    """A widget that draws into the page's placeholders named `key`; `own_id` is its model id."""

    key = traitlets.Unicode().tag(sync=True)
    own_id = traitlets.Unicode().tag(sync=True)
    is_door = traitlets.Bool(False).tag(sync=True)

    def __init__(self, **kwargs: Any) -> None:
        self._esm = (front_end.STATIC_DIR / "widget.js").read_text(encoding="utf-8")
        self._css = (front_end.STATIC_DIR / "widget.css").read_text(encoding="utf-8")
        own_id = uuid.uuid4().hex
        super().__init__(model_id=own_id, own_id=own_id, **kwargs)
        _handle_in_subshell(self.comm)


class DoorWidget(PageWidget):
    """Calls `on_wanted` with the key of each visible placeholder that no widget draws into."""

    def __init__(self, on_wanted: Callable[[str], None]) -> None:
        self._on_wanted = on_wanted
        super().__init__(is_door=True)
        self.on_msg(self._on_message)

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        key = content.get("key")
        if content.get("type") == "wanted" and isinstance(key, str):
            self._on_wanted(key)


class ComparisonWidget(PageWidget):
    """Shows a `ComparisonState`; `settings` are the user's choices, such as the x axis."""

    comparison = traitlets.Dict().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)

    def __init__(self, state: ComparisonState, key: str) -> None:
        super().__init__(key=key, comparison=state)


class LiveWidget(PageWidget):
    """Shows a `ViewState`, and calls `on_question` with the page's questions.

    `state` is JSON: a version of the document `experiment`, parts of which may be the same objects
    as in the one before. It may be set from any thread.

    A pressed button is a question, too; with a question comes a function that sends the answer.
    The front end sets `chosen` to the trial that the user has chosen, with which `on_choose` is
    called. `settings` are the user's choices, such as the x axis of the charts. The widget is
    drawn into placeholders named `key`, which are saved with `kept`: the newest picture, by MIME
    type.

    Callbacks run in the thread that handles the widget's messages.

    A page that gets its states from the server extension sends `rest`, and `wake` when that
    connection ends. While all pages that sent a message rest, new states are not sent; `on_wake`
    is called when one is awake again.
    """

    kept = traitlets.Dict().tag(sync=True)

    document = traitlets.Dict().tag(sync=True)  # {"version", "state"}
    patch = traitlets.Dict().tag(sync=True)  # {"since", "operations"}: of a version of `document`
    settings = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Int(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        state: ViewState,
        on_choose: Callable[[int | None], None],
        on_question: Callable[[dict[str, Any], Send], None],
        on_wake: Callable[[], None],
    ) -> None:
        self._on_choose = on_choose
        self._on_question = on_question
        self._on_wake = on_wake
        self._requests: deque[Any] = deque(maxlen=256)
        self._setting = threading.Lock()  # one state at a time: those of two must not mix
        self._awake: set[str] | None = None  # pages that need states; None at first
        self._document_chars = 0
        document, patch = self._parts(cast(Document, state), version=1)
        key = place_key(state["id"], state["created_at"])
        super().__init__(key=key, document=document, patch=patch)
        self._state = state
        self.on_msg(self._on_message)
        self.observe(self._on_chosen, names="chosen")

    @property
    def state(self) -> ViewState:
        """The state that is shown."""
        return self._state

    @state.setter
    def state(self, state: ViewState) -> None:
        self._state = state
        if self.is_watched:
            self._send_state()

    @property
    def is_watched(self) -> bool:
        """Whether a page may need a new state."""
        return self._awake is None or bool(self._awake)

    def _send_state(self) -> None:
        with self._setting, self.hold_sync():
            state, version = cast(Document, self._state), self.document["version"]
            operations = changes(self.document["state"], state)
            if size_of(operations) > _MOST_SHARE * self._document_chars:
                self.document, self.patch = self._parts(state, version + 1)
            else:
                self.patch = {"since": version, "operations": operations}

    def _parts(self, state: Document, version: int) -> tuple[Document, Document]:
        """Return a new `document`, and the patch of it that changes nothing."""
        self._document_chars = size_of(state)
        return {"version": version, "state": state}, {"since": version, "operations": []}

    def _on_page(self, page: str, *, is_awake: bool) -> None:
        was_watched = self.is_watched
        self._awake = (self._awake or set()) - {page} | ({page} if is_awake else set())
        if self.is_watched and not was_watched:
            self._send_state()
            self._on_wake()

    def _on_chosen(self, change: dict[str, Any]) -> None:
        try:
            self._on_choose(change["new"])
        except Exception:  # the boundary to the browser: the view does not change
            logger.exception("choosing trial %s", change["new"])

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        request = content.get("request")
        if request is not None and request in self._requests:
            return  # sent twice in case the first was lost
        self._requests.append(request)
        page = content.get("page")
        if content.get("type") == "whole":  # a page whose document and patch do not fit
            with self._setting:
                self.send_state(["document", "patch"])
        elif content.get("type") in ("rest", "wake") and isinstance(page, str):
            self._on_page(page, is_awake=content["type"] == "wake")
        elif content.get("type") in ANSWERERS:
            self._on_question(content, self.send)


def _handle_in_subshell(comm: Any) -> None:
    """Handle the front end's messages in the subshell that they are sent to.

    JupyterLab sends messages of widgets to a subshell, a thread that is free while a cell runs.
    ipykernel 7.4 moves them to the thread that last sent a message of the widget: the main one,
    also for messages of our threads. Buttons would wait for the running cell.
    """
    if comm is not None:
        comm._reply_subshell_for = None  # ipykernel calls it, if set, to find that thread
