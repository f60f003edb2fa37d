"""Determines what the front end can display: live widgets or pictures (docs/decisions/0032)."""

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

if TYPE_CHECKING:  # ipywidgets is slow to import
    from anywidget import AnyWidget

logger = logging.getLogger(__name__)

STATIC_DIR = Path(__file__).parents[1] / "static"

FrontEnd = Literal["places", "outputs", "static", "terminal"]


def front_end() -> FrontEnd:
    """Return how this kernel's front end displays live views.

    JupyterLab and Notebook 7 load every widget of the kernel; ours draw into placeholders of the
    page ("places"). VS Code and Colab load a widget only if an output contains it ("outputs").
    Programs that run notebooks (nbclient, papermill) display none ("static").
    """
    shell = get_ipython()
    if getattr(shell, "kernel", None) is None:
        return "terminal"
    if "__vsc_ipynb_file__" in getattr(shell, "user_ns", {}) or "google.colab" in sys.modules:
        return "outputs"
    return "places" if "JPY_SESSION_NAME" in os.environ else "static"


def can_draw() -> bool:
    """Return whether our front end is built, and anywidget is installed."""
    if not all((STATIC_DIR / name).is_file() for name in ("widget.js", "widget.css")):
        logger.info("no live view: nothing is built in %s", STATIC_DIR)
        return False
    if importlib.util.find_spec("anywidget") is None:
        logger.info("no live view: anywidget is not installed")
        return False
    return True


def metadata(widget: AnyWidget | None) -> dict[str, Any]:
    """Return the display metadata for `bundle`, without which Colab draws no widget."""
    return _live(widget)[1]


def bundle(state: ViewState, widget: AnyWidget | None = None) -> dict[str, Any]:
    """Return the view as a mimebundle: widget, HTML and plain text."""
    forms = kept_forms(state)
    if front_end() == "outputs":
        del forms[EXPERIMENT_MIME]  # has no renderer there, and might be shown as JSON
    return {**_live(widget)[0], **forms}


def _live(widget: AnyWidget | None) -> tuple[dict[str, Any], dict[str, Any]]:
    return (widget and widget._repr_mimebundle_()) or ({}, {})
