"""Displays a view: static forms, and the live widget where that works (docs/decisions/0032)."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

from IPython.core.getipython import get_ipython

from det_jupyter.view.forms.place import EXPERIMENT_MIME, kept_forms
from det_jupyter.view.model.comparison import ComparisonState
from det_jupyter.view.model.experiment import ViewState

logger = logging.getLogger(__name__)

STATIC_DIR = Path(__file__).parents[1] / "static"

Front = Literal["places", "outputs", "static", "terminal"]


def front() -> Front:
    """Return how this kernel's front end shows live views.

    JupyterLab and Notebook 7 load each widget of the kernel, which draws into the page by itself.
    VS Code and Colab load one only when an output holds it. What else runs notebooks (nbclient,
    papermill) shows none.
    """
    shell = get_ipython()
    if getattr(shell, "kernel", None) is None:
        return "terminal"
    if "__vsc_ipynb_file__" in getattr(shell, "user_ns", {}) or "google.colab" in sys.modules:
        return "outputs"
    return "places" if "JPY_SESSION_NAME" in os.environ else "static"


class Shown(Protocol):
    """A live view: set `state` to redraw it."""

    state: ViewState
    kept: dict[str, Any]

    @property
    def is_watched(self) -> bool: ...
    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None: ...


def live_widget(
    state: ViewState,
    on_command: Callable[[str], None],
    on_choose: Callable[[int | None], None] = lambda trial_id: None,
    on_question: Callable[[dict[str, Any], Callable[[Any], None]], None] = lambda asked, send: (
        None
    ),
) -> Shown | None:
    """Return a live view, or None if the front end is not built.

    Args:
        state: What to show first.
        on_command: Called with the verb of a button, or with the lines of a remedy, in the thread
            that serves the widget's messages. An error that it raises is shown by the button.
        on_choose: Called likewise with the trial of a search that the reader has chosen, or None.
        on_question: Called likewise with a question (answers.py), and what sends its answer.
    """
    if (built := _built()) is None:
        return None
    from det_jupyter.notebook.handles.widget import LiveWidget

    esm, css = built
    widget: Shown = LiveWidget(state, on_command, on_choose, on_question, esm=esm, css=css)
    return widget


def comparison_widget(state: ComparisonState, key: str) -> Any:
    """Return a comparison with interactive curves, or None if the front end is not built.

    Args:
        state: What to show.
        key: The name of its places in the page.
    """
    if (built := _built()) is None:
        return None
    from det_jupyter.notebook.handles.comparison_widget import ComparisonWidget

    esm, css = built
    return ComparisonWidget(state, key, esm=esm, css=css)


def open_door(on_wanted: Callable[[str], None]) -> object | None:
    """Call `on_wanted` with the key of each place in the page that nothing draws live.

    Returns:
        What has to be kept for as long as that is wanted, or None if the front end is not built.
    """
    if (built := _built()) is None:
        return None
    from det_jupyter.notebook.handles.widget import DoorWidget

    esm, css = built
    return DoorWidget(on_wanted, esm=esm, css=css)


def _built() -> tuple[Path, Path] | None:
    """Return the front end's module and style sheet, None where no widget can be shown."""
    esm, css = STATIC_DIR / "widget.js", STATIC_DIR / "widget.css"
    if not (esm.is_file() and css.is_file()):
        logger.info("no live view: %s is not built", esm)
        return None
    if importlib.util.find_spec("anywidget") is None:
        logger.info("no live view: anywidget is not installed")
        return None
    return esm, css


def metadata(widget: Shown | None) -> dict[str, Any]:
    """Return what must be displayed along with `bundle`; Colab draws no widget without."""
    live = widget._repr_mimebundle_() if widget is not None else None
    return {} if live is None else live[1]


def bundle(state: ViewState, widget: Shown | None = None) -> dict[str, Any]:
    """Return the view in every form a front end may choose from: widget, HTML, plain text."""
    forms = kept_forms(state)
    if front() == "outputs":
        del forms[EXPERIMENT_MIME]  # no renderer of ours is there, and another may show it as JSON
    live = widget._repr_mimebundle_() if widget is not None else None
    return forms if live is None else {**live[0], **forms}
