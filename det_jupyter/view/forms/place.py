"""The place of an experiment in a page: an element that holds its card.

Alone it shows the card. A kernel that follows the experiment draws the live view into it
(`labextension/src/page/places.ts`), whichever kernel that is. Where elements of unknown names are
removed, as from notebooks that are not trusted, the card stays. Comparisons have places too, which
only their own kernel draws.
"""

from __future__ import annotations

from html import escape

from det_jupyter.view.model.experiment import ViewState


def place_key(state: ViewState) -> str:
    """Return what the experiment's places are named: no other one has it, of any master."""
    return f"{state['id']}@{state['created_at']}"


def key_id(key: str) -> int:
    """Return the number of the experiment whose places are named so; 0 if none can be."""
    number = key.partition("@")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def in_place(key: str, card: str) -> str:
    """Return the card in a place of that name."""
    return f'<det-experiment key="{escape(key)}" style="display:block">{card}</det-experiment>'
