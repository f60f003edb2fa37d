"""Views of experiments: as JSON for the front end, as HTML cards and as plain text. Pure."""

from __future__ import annotations

from det_jupyter.view.forms.card import render_html
from det_jupyter.view.forms.news import HangNews, WaitingNews
from det_jupyter.view.forms.plain import render_plain
from det_jupyter.view.making.experiment_view import build_view_state
from det_jupyter.view.model.status_looks import Verb
from det_jupyter.view.model.view_state import ViewState

__all__ = [
    "HangNews",
    "Verb",
    "ViewState",
    "WaitingNews",
    "build_view_state",
    "render_html",
    "render_plain",
]
