"""The view of an experiment: as JSON for the front end, as a card and as plain text. Pure."""

from __future__ import annotations

from det_jupyter.view.build.experiment import build_view_state
from det_jupyter.view.forms.card import render_html
from det_jupyter.view.forms.news import WaitingNews
from det_jupyter.view.forms.plain import render_plain
from det_jupyter.view.model.experiment import ViewState
from det_jupyter.view.model.states import Verb

__all__ = ["Verb", "ViewState", "WaitingNews", "build_view_state", "render_html", "render_plain"]
