"""The live view as an anywidget; imported only when one is shown, as ipywidgets takes its time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import traitlets
from anywidget import AnyWidget

from det_jupyter.errors import DetError
from det_jupyter.notebook.view.model import VERBS, Verb, ViewState

logger = logging.getLogger(__name__)

OnCommand = Callable[[Verb], None]


class LiveWidget(AnyWidget):
    """Shows a `ViewState` and asks `on_command` for what its buttons say.

    `state` may be set from any thread. The front end sends `{"type": "command", "verb": ...}` and
    is answered `{"type": "outcome", "verb": ..., "error": ""}`, or with the reason in `error`,
    which it shows.
    """

    state = traitlets.Dict().tag(sync=True)

    def __init__(
        self, state: ViewState, on_command: OnCommand, *, esm: Path, css: Path, **kwargs: Any
    ) -> None:
        self._esm = esm.read_text(encoding="utf-8")
        self._css = css.read_text(encoding="utf-8")
        self._on_command = on_command
        super().__init__(state=cast("dict[str, Any]", state), **kwargs)
        self.on_msg(self._on_message)

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        verb = content.get("verb")
        if content.get("type") != "command" or verb not in VERBS:
            return
        self.send({"type": "outcome", "verb": verb, "error": self._outcome(verb)})

    def _outcome(self, verb: Verb) -> str:
        """The boundary to the browser: whatever goes wrong is said where the button is."""
        try:
            self._on_command(verb)
        except DetError as error:
            return str(error)
        except Exception as error:
            logger.exception("command %s", verb)
            return f"{type(error).__name__}: {error}"
        return ""
