"""`det_jupyter.slots()`, `queue()` and `jobs()`: the cluster as objects that print themselves.

Each holds the master's answer in `view`.
"""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.notebook.handles import handles
from det_jupyter.verbs.cluster import FRONT, WHOLE, notes, user_name
from det_jupyter.verbs.cluster_page import ledger_page, queue_page, tables_page
from det_jupyter.verbs.cluster_tables import MOST_ROWS, Listing, jobs_listings
from det_jupyter.verbs.cluster_text import ledger_text, queue_text
from det_jupyter.wire import ClusterView, JobEntry, PoolStatus


class Slots:
    """Who is on which slot."""

    def __init__(
        self, view: ClusterView, *, with_all: bool = False, notes: Sequence[str] = ()
    ) -> None:
        self.view = view
        self._with_all = with_all
        self._notes = notes

    def __repr__(self) -> str:
        return "\n".join([ledger_text(self.view, with_all=self._with_all), *self._notes])

    def _repr_html_(self) -> str:
        return ledger_page(self.view, self._notes)


class Queue:
    """Who waits for slots, in order, and for what."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view

    def __repr__(self) -> str:
        return queue_text(self.view)

    def _repr_html_(self) -> str:
        return queue_page(self.view)


class Jobs:
    """The experiments that are not over, in the order of the queue."""

    def __init__(self, view: Sequence[JobEntry], pools: Sequence[PoolStatus]) -> None:
        self.view = list(view)
        self._pools = pools

    def __repr__(self) -> str:
        return "\n\n".join(listing.text() for listing in self._listings())

    def _repr_html_(self) -> str:
        return tables_page(self._listings(), MOST_ROWS)

    def _listings(self) -> list[Listing]:
        return jobs_listings(self.view, self._pools, user_name())


def slots(*, all: bool = False) -> Slots:
    """Return who is on which slot; it prints itself, and `.view` has it as data.

    Args:
        all: Print every slot, however many there are.
    """
    client = handles.client()
    return Slots(client.cluster(limit=0), with_all=all, notes=notes(client))


def queue(*, limit: int = FRONT) -> Queue:
    """Return who waits for slots and for what; it prints itself, and `.view` has it as data.

    Args:
        limit: Length of the front of each pool's queue; 1000 at most.
    """
    return Queue(handles.client().cluster(limit=max(0, min(limit, WHOLE))))


def jobs() -> Jobs:
    """Return the experiments that are not over; it prints itself, and `.view` has it as data."""
    client = handles.client()
    return Jobs(client.jobs(), client.pools())
