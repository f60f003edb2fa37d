"""The live view and comparisons as anywidgets; imported late, as ipywidgets takes its time.

The state travels in parts (answers/state_parts.py), of which the front end makes it whole again.
Each is a trait, so that a page that is loaded again finds all of them.

No output holds the widget in JupyterLab and Notebook 7: the front end draws it wherever the page
has a place for its experiment (docs/decisions/0032).
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import traitlets
from anywidget import AnyWidget

from det_jupyter.client import Client
from det_jupyter.contract.messages.pages import TabsAnswer
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import DetError
from det_jupyter.front.answers import answering
from det_jupyter.front.answers.state_parts import parts_of
from det_jupyter.front.notebook.handles import show
from det_jupyter.view.forms.notebook_output import place_key
from det_jupyter.view.model.comparison import ComparisonState
from det_jupyter.view.model.search_state import Row
from det_jupyter.view.model.view_state import ViewState

logger = logging.getLogger(__name__)

Send = Callable[[Any], None]


def tabs_answer(client: Client, experiment_id: int, question: answering.Question) -> TabsAnswer:
    """Return the code of the tabs that a view begins without."""
    return TabsAnswer(text=(show.STATIC_DIR / "tabs.js").read_text(encoding="utf-8"))


ANSWERERS: Mapping[str, answering.Answerer] = {**answering.ANSWERERS, "tabs": tabs_answer}


def answer_soon(
    client: Client, experiment_id: int, question: answering.Question, send: Send
) -> None:
    """Send the answer from another thread: a search may take seconds, and cells should run."""
    threading.Thread(
        target=lambda: send(answering.answer(client, experiment_id, question, ANSWERERS)),
        name=f"det-answer-{experiment_id}",
        daemon=True,
    ).start()


class PageWidget(AnyWidget):
    """A widget that draws into the page's places named `key`; `own_id` is its model's id."""

    key = traitlets.Unicode().tag(sync=True)
    own_id = traitlets.Unicode().tag(sync=True)
    is_door = traitlets.Bool(False).tag(sync=True)

    def __init__(self, **kwargs: Any) -> None:
        self._esm = (show.STATIC_DIR / "widget.js").read_text(encoding="utf-8")
        self._css = (show.STATIC_DIR / "widget.css").read_text(encoding="utf-8")
        own_id = uuid.uuid4().hex
        super().__init__(model_id=own_id, own_id=own_id, **kwargs)
        _answer_where_asked(self.comm)


class DoorWidget(PageWidget):
    """Calls `on_wanted` with the key of each place in the page that nothing draws live."""

    def __init__(self, on_wanted: Callable[[str], None]) -> None:
        self._on_wanted = on_wanted
        super().__init__(is_door=True)
        self.on_msg(self._on_message)

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        key = content.get("key")
        if content.get("type") == "wanted" and isinstance(key, str):
            self._on_wanted(key)


class ComparisonWidget(PageWidget):
    """Shows a `ComparisonState`; `settings` are the reader's choices, such as the x axis."""

    comparison = traitlets.Dict().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)

    def __init__(self, state: ComparisonState, key: str) -> None:
        super().__init__(key=key, comparison=state)


class LiveWidget(PageWidget):
    """Shows a `ViewState` and asks `on_command` for what its buttons say.

    `state` may be set from any thread. The front end sends `{"type": "command", "command": ...}`
    and is answered `{"type": "outcome", "command": ..., "error": ""}`, or with the reason in
    `error`, which it shows. It sets `chosen` to the trial that the reader has chosen, with which
    `on_choose` is called. `settings` are the reader's choices, such as the x axis of the charts.
    `on_question` is given other messages and what sends the answer. It is drawn at the places
    named `key`, which are saved with `kept`: the newest picture, by MIME type.

    Callbacks run in the thread that serves the widget's messages.

    Pages that a server feeds say that they `rest`, and `wake` it when they have none any more.
    While all that have said something rest, new states stay here.
    """

    kept = traitlets.Dict().tag(sync=True)

    shown = traitlets.Dict().tag(sync=True)
    cluster: traitlets.Dict[str, Any] = traitlets.Dict(None, allow_none=True).tag(sync=True)
    rows: traitlets.List[Row] = traitlets.List().tag(sync=True)
    changed_rows: traitlets.List[Row] = traitlets.List().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Int(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        state: ViewState,
        on_command: Callable[[str], None],
        on_choose: Callable[[int | None], None],
        on_question: Callable[[dict[str, Any], Send], None],
    ) -> None:
        self._on_command = on_command
        self._on_choose = on_choose
        self._on_question = on_question
        self._requests: deque[Any] = deque(maxlen=256)
        self._setting = threading.Lock()  # the parts of two states must not be mixed
        self._awake: set[str] | None = None  # pages that need news; None before the first word
        super().__init__(key=place_key(state), **parts_of(state, []))
        self._state = state
        self.on_msg(self._on_message)
        self.observe(self._on_chosen, names="chosen")

    @property
    def state(self) -> ViewState:
        """What is shown."""
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
            for name, part in parts_of(self._state, self.rows).items():
                setattr(self, name, part)

    def _on_page(self, page: str, *, is_awake: bool) -> None:
        was_watched = self.is_watched
        self._awake = (self._awake or set()) - {page} | ({page} if is_awake else set())
        if self.is_watched and not was_watched:
            self._send_state()

    def _on_chosen(self, change: dict[str, Any]) -> None:
        try:
            self._on_choose(change["new"])
        except Exception:  # the boundary to the browser: the view stays as it is
            logger.exception("choosing trial %s", change["new"])

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        request = content.get("request")
        if request is not None and request in self._requests:
            return  # sent again, as the first could have been lost
        self._requests.append(request)
        command, page = content.get("command"), content.get("page")
        if content.get("type") in ("rest", "wake") and isinstance(page, str):
            self._on_page(page, is_awake=content["type"] == "wake")
        elif content.get("type") == "command" and isinstance(command, str):
            self.send({"type": "outcome", "command": command, "error": self._outcome(command)})
        elif content.get("type") in ANSWERERS:
            self._on_question(content, self.send)

    def _outcome(self, command: str) -> str:
        """The boundary to the browser: whatever goes wrong is said where the button is."""
        try:
            self._on_command(command)
        except DetError as error:
            return str(error)
        except Exception as error:
            logger.exception("command %s", command)
            return error_text(error)
        return ""


def _answer_where_asked(comm: Any) -> None:
    """Have the front end's messages handled in the subshell that it sends them to.

    JupyterLab sends those of widgets to a subshell, a thread that is free while a cell runs.
    ipykernel 7.4 takes them to where the kernel last sent a message of the widget from. That is
    the cell that submitted, also for messages of our threads: buttons would wait for the cell.
    """
    if comm is not None:
        comm._reply_subshell_for = None  # ipykernel asks it, if it is there, for the other place
