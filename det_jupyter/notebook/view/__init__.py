"""What a person sees of an experiment: live, as a static card, and as plain text."""

from __future__ import annotations

from det_jupyter.notebook.view.card import render_html
from det_jupyter.notebook.view.model import Verb, ViewState
from det_jupyter.notebook.view.news import WaitingNews
from det_jupyter.notebook.view.plain import render_plain
from det_jupyter.notebook.view.show import Shown, bundle, live_widget, metadata
from det_jupyter.notebook.view.state import build_view_state

__all__ = [
    "Shown",
    "Verb",
    "ViewState",
    "WaitingNews",
    "build_view_state",
    "bundle",
    "live_widget",
    "metadata",
    "render_html",
    "render_plain",
]
