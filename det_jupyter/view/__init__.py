"""What a person sees of an experiment: the live view's JSON, a card, plain text. Pure."""

from __future__ import annotations

from det_jupyter.view.build.experiment import build_view_state
from det_jupyter.view.forms.card import render_html
from det_jupyter.view.forms.news import WaitingNews
from det_jupyter.view.forms.plain import render_plain
from det_jupyter.view.model.experiment import Verb, ViewState

__all__ = [
    "Verb",
    "ViewState",
    "WaitingNews",
    "build_view_state",
    "render_html",
    "render_plain",
]
