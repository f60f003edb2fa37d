"""`det_jupyter.slots()`, `queue()` and `jobs()`: the cluster as objects that show themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from det_jupyter.contract.messages import ClusterView, JobEntry
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.verbs.cluster import FRONT, WHOLE, notes
from det_jupyter.front.verbs.cluster_page import ledger_page, queue_page, tables_page
from det_jupyter.front.verbs.cluster_tables import jobs_listings, user_name
from det_jupyter.front.verbs.cluster_text import ledger_text, queue_text
from det_jupyter.front.verbs.tables import MOST_ROWS

View = TypeVar("View")


@dataclass(frozen=True, slots=True, repr=False)
class Shown(Generic[View]):
    """An answer of the master that shows itself.

    Attributes:
        view: The answer as data.
    """

    view: View
    _text: Callable[[View], str]
    _page: Callable[[View], str]

    def __repr__(self) -> str:
        return self._text(self.view)

    def _repr_html_(self) -> str:
        return self._page(self.view)


def slots(*, all: bool = False) -> Shown[ClusterView]:
    """Return what is on each slot; it prints itself, and `.view` has it as data.

    Args:
        all: Print every slot, however many there are.
    """
    client = connection.client()
    noted = notes(client)
    return Shown(
        client.cluster(limit=0),
        lambda view: "\n".join([ledger_text(view, NOTEBOOK, with_all=all), *noted]),
        lambda view: ledger_page(view, noted),
    )


def queue(*, limit: int = FRONT) -> Shown[ClusterView]:
    """Return the trials that wait for slots; it prints itself, and `.view` has it as data.

    Args:
        limit: Length of the front of each pool's queue; 1000 at most.
    """
    view = connection.client().cluster(limit=max(0, min(limit, WHOLE)))
    return Shown(view, queue_text, queue_page)


def jobs() -> Shown[list[JobEntry]]:
    """Return the experiments that are not over; it prints itself, and `.view` has it as data."""
    client = connection.client()
    view = client.jobs()
    listings = jobs_listings(view, client.pools(), user_name())
    return Shown(
        view,
        lambda _: "\n\n".join(listing.text() for listing in listings),
        lambda _: tables_page(listings, MOST_ROWS),
    )
