"""`det_jupyter.slots()`, `queue()` and `jobs()`: the cluster as text and as HTML.

The HTML needs neither script nor style sheet. A slot is a box with its number and state; each
state has its own border and pattern, as colour alone must not carry meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Generic, TypeVar

from det_jupyter.client.calls import explains_arguments
from det_jupyter.contract.messages import (
    AgentStatus,
    ClusterView,
    JobEntry,
    QueueEntry,
    SlotStatus,
)
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.contract.values.text import shortened
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.verbs.cluster_tables import jobs_listings, user_name
from det_jupyter.front.verbs.cluster_text import (
    MOST_AGENTS,
    MOST_LINES,
    agent_title,
    entry_title,
    followers_title,
    group_entries,
    idle_hints,
    pool_line,
    queue_text,
    slot_signs,
    slots_text,
)
from det_jupyter.front.verbs.cluster_verbs import FRONT, WHOLE, problem_notes
from det_jupyter.front.verbs.listings import MOST_ROWS, Listing, html_table
from det_jupyter.view.making.slot_bars import counts_line, facts_of

_LINE = "var(--jp-border-color1, currentColor)"
_BOX = (
    "display:inline-block;box-sizing:border-box;width:7.5em;height:3.4em;margin:2px;"
    "padding:2px 5px;overflow:hidden;white-space:nowrap;text-overflow:ellipsis;"
    "vertical-align:top;font-size:90%;"
)
_FILL = "var(--jp-layout-color3, rgba(127,127,127,.35))"
_STRIPES = f"repeating-linear-gradient(45deg,transparent 0 5px,{_FILL} 5px 8px)"
_LOOKS = {
    "used": f"border:2px solid currentColor;background:{_FILL}",
    "leaving": f"border:2px dashed currentColor;background:{_FILL}",
    "free": f"border:1px solid {_LINE}",
    "occupied": f"border:2px double currentColor;background:{_STRIPES}",
    "lost": f"border:2px solid currentColor;background:{_STRIPES};opacity:.6",
    "disabled": f"border:1px dotted {_LINE};opacity:.6;text-decoration:line-through",
}

View = TypeVar("View")


@dataclass(frozen=True, slots=True, repr=False)
class Displayed(Generic[View]):
    """A response of the master that prints as text and displays as HTML.

    Attributes:
        view: The response as data.
    """

    view: View
    _text: Callable[[View], str]
    _page: Callable[[View], str]

    def __repr__(self) -> str:
        return self._text(self.view)

    def _repr_html_(self) -> str:
        return self._page(self.view)


@explains_arguments
def slots(*, all: bool = False) -> Displayed[ClusterView]:
    """Return what runs on each slot, for display; `.view` is the data.

    Args:
        all: Print every slot, however many there are.
    """
    client = connection.client()
    view = client.cluster(limit=0)
    notes = problem_notes(client, view, NOTEBOOK)
    return Displayed(
        view,
        lambda view: "\n".join([slots_text(view, NOTEBOOK, with_all=all), *notes]),
        lambda view: slots_page(view, notes),
    )


@explains_arguments
def queue(*, limit: int = FRONT) -> Displayed[ClusterView]:
    """Return the trials that wait for slots, for display; `.view` is the data.

    Args:
        limit: Number of trials from each pool's queue; 1000 at most.
    """
    view = connection.client().cluster(limit=max(0, min(limit, WHOLE)))
    return Displayed(view, queue_text, queue_page)


@explains_arguments
def jobs() -> Displayed[list[JobEntry]]:
    """Return the experiments that have not ended, for display; `.view` is the data."""
    client = connection.client()
    view = client.jobs()
    listings = jobs_listings(view, client.pools(), user_name())
    return Displayed(
        view,
        lambda _: "\n\n".join(listing.text() for listing in listings),
        lambda _: tables_page(listings, MOST_ROWS),
    )


def slots_page(view: ClusterView, notes: Sequence[str] = ()) -> str:
    """Return all slots as boxes, agent by agent, with the notes below."""
    is_short = sum(len(a.slots) for p in view.pools for a in p.agents) <= MOST_LINES
    parts = []
    for pool in view.pools:
        parts.append(f"<p><b>{escape(pool_line(pool))}</b></p>")
        parts += [_agent(agent, view.at, is_short=is_short) for agent in pool.agents[:MOST_AGENTS]]
        if hidden := pool.agents[MOST_AGENTS:]:
            parts.append(f"<p>… and {len(hidden):,} more agents: {counts_line(hidden)}</p>")
    parts += [f"<p>{escape(hint)}</p>" for hint in (*idle_hints(view, NOTEBOOK), *notes)]
    return f"<div>{''.join(parts) or 'There is no pool.'}</div>"


def _agent(agent: AgentStatus, at: float, *, is_short: bool) -> str:
    title = escape(agent_title(agent, at))
    if not (agent.connected and is_short):
        return f"<div>{title} <code>{slot_signs(agent)}</code> {counts_line([agent])}</div>"
    boxes = "".join(_box(slot, at) for slot in agent.slots)
    return f'<div style="margin-bottom:4px"><div>{title}</div>{boxes}</div>'


def _box(slot: SlotStatus, at: float) -> str:
    facts = " · ".join(facts_of(slot, at))
    whole = escape(f"slot {slot.slot.id} ({slot.slot.name}): {facts}", quote=True)
    first, second = _box_lines(slot)
    return (
        f'<span title="{whole}" style="{_BOX}{_LOOKS[slot.state]}">'
        f"<b>{slot.slot.id}</b> {escape(first)}<br>{escape(second)}</span>"
    )


def _box_lines(slot: SlotStatus) -> tuple[str, str]:
    """Return the two lines of a box: the state, and the trial or process that uses the slot."""
    if slot.experiment_id is not None:
        return slot.state, f"exp {slot.experiment_id} trial {slot.trial_id}"
    if slot.lost is not None:
        return slot.state, slot.lost.cause
    if slot.processes:
        return slot.state, shortened(slot.processes[0].notebook or slot.processes[0].command)
    return slot.state, ""


def queue_page(view: ClusterView) -> str:
    """Return the waiting trials in order, each with its reason."""
    if not view.num_waiting:
        return "<div>No trial waits for slots.</div>"
    parts = []
    for pool in view.pools:
        if not pool.num_waiting:
            continue
        entries = [entry for entry in view.queue if entry.pool == pool.name]
        items = "".join(_item(first, last, view.at) for first, last in group_entries(entries))
        more = pool.num_waiting - len(entries)
        rest = f"<p>… and {more:,} more</p>" if more > 0 else ""
        parts.append(f"<p><b>{escape(pool_line(pool))}</b></p><ol>{items}</ol>{rest}")
    return f"<div>{''.join(parts)}</div>"


def _item(first: QueueEntry, last: QueueEntry, at: float) -> str:
    place = f'<li value="{first.position + 1}">'
    if first is not last:
        return f"{place}{escape(followers_title(first, last))}</li>"
    return (
        f"{place}{escape(entry_title(first, at))}<br><i>{escape(first.reason.sentence)}</i></li>"
    )


def tables_page(listings: Sequence[Listing], most: int) -> str:
    """Return tables one below the other, each with its first `most` rows."""
    return f"<div>{''.join(_table(listing, most) for listing in listings)}</div>"


def _table(listing: Listing, most: int) -> str:
    title = f"<p><b>{escape(listing.title)}</b></p>" if listing.title else ""
    if not listing.rows:
        return f"{title}<p>{escape(listing.if_empty)}</p>"
    table = html_table(listing.header, map(listing.texts, listing.rows[:most]))
    more = len(listing.rows) - most
    rest = f"<p>… and {more:,} more</p>" if more > 0 else ""
    return f"{title}{table}{rest}"
