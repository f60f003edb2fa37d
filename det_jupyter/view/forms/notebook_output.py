"""The place of an experiment in a page: an element that holds its card.

Alone it shows the card. What knows the experiment draws the live view into it
(`labextension/src/page/places.ts`): a Jupyter server or, where it lacks our extension, a kernel.
Elements of unknown names are removed from notebooks that are not trusted: there the card stays, or
our extension finds the key in a form of its own. Comparisons have places too, which only their own
kernel draws.
"""

from __future__ import annotations

from html import escape
from typing import Any

from det_jupyter.view.forms.card import render_html
from det_jupyter.view.forms.plain import render_plain
from det_jupyter.view.model.view_state import ViewState

EXPERIMENT_MIME = "application/vnd.det-jupyter.experiment.v1+json"


def kept_forms(state: ViewState) -> dict[str, Any]:
    """Return the view in every form that a notebook keeps, by MIME type.

    Our own is for JupyterLab and Notebook 7 with our extension, which draws a place around the
    HTML; other readers show the HTML.
    """
    key = place_key(state)
    return {
        EXPERIMENT_MIME: {
            "key": key,
            "id": state["id"],
            "name": state["name"],
            "status": state["status"],
            "status_word": state["status_word"],
            "progress": state["progress"],
            "as_of": state["as_of"],
            "summary": state["summary"],
        },
        "text/html": in_place(key, render_html(state)),
        "text/plain": render_plain(state),
    }


def place_key(state: ViewState) -> str:
    """Return what the experiment's places are named: no other one has it, of any master."""
    return f"{state['id']}@{state['created_at']}"


def key_id(key: str) -> int:
    """Return the number of the experiment whose places are named so; 0 if none can be."""
    number = key.partition("@")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def in_place(key: str, card: str) -> str:
    return f'<det-experiment key="{escape(key)}" style="display:block">{card}</det-experiment>'
