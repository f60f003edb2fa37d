"""The outputs of a cell that shows an experiment, by MIME type.

The HTML is a `<det-experiment>` element, a *place*, around a static card. Without scripts the card
is shown. The front end draws the live view into the place (`labextension/src/places.ts`), with
data from the Jupyter server or, if the server lacks our extension, from a kernel. In untrusted
notebooks, elements of unknown names are removed: there the card is shown, or our extension finds
the key in our own MIME type. A comparison has a place too, with data from the kernel only.
"""

from __future__ import annotations

from html import escape
from typing import Any

from det_jupyter.view.forms.card import render_html
from det_jupyter.view.forms.plain import render_plain
from det_jupyter.view.model.view_state import ViewState

EXPERIMENT_MIME = "application/vnd.det-jupyter.experiment.v1+json"


def kept_forms(state: ViewState) -> dict[str, Any]:
    """Return the view in every form that a notebook stores, by MIME type.

    JupyterLab and Notebook 7 with our extension use our own MIME type; others show the HTML.
    """
    key = place_key(state["id"], state["created_at"])
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


def place_key(experiment_id: int, created_at: float) -> str:
    """Return the key of the experiment's places, unique among all masters."""
    return f"{experiment_id}@{created_at}"


def key_id(key: str) -> int:
    """Return the id of the experiment whose places have this key; 0 for an invalid key."""
    number = key.partition("@")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def in_place(key: str, card: str) -> str:
    return f'<det-experiment key="{escape(key)}" style="display:block">{card}</det-experiment>'
