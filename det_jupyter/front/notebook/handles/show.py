"""Displays a view: static forms, and the live widget where that works (docs/decisions/0032)."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.getipython import get_ipython

from det_jupyter.view.forms.notebook_output import EXPERIMENT_MIME, kept_forms
from det_jupyter.view.model.view_state import ViewState

if TYPE_CHECKING:  # ipywidgets takes its time
    from det_jupyter.front.notebook.handles.widget import LiveWidget

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


def can_draw() -> bool:
    """Return whether the front end is built, and the library of its widgets is there."""
    if not all((STATIC_DIR / name).is_file() for name in ("widget.js", "widget.css")):
        logger.info("no live view: nothing is built in %s", STATIC_DIR)
        return False
    if importlib.util.find_spec("anywidget") is None:
        logger.info("no live view: anywidget is not installed")
        return False
    return True


def metadata(widget: LiveWidget | None) -> dict[str, Any]:
    """Return what must be displayed along with `bundle`; Colab draws no widget without."""
    return _live(widget)[1]


def bundle(state: ViewState, widget: LiveWidget | None = None) -> dict[str, Any]:
    """Return the view in every form a front end may choose from: widget, HTML, plain text."""
    forms = kept_forms(state)
    if front() == "outputs":
        del forms[EXPERIMENT_MIME]  # no renderer of ours is there, and another may show it as JSON
    return {**_live(widget)[0], **forms}


def _live(widget: LiveWidget | None) -> tuple[dict[str, Any], dict[str, Any]]:
    return (widget and widget._repr_mimebundle_()) or ({}, {})
